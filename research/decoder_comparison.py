r"""Compare where captioners look while they read the same captions.

    python research/decoder_comparison.py flickr8k_soft LSTM=flickr8k_soft \
        Transformer=flickr8k_transformer [--work prepared] [--runs experiments/runs]
    python research/decoder_comparison.py scenes LSTM=scenes \
        Transformer=scenes_transformer \
        --split test --photo scene-test-00004 --figure docs/images/scene-4-decoders.jpg

Every model reads the first caption of each photo of the split. Printed is a table
in Markdown: for each model the mean number of locations in use, exp(H[alpha_t]), at
all words and at the most frequent ones; and for each pair the mean attention in
common, sum_i min(alpha_ti, alpha'_ti). A figure shows alpha at one photo.
"""

import argparse
import collections
import io
import itertools
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.config.experiments import caption_experiment
from show_attend_tell.config.runs import find_model
from show_attend_tell.data.preprocessing import load_photo, to_view
from show_attend_tell.data.splits import folder_of, load_splits, open_features
from show_attend_tell.data.vocabulary import PAD, START
from show_attend_tell.evaluation.validation import attention_entropy
from show_attend_tell.inference.visualization.attention_figure import (
    figure_to_array,
    maps_figure,
)
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import EvaluationError, ShowAttendTellError
from show_attend_tell.runtime.files import atomic_write

_BATCH = 50  # photos read together
_WORDS = 12  # the most frequent words, each a column
_DPI = 130
_VIEW = 448


def read_captions(models, reader, data, captions):
    """Return alpha (T, L) of each caption, for each model.

    Args:
        models: captioners of one vocabulary.
        reader: reader of their features.
        data: the split.
        captions: the words of one caption of each photo.
    """
    found = [[] for _ in models]
    for start in range(0, len(captions), _BATCH):
        part = captions[start : start + _BATCH]
        features = reader.read(data.rows[start : start + _BATCH])
        tokens = np.full((len(part), max(map(len, part)) + 1), PAD, np.int32)
        for row, words in zip(tokens, part, strict=True):
            row[: len(words) + 1] = [START, *models[0].vocabulary.encode(words)]
        for model, alphas in zip(models, found, strict=True):
            outputs = model({"annotations": features, "tokens": tokens[:, :-1]})
            alpha = np.asarray(outputs["alpha"])  # (B, T, L)
            alphas += [a[: len(words)] for a, words in zip(alpha, part, strict=True)]
    return found


def table(labels, captions, alphas):
    """Return the lines of the table in Markdown."""
    words = list(itertools.chain(*captions))
    joined = [np.concatenate(each) for each in alphas]  # (words, L) of each model
    L = joined[0].shape[1]
    used = [np.exp(attention_entropy(alpha) * np.log(L)) for alpha in joined]
    common = [word for word, _ in collections.Counter(words).most_common(_WORDS)]
    lines = [
        "| | all words | " + " | ".join(common) + " |",
        "|---" * (len(common) + 2) + "|",
    ]

    def add(label, values, digits):
        chosen = [values[np.equal(words, word)].mean() for word in common]
        cells = [f"{value:.{digits}f}" for value in (values.mean(), *chosen)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")

    for label, values in zip(labels, used, strict=True):
        add(f"{label}, locations of {L}", values, 0)
    for one, other in itertools.combinations(range(len(labels)), 2):
        shared = np.minimum(joined[one], joined[other]).sum(axis=1)
        add(f"{labels[one]} and {labels[other]}, in common", shared, 2)
    return lines


def draw(path, photo, labels, models, words, alphas, encoder):
    """Draw the models' alpha at one photo, a row for each."""
    rows = [
        (label, alpha.reshape(-1, *model.grid))
        for label, model, alpha in zip(labels, models, alphas, strict=True)
    ]
    image = load_photo(photo)
    view = to_view(image, encoder.image_size, encoder.resize, _VIEW)
    picture = Image.fromarray(figure_to_array(maps_figure(view, words, rows), _DPI))
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, format="JPEG", quality=85)
    atomic_write(path, buffer.getvalue())


def _label_and_model(text: str) -> tuple[str, str]:
    """Return the parts of LABEL=MODEL."""
    label, equals, model = text.partition("=")
    if not (label and equals and model):
        raise argparse.ArgumentTypeError(f"must be LABEL=MODEL. Received: {text!r}")
    return label, model


def main() -> None:
    """Print the table, and draw the figure if one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", help="the experiment of the prepared data")
    parser.add_argument(
        "models",
        nargs="+",
        type=_label_and_model,
        help="LABEL=MODEL, a run's name or a .safetensors file",
    )
    parser.add_argument("--work", type=Path, default=Path("prepared"))
    parser.add_argument("--runs", type=Path, default=Path("experiments/runs"))
    parser.add_argument("--split", default="val")
    parser.add_argument("--photo", help="id of the photo in the figure")
    parser.add_argument("--figure", type=Path, help="the JPEG file of the figure")
    given = parser.parse_args()
    labels = [label for label, _ in given.models]
    files = [find_model(name, given.runs) for _, name in given.models]
    models = [load_captioner(file) for file in files]
    # Only of one vocabulary and one encoder do the models read the same captions.
    identity = Generator(models, names=files).encoder_identity
    experiment = caption_experiment(given.experiment)
    with open_features(experiment, given.work, identity=identity) as reader:
        (data,) = load_splits(experiment, given.work, [given.split], reader)
        ids = [photo.id for photo in data.photos]
        if given.photo is not None and given.photo not in ids:
            raise EvaluationError(
                f"`photo` must be the id of a photo of {given.split} with features. "
                f"Received: {given.photo}"
            )
        captions = [each[0] for each in data.captions]
        alphas = read_captions(models, reader, data, captions)
    print("\n".join(table(labels, captions, alphas)))
    if given.figure:
        k = ids.index(given.photo) if given.photo else 0
        photo = folder_of(experiment, given.work) / data.photos[k].path
        chosen = [each[k] for each in alphas]
        encoder = experiment.encoder
        draw(given.figure, photo, labels, models, captions[k], chosen, encoder)


if __name__ == "__main__":
    try:
        main()
    except (ShowAttendTellError, OSError) as error:
        sys.exit(f"error: {error}")
