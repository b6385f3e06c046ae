"""Train tiny captioners from given weights and draws, to compare two backends.

    python tests/support/backend_updates.py OUT.npz

writes the losses and the weights after :data:`UPDATES` updates of each of
:data:`CASES`, and the captions of :data:`PHOTOS` photos. Weights, batches and the
locations that hard attention samples come from NumPy.
"""

import sys

import numpy as np

UPDATES, PHOTOS = 20, 200
CASES = ("lstm", "transformer", "hard", "reward", "distil")
LENGTHS = (2, 1, 3, 4)  # words of the captions of a batch
_SAMPLES = 2


def losses_and_model(case):
    """Return the losses of the updates, and the model after them."""
    import tiny_captioner as tiny
    from tiny_run import experiment

    from show_attend_tell.training.optimizer import make_optimizer
    from show_attend_tell.training.step import captioner_step, to_device

    model, loss_of = _model(case)
    training = {"average_decay": 0.9, "learning_rate": 0.01, "clip_norm": 1.0}
    settings = experiment(training={**training, "jit_compile": True}).training
    model.compile(optimizer=make_optimizer(settings, 100))
    model.optimizer.build(model.trainable_variables)
    step = captioner_step(model, settings, loss_of=loss_of)
    rng = np.random.default_rng(2)
    losses = []
    for number in range(UPDATES):
        steps = 4 + 2 * (number % 2)
        features, tokens, targets = tiny.batch(rng, LENGTHS, steps)
        x = {"annotations": features, "tokens": tokens}
        batch = [x, targets]
        if case == "hard":  # the draws are inputs
            rows = len(LENGTHS) * _SAMPLES
            x["u"] = rng.random((rows, steps), np.float32)
            x["sampled"] = rng.integers(0, 2, rows).astype(np.float32)
        if case == "reward":
            batch.append(rng.standard_normal(len(LENGTHS)).astype(np.float32))
        values = step(*to_device(tuple(batch)))
        losses.append(float(values["loss"]))
    return losses, model


def _model(case):
    """Return a model of random weights, and the function of its loss."""
    import hard_model
    import tiny_captioner as tiny
    import tiny_transformer

    from show_attend_tell.config.settings import DistillationSettings
    from show_attend_tell.training.distillation import loss_of_batch

    rng = np.random.default_rng(1)
    if case == "transformer":
        return tiny_transformer.build(rng, 0.3), None
    if case == "distil":
        teachers = [tiny.build(np.random.default_rng(k), spread=1.0) for k in (5, 6)]
        settings = DistillationSettings(("a", "b"), 1.7, 0.3, 1.0, 0.5)
        model = tiny.build(rng, spread=0.3)
        return model, loss_of_batch(model, teachers, settings)
    if case != "hard":
        return tiny.build(rng, spread=0.3), None
    hard = {"samples": _SAMPLES, "drawn_per": "caption", "reinforce_weight": 0.5}
    model = hard_model.build(rng, hard, spread=0.3)

    def loss_of(x, targets):
        noise = x["u"], x["sampled"]
        words = x["annotations"], x["tokens"]
        outputs = hard_model.outputs_of(model, *words, noise, _SAMPLES, True)
        return model.compute_loss(x, targets, outputs, training=True)

    return model, loss_of


def measure(cases):
    """Return the arrays of cases by their names."""
    import tiny_captioner as tiny

    arrays = {}
    photos = tiny.photos(np.random.default_rng(3), PHOTOS)
    for case in cases:
        losses, model = losses_and_model(case)
        arrays[f"{case} losses"] = np.array(losses)
        for number, weight in enumerate(model.weights):
            arrays[f"{case} weight {number}"] = np.asarray(weight)
        written = tiny.write(model, photos, beam=3, batch_size=50)
        arrays[f"{case} captions"] = written.tokens
    return arrays


if __name__ == "__main__":
    from show_attend_tell.runtime.keras_startup import start_keras

    start_keras()
    np.savez(sys.argv[1], **measure(sys.argv[2:] or CASES))
