"""Train rows of digits and words on a GPU, by Keras' JAX backend, all seeds together.

    KERAS_BACKEND=jax python research/jax_training.py ROW --seeds 1,2 --set KEY=VALUE

The models, losses, gradients and optimisers are those of ``train``, and the prepared
data are the same. What differs: the seeds of a row are trained side by side by
``jax.vmap``; an epoch is one compiled function, which also makes the pictures and draws
the order of the examples, with random numbers of JAX in place of NumPy's; and the model
after the last update is kept, because nothing is validated in between. The runs
``<row>-seed-<n>`` have a model and no checkpoint. ``make reproduce ROWS=ROW`` measures
them.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import keras
import numpy as np
from jax import numpy as jnp
from reproduction import RUNS, TRAINED, WORK, changes_of, read_table

from show_attend_tell.config import runs
from show_attend_tell.config.experiments import (
    load_experiment,
    rename,
    seed_variants,
)
from show_attend_tell.runtime.errors import (
    ConfigError,
    ShowAttendTellError,
    TrainingError,
)
from show_attend_tell.runtime.machine import git_revision
from show_attend_tell.siblings.digits.data import DIGIT, PIECE, binarise_fixed
from show_attend_tell.siblings.digits.data import read_split as read_digits
from show_attend_tell.siblings.digits.draw.models import GENERATORS
from show_attend_tell.siblings.digits.ram.models import CLASSIFIERS
from show_attend_tell.siblings.words.augmentation import (
    Changes,
    change_crops,
    draw_amounts,
    normalised,
)
from show_attend_tell.siblings.words.data import PAD, encode_words
from show_attend_tell.siblings.words.data import read_split as read_words
from show_attend_tell.siblings.words.model import shifted, word_losses
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.training.optimizer import make_optimizer

_WHITE = 255
_SHOWN = ("loss", "error", "word_loss")
# batches of the statistics, and crops of a batch
_ESTIMATING = 40
_ESTIMATED = 128


class Task(NamedTuple):
    """What is trained: N examples and their loss.

    Attributes:
        data: arrays, (N, ...) each.
        examples: function of a key and the data that returns an epoch's arrays,
            (N, ...) each.
        values_of: function of a model, a batch of these arrays, the batch of the
            drawn arrays and a key, which returns ``loss`` and other scalars.
        drawn: function of an epoch's generator that returns further arrays, (N, ...).
        finish: function of a model whose weights are those to be saved.
    """

    data: tuple
    examples: Callable
    values_of: Callable
    drawn: Callable = lambda _: ()
    finish: Callable = lambda _: None

    @property
    def count(self) -> int:
        """N."""
        return len(self.data[0])


def make_pictures(key, images, settings):
    """Return :func:`digits.data.make_pictures` of all digits, (N, H, H) uint8."""
    N = len(images)
    H = settings.canvas
    if H == DIGIT and not settings.clutter:
        return images
    place, *clutter = jax.random.split(key, 1 + settings.clutter)
    sums = jnp.zeros((N, H, H), "int32")
    for each in clutter:
        which, cut, put = jax.random.split(each, 3)
        source = jax.random.randint(which, (N, 1, 1), 0, N)
        start = jax.random.randint(cut, (N, 2), 0, DIGIT - PIECE + 1)
        pieces = images[source, *_windows(start, PIECE)]  # (N, 8, 8)
        sums = _add(sums, pieces, put)
    return jnp.minimum(_add(sums, images, place), _WHITE).astype("uint8")


def _windows(start, side: int) -> tuple:
    """Return the rows (N, side, 1) and columns (N, 1, side) of windows at (N, 2)."""
    rows, columns = (start[:, k, None] + jnp.arange(side) for k in range(2))
    return rows[:, :, None], columns[:, None, :]


def _add(sums, pieces, key):
    """Add pieces (N, side, side) to pictures (N, H, H) at random places."""
    N, H, _ = sums.shape
    side = pieces.shape[1]
    start = jax.random.randint(key, (N, 2), 0, H - side + 1)
    number = jnp.arange(N)[:, None, None]
    return sums.at[number, *_windows(start, side)].add(pieces.astype("int32"))


def classification(experiment, digits) -> Task:
    """Return the training of a classifier of digits."""

    def values_of(model, batch, drawn, key):
        pictures, labels = batch
        outputs = model(pictures.astype("float32") / _WHITE, training=True)
        return model.losses_of(labels, outputs)

    def examples(key, data):
        images, labels = data
        return make_pictures(key, images, experiment.data), labels

    return Task(tuple(digits), examples, values_of)


def generation(experiment, digits) -> Task:
    """Return the training of a model that generates digits."""
    dynamic = experiment.data.binarise == "dynamic"
    digits = digits if dynamic else binarise_fixed(digits, "train")

    def examples(key, data):
        places, pixels = jax.random.split(key)
        pictures = make_pictures(places, *data, experiment.data)
        if dynamic:
            noise = jax.random.uniform(pixels, pictures.shape)
            pictures = jnp.where(noise * _WHITE < pictures, _WHITE, 0).astype("uint8")
        return (pictures,)

    def values_of(model, batch, drawn, key):
        pictures = batch[0].astype("float32") / _WHITE
        return model.losses_of(model.draw(pictures, model.sample_noise(len(pictures))))

    return Task((digits.images,), examples, values_of)


def reading(experiment, words) -> Task:
    """Return the training of a reader of words."""
    images = words.images
    settings = experiment.training
    targets = encode_words(words.words)  # (N, 24)
    longest = int((targets != PAD).sum(axis=1).max())

    def drawn(rng):
        return draw_amounts(rng, len(images)) if settings.augment else ()

    def values_of(model, batch, drawn, key):
        crops, targets = batch
        if drawn:
            transform, gamma, deviation = drawn
            noise = deviation * jax.random.normal(key, crops.shape)
            crops = change_crops(crops, Changes(transform, gamma, noise))
        annotations = model.encoder(
            normalised(crops)[..., None], training=True, precision=settings.precision
        )
        logits = model.teacher_force(shifted(targets), annotations)["logits"]
        losses = word_losses(logits, targets, settings.label_smoothing)
        entropy = word_losses(logits, targets).mean()
        return {"loss": losses.mean(), "word_loss": entropy}

    def finish(model):
        # The averaged weights have other statistics than the last ones.
        for k in range(min(_ESTIMATING, -(-len(images) // _ESTIMATED))):
            crops = jnp.asarray(images[k * _ESTIMATED : (k + 1) * _ESTIMATED])
            x = normalised(crops)[..., None]
            model.encoder(x, training=True, momentum=k / (k + 1))

    data = images, targets[:, :longest]
    return Task(data, lambda _, data: data, values_of, drawn, finish)


TASKS = {"classify": classification, "generate": generation, "read": reading}
MODELS = {models.task: models for models in (CLASSIFIERS, GENERATORS, READERS)}
READ_SPLIT = {
    "classify": read_digits,
    "generate": read_digits,
    "read": read_words,
}


def update_of(model: keras.Model, task: Task) -> Callable:
    """Return an update, a pure function of a state and the inputs of a batch."""
    rest = model.non_trainable_variables
    optimizer = model.optimizer

    def update(state, inputs):
        weights, others, optimizing = state

        def loss(weights):
            variables = [*model.trainable_variables, *rest]
            pairs = zip(variables, [*weights, *others], strict=True)
            with keras.StatelessScope(state_mapping=list(pairs)) as scope:
                values = task.values_of(model, *inputs)
                changed = [scope.get_current_value(variable) for variable in rest]
            return values["loss"], (values, changed)

        gradients, (values, others) = jax.grad(loss, has_aux=True)(weights)
        weights, optimizing = optimizer.stateless_apply(optimizing, gradients, weights)
        return (weights, others, optimizing), values

    return update


def epoch_of(model: keras.Model, task: Task, batch: int) -> Callable:
    """Return an epoch, a function of the data and the seeds' states, keys and draws."""
    update = update_of(model, task)
    steps = task.count // batch

    def epoch(data, state, key, drawn):
        made, order, noise = jax.random.split(key, 3)
        examples = task.examples(made, data)
        rows = jax.random.permutation(order, task.count)[: steps * batch]

        def advance(state, inputs):
            rows, key = inputs
            taken, more = ([x[rows] for x in xs] for xs in (examples, drawn))
            return update(state, (taken, more, key))

        keys = jax.random.split(noise, steps)
        state, values = jax.lax.scan(advance, state, (rows.reshape(steps, batch), keys))
        return state, jax.tree.map(jnp.mean, values)

    return jax.jit(jax.vmap(epoch, (None, 0, 0, 0)), donate_argnums=1)


