"""Train tiny models of digits and words, to compare two backends.

    python tests/siblings/support/sibling_updates.py OUT.npz

writes the losses of :data:`UPDATES` updates of each of :data:`CASES`, and the weights
after them. Initial weights, batches and noise come from NumPy.
"""

import sys

import numpy as np

UPDATES = 20
CASES = ("ram", "draw", "words")
ROWS = 8  # of a batch


def measure(case):
    """Return the losses of the updates of a case, and the weights after them."""
    from tiny_siblings import SIBLINGS

    from show_attend_tell.siblings.common.layers import named_weights
    from show_attend_tell.training.optimizer import make_optimizer
    from show_attend_tell.training.step import to_device

    settings = SIBLINGS[case].experiment(training={"learning_rate": 0.01}).training
    model, step_of, batch_of = _CASES[case]()
    model.compile(optimizer=make_optimizer(settings, UPDATES))
    model.optimizer.build(model.trainable_variables)
    step = step_of(settings)
    rng = np.random.default_rng(4)
    losses = [
        float(step(*to_device(batch_of(rng, number)))["loss"])
        for number in range(UPDATES)
    ]
    weights = {name: np.asarray(w) for name, w in named_weights(model).items()}
    return {f"{case} losses": np.array(losses)} | {
        f"{case} {name}": values for name, values in weights.items()
    }


def _ram():
    import tiny_ram
    from keras import ops

    from show_attend_tell.siblings.digits.ram.model import PlaceNoise
    from show_attend_tell.training.step import model_step

    model = tiny_ram.build(np.random.default_rng(1), samples=1)

    def values_of(images, labels, *noise):
        outputs = model.look(images, PlaceNoise(*noise))
        return model.losses_of(labels, outputs)

    def batch_of(rng, number):
        images, labels, noise = tiny_ram.batch(rng, ROWS)
        return tuple(map(ops.convert_to_numpy, (images, labels, *noise)))

    return model, lambda settings: model_step(model, values_of, False), batch_of


def _draw():
    import tiny_draw

    from show_attend_tell.training.step import model_step

    model = tiny_draw.build(np.random.default_rng(1))

    def values_of(images, noise):
        return model.losses_of(model.draw(images, noise))

    def batch_of(rng, number):
        return tiny_draw.batch(rng, model, ROWS)

    return model, lambda settings: model_step(model, values_of, False), batch_of


def _words():
    import tiny_reader
    from random_weights import randomised

    from show_attend_tell.siblings.words.augmentation import draw_changes
    from show_attend_tell.siblings.words.data import encode_words
    from show_attend_tell.siblings.words.model import Reader
    from show_attend_tell.siblings.words.step import reading_step
    from show_attend_tell.siblings.words.training import Batch, split_targets

    model = Reader(tiny_reader.settings_of({}))
    randomised(model, np.random.default_rng(1), 0.3)

    def batch_of(rng, number):
        longest = 6 if number % 2 else 20  # characters
        crops, words = tiny_reader.drawn_words(ROWS, longest, number)
        order = sorted(range(ROWS), key=lambda row: len(words[row]))
        targets = encode_words([words[row] for row in order])
        changes = draw_changes(rng, ROWS)
        return Batch(crops[order], split_targets(targets), changes)

    return model, lambda settings: reading_step(model, settings), batch_of


_CASES = {"ram": _ram, "draw": _draw, "words": _words}


if __name__ == "__main__":
    from show_attend_tell.runtime.keras_startup import start_keras

    start_keras()
    arrays = {}
    for case in sys.argv[2:] or CASES:
        arrays |= measure(case)
    np.savez(sys.argv[1], **arrays)
