"""Train the common PyTorch design on prepared data, and score it as time passes.

TensorFlow is not imported: one process cannot hold both.
"""

import time

import numpy as np

from show_attend_tell.data.vocabulary import END, PAD, START

BEAM = 5
WORDS = 20
BATCH = 64


def curve(
    experiment: str, limit: int | None, work: str, split: str, times: list[float]
) -> dict:
    """Train; score the captions of a split after each of some times.

    Args:
        experiment: experiment of the prepared data.
        limit: number of photos of each split; None for all.
        work: folder of the prepared data.
        split: split whose captions are scored.
        times: seconds of training, rising; generating and scoring are not counted.

    Returns:
        ``curve``, pairs of the seconds of training and the scores in percent.
    """
    from show_attend_tell.config.experiments import limit_experiment, load_experiment
    from show_attend_tell.data.splits import folder_of, load_splits, open_features
    from show_attend_tell.data.vocabulary import Vocabulary

    settings = load_experiment(experiment)
    if limit:
        settings = limit_experiment(settings, limit)
    words = Vocabulary.load(folder_of(settings, work) / "vocabulary.json")
    with open_features(settings, work) as reader:
        training, scored = load_splits(settings, work, ["train", split], reader)
        features = {
            data.name: reader.read(data.rows).astype(np.float32)
            for data in (training, scored)
        }
    captions = [
        (photo, words.encode(caption))
        for photo, several in enumerate(training.captions)
        for caption in several
    ]
    trained = _train(features["train"], captions, features[split], words, times)
    return {
        "curve": [
            (seconds, _scores(scored.photos, texts)) for seconds, texts in trained
        ]
    }


def _train(annotations, captions, unseen, words, times):
    """Yield the seconds of training and a caption for each unseen photo."""
    import torch

    from benchmarks import torch_design, turns
    from benchmarks.sizes import Sizes

    torch.set_num_threads(turns.cores())
    torch.manual_seed(1)
    _, L, D = annotations.shape
    sizes = Sizes(locations=L, annotation_width=D, vocabulary=len(words.words))
    model = torch_design.CommonDesign(sizes)
    optimizer = torch_design.make_optimizer(model)
    annotations, unseen = map(torch.from_numpy, (annotations, unseen))
    batches = _batches(captions)
    taken = 0.0
    for end in times:
        model.train()
        while taken < end:
            start = time.perf_counter()
            photos, inputs, targets, lengths = next(batches)
            torch_design.train_step(
                *(model, optimizer, annotations[photos]),
                *(torch.from_numpy(inputs), torch.from_numpy(targets), lengths),
            )
            taken += time.perf_counter() - start
        model.eval()
        found = [
            torch_design.beam_search(model, photo[None], BEAM, WORDS)[0]
            for photo in unseen
        ]
        yield taken, [" ".join(words.decode(ids)) for ids in found]


def _batches(captions):
    """Yield batches without end: photos, inputs, targets, descending lengths."""
    rng = np.random.default_rng(1)
    size = min(BATCH, len(captions))
    while True:
        order = rng.permutation(len(captions))
        for first in range(0, len(order) - size + 1, size):
            chosen = [captions[k] for k in order[first : first + size]]
            chosen.sort(key=lambda pair: -len(pair[1]))
            lengths = [len(ids) + 1 for _, ids in chosen]
            inputs = np.full((size, lengths[0]), PAD, np.int64)
            targets = inputs.copy()
            for row, (_, ids) in enumerate(chosen):
                inputs[row, : len(ids) + 1] = [START, *ids]
                targets[row, : len(ids) + 1] = [*ids, END]
            yield [photo for photo, _ in chosen], inputs, targets, lengths


def _scores(photos, texts) -> dict[str, float]:
    """Score captions as ``eval`` does."""
    from show_attend_tell.evaluation.metrics.scoring import score

    captions = {photo.id: text for photo, text in zip(photos, texts, strict=True)}
    references = {photo.id: photo.captions for photo in photos}
    return dict(score(captions, references).scores)
