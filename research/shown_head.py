"""Choose the head of a Transformer whose attention is shown, without boxes of objects.

    python research/shown_head.py MODEL.safetensors -e EXPERIMENT

A Transformer has an attention map for each layer and head; which of them tells where
the model looks is known after training only. For each noun of validation captions the
places that a head attends to most are hidden, their annotations replaced by the mean
of the others. The head with which log p of the nouns falls most is the one whose map
explains them. It is written into the model's file, where weights and parts stay as they
are, and the falls are printed in JSON.
"""

import argparse
import json
import sys
from typing import NamedTuple

import numpy as np

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import Experiment
from show_attend_tell.data.features import Features
from show_attend_tell.data.nouns import nouns_of
from show_attend_tell.data.region import smooth
from show_attend_tell.data.splits import Split, load_splits, open_features
from show_attend_tell.data.vocabulary import UNKNOWN
from show_attend_tell.evaluation.probes import caption_inputs, hide, read_words
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.model_file import replace_settings
from show_attend_tell.runtime.errors import DataError, ShowAttendTellError
from show_attend_tell.runtime.progress import progress_bar

PHOTOS = 400
HIDDEN = 0.1  # share of the locations
_BATCH = 64


class Mention(NamedTuple):
    """A noun of a caption."""

    row: int  # of the photo's features
    words: list[str]  # of the caption
    step: int  # of the noun


def mentions_of(data: Split, model: Captioner) -> list[Mention]:
    """Return the nouns that the model knows, of each photo's first caption."""
    found = []
    for row, captions in zip(data.rows[:PHOTOS], data.captions, strict=False):
        words = captions[0]
        ids = model.vocabulary.encode(words)
        for step, word in enumerate(words):
            if ids[step] != UNKNOWN and nouns_of([word]):
                found.append(Mention(int(row), words, step))
    return found


def falls_by_head(
    model: Captioner, reader: Features, mentions: list[Mention]
) -> np.ndarray:
    """Return the mean fall of log p when a head's places are hidden, (N, H) in nats.

    Raises:
        SystemExit: the decoder has no heads.
    """
    count = max(1, round(HIDDEN * np.prod(model.grid)))
    total = 0.0
    with progress_bar(len(mentions), "noun", "heads") as bar:
        for start in range(0, len(mentions), _BATCH):
            batch = mentions[start : start + _BATCH]
            words = [mention.words for mention in batch]
            steps = [mention.step for mention in batch]
            annotations = reader.read([mention.row for mention in batch])
            annotations = annotations.astype(np.float32)
            heads = model.attention_heads(annotations, caption_inputs(model, words))
            if heads is None:
                sys.exit(f"error: a {model.settings.decoder} has no heads; show none")
            at_nouns = heads[np.arange(len(batch)), :, :, steps]  # (B, N, H, L)
            maps = smooth(at_nouns, model.grid)
            before, _ = read_words(model, annotations, words, steps)  # (B,)
            counts = np.full(len(batch), count)
            falls = np.empty(maps.shape[1:3])  # (N, H)
            for place in np.ndindex(falls.shape):
                changed = hide(annotations, maps[:, *place], counts)
                after, _ = read_words(model, changed, words, steps)
                falls[place] = (before - after).sum()
            total += falls
            bar.update(len(batch))
    return total / len(mentions)


def choose(file: str, experiment: Experiment, work: str) -> dict:
    """Write the head that explains nouns into a model's file; return all falls.

    Raises:
        DataError: the features are of another encoder, or no caption has a noun that
            the model knows.
    """
    model = load_captioner(file)
    with open_features(experiment, work, identity=model.encoder_identity) as reader:
        (data,) = load_splits(experiment, work, ["val"], reader)
        mentions = mentions_of(data, model)
        if not mentions:
            raise DataError(
                f"{file}: no validation caption of {experiment.name} has an English "
                "noun of its vocabulary; name the experiment of its data"
            )
        falls = falls_by_head(model, reader, mentions)
    layer, head = (int(k) + 1 for k in np.unravel_index(falls.argmax(), falls.shape))
    changes = {"alpha_layer": layer, "alpha_head": head}
    replace_settings(file, "transformer", changes)
    return {
        "layer": layer,
        "head": head,
        "nouns": len(mentions),
        "falls": falls.round(4).tolist(),
    }


def main() -> None:
    """Choose the head of a model and print why."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--experiment", "-e", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", default="prepared")
    given = parser.parse_args()
    experiment = load_experiment(given.experiment, given.set)
    print(json.dumps(choose(given.model, experiment, given.work)))


if __name__ == "__main__":
    try:
        main()
    except ShowAttendTellError as error:
        sys.exit(f"error: {error}")
