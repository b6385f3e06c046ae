"""Build our captioner as training does, on any Keras backend.

Import it in the process of a contender, after
:func:`show_attend_tell.runtime.tensorflow_startup.start_tensorflow`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from benchmarks import synthetic
from benchmarks.sizes import Sizes
from show_attend_tell.config import experiments
from show_attend_tell.config.settings import Experiment
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.training.optimizer import make_optimizer

_STEPS = 5000  # length of the learning rate's schedule
_DEVIATION = 0.7  # approximate deviation of synthetic features


def experiment(
    sizes: Sizes, name: str = "flickr8k_soft", precision: str = "float32"
) -> Experiment:
    """Return a shipped experiment with the widths and the batch of `sizes`."""
    changes = {"training.batch_size": sizes.batch, "training.precision": precision}
    if experiments.load_experiment(name).model.decoder == "transformer":
        changes["transformer.width"] = sizes.lstm_width
    else:
        changes |= {
            "model.embedding_width": sizes.embedding_width,
            "model.lstm_width": sizes.lstm_width,
            "model.attention_width": sizes.attention_width,
        }
    return experiments.load_experiment(
        name, [f"{key}={value}" for key, value in changes.items()]
    )


def captioner(settings: Experiment, sizes: Sizes) -> Captioner:
    """Return the trainer's model, compiled, with random weights."""
    training = settings.training
    model = Captioner(
        synthetic.words(sizes.vocabulary),
        settings.model,
        annotation_width=sizes.annotation_width,
        grid=sizes.grid,
        label_smoothing=training.label_smoothing,
        doubly_stochastic=training.doubly_stochastic,
        decoding=dataclasses.asdict(settings.decoding),
        hard=settings.hard,
        transformer=settings.transformer,
        seed=training.seed,
    )
    if settings.model.scale_annotations:
        model.set_annotation_scale(_DEVIATION)
    optimizer = make_optimizer(training, _STEPS)
    model.compile(optimizer=optimizer, jit_compile=training.jit_compile)
    optimizer.build(model.trainable_variables)
    return model


def pure(function: Callable[..., Any], variables: list) -> Callable[..., Any]:
    """Return a function that JAX compiles for any values of variables.

    Args:
        function: reads the variables.
        variables: the variables.

    Returns:
        A function of the variables' values and of the function's own arguments.
    """

    def call(values: list, *arguments: Any) -> Any:
        pairs = zip(variables, values, strict=True)
        with keras.StatelessScope(list(pairs)):
            return function(*arguments)

    return call