def train(experiments: list) -> list[keras.Model]:
    """Train an experiment with several seeds; return the models to save."""
    first = experiments[0]
    settings = experiments[0].training
    if getattr(settings, "init_from", ""):
        raise ConfigError(
            "`training.init_from` must be empty here. Received: "
            f"{settings.init_from!r}; train {first.name} by `train`"
        )
    task = TASKS[first.task](first, READ_SPLIT[first.task](first, WORK, "train"))
    batch = min(settings.batch_size, task.count)
    models = [MODELS[first.task].build(experiment) for experiment in experiments]
    states = []
    for model in models:
        optimizer = make_optimizer(settings, settings.epochs * (task.count // batch))
        model.compile(optimizer=optimizer)
        optimizer.build(model.trainable_variables)
        groups = _groups(model)
        states.append(tuple([variable.value for variable in x] for x in groups))
    # By way of NumPy: a weak type would change in the first epoch, which is compiled.
    state = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *states)
    epoch = epoch_of(models[0], task, batch)
    data = jax.device_put(task.data)
    seeds = [experiment.training.seed for experiment in experiments]
    started = time.monotonic()
    for number in range(settings.epochs):
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)  # noqa: B023
        drawn = [task.drawn(np.random.default_rng([s, number])) for s in seeds]
        drawn = jax.tree.map(lambda *x: np.stack(x), *drawn)
        state, values = epoch(data, state, keys, drawn)
        last = number + 1 == settings.epochs
        if number < 2 or last or (number + 1) % max(1, settings.epochs // 20) == 0:
            if not np.isfinite(values["loss"]).all():
                raise TrainingError(
                    f"{first.name}: training has diverged by epoch {number + 1}; train "
                    f"with a training.learning_rate below {settings.learning_rate:g}"
                )
            shown = {
                k: values[k] for k in ("loss", "error", "word_loss") if k in values
            }
            text = " ".join(f"{k} {np.round(x, 3)}" for k, x in shown.items())
            seconds = time.monotonic() - started
            print(f"epoch {number + 1}, {seconds:.1f} s: {text}", flush=True)
    kept = [_kept(model, state, k) for k, model in enumerate(models)]
    for model in kept:
        task.finish(model)
    return kept


def _groups(model: keras.Model) -> tuple:
    others = model.non_trainable_variables
    optimizer = model.optimizer.variables
    return model.trainable_variables, others, optimizer


def _kept(model: keras.Model, state, number: int) -> keras.Model:
    """Return a copy with the weights of a seed, averaged if the settings require it."""
    for variables, values in zip(_groups(model), state, strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value[number])
    copy = type(model).from_config(model.get_config())
    for variable, original in zip(copy.weights, model.weights, strict=True):
        variable.assign(original)
    model.optimizer.finalize_variable_values(copy.trainable_variables)
    return copy


def main() -> None:
    """Train the seeds of a row and write their runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = read_table()[1]
    parser.add_argument("row", metavar="ROW", choices=rows)
    parser.add_argument("--seeds", type=_numbers, help="1,2, not all of the row")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--overwrite", action="store_true", help="replace earlier runs")
    given = parser.parse_args()
    if keras.backend.backend() != "jax":
        parser.error("Keras must use JAX; set KERAS_BACKEND=jax")
    row = rows[given.row]
    started = time.monotonic()
    changes = [*changes_of(given.row, rows), *given.set]
    experiment = load_experiment(row.get("experiment", ""), changes)
    if experiment.task not in TASKS or "of" in row:
        parser.error(f"{given.row}: choose a row that trains on digits or words")
    seeds = given.seeds or row["seeds"]
    experiments = seed_variants(rename(experiment, given.row), seeds)
    folders = [runs.open_run(x, RUNS, False, given.overwrite) for x in experiments]
    models = train(experiments)
    about = {
        "command": shlex.join(["python", "research/jax_training.py", *sys.argv[1:]]),
        "revision": git_revision(),
        "machine": f"{jax.devices()[0].device_kind}, JAX {jax.__version__}",
        "seconds": round(time.monotonic() - started),
        "seeds": seeds,
    }
    for folder, model in zip(folders, models, strict=True):
        model.save(folder / runs.MODEL)
        (folder / TRAINED).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        print(folder)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    try:
        main()
    except ShowAttendTellError as error:
        sys.exit(str(error))
