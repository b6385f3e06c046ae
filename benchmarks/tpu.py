"""Compile our programs for TPUs, on a machine without one, and tabulate their costs.

Run ``make test-tpu``, or ``python -m benchmarks.tpu [WORKS]``. The compiler of
``libtpu`` compiles for the chips of a described slice of TPU v5e; nothing is run. The
command fails if a program does not compile, needs more memory than a chip has, calls
the host, has a shape that is not static, or if training steps do not add gradients
across chips.
"""

import datetime
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import hlo, machine, table
from benchmarks.sizes import FULL, TINY, Sizes

TOPOLOGY = "v5e:2x2"
MEMORY = 16e9  # bytes of a chip, docs.cloud.google.com/tpu/docs/v5e
# 197 TFLOP/s in bfloat16 (same page) are 2 operations a cycle by each cell of four
# units of 128 x 128.
CLOCK = 197e12 / (2 * 4 * 128 * 128)
CHIPS = (1, 4)
DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
MARKERS = ("<!-- tpu: begin -->", "<!-- tpu: end -->")
_ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",  # ask no server which TPU this machine has
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",  # no chip is locked
}
_PHOTOS = 32  # encoded together, data_prep.photo_features.BATCH
_DIGITS = 1000  # more than any batch


@dataclass(frozen=True)
class Program:
    """A program, and the devices' share of a batch.

    Attributes:
        lowered: the ``jax.stages.Lowered``.
        batch: examples of a chip.
        weights: number of trained weights, 0 if the program does not train.
    """

    lowered: Any
    batch: int
    weights: int = 0


@dataclass(frozen=True)
class Row:
    """The compiler's report on one program, for each of its chips.

    Attributes:
        work: name of the program.
        chips: number of chips.
        batch: examples of a chip.
        memory: bytes of arguments, results, temporary arrays and code.
        operations: operations of a run.
        bytes: bytes that the operations read and write.
        seconds: of a run, from the compiler's estimates of cycles.
        added: numbers that a run adds across chips.
        compiling: seconds that the compiler took.
        faults: what the program must not do, and does.
    """

    work: str
    chips: int
    batch: int
    memory: float = 0.0
    operations: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    added: int = 0
    compiling: float = 0.0
    faults: tuple[str, ...] = ()


def _struct(shape: tuple[int, ...], dtype: str) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, dtype)


def _experiment(name: str, sizes: Sizes) -> Any:
    """Return a shipped experiment in bfloat16, with tiny widths if sizes are tiny."""
    from benchmarks import ours
    from show_attend_tell.config.experiments import load_experiment

    if sizes is TINY:
        return ours.experiment(sizes, name, "bfloat16")
    return load_experiment(name, ["training.precision=bfloat16"])


def _trained(experiment: str) -> Callable[..., Program]:
    """Return the function that lowers the training step of a captioner."""

    def lower(devices: list, sizes: Sizes) -> Program:
        from benchmarks import ours
        from show_attend_tell.training.step import captioner_step

        settings = _experiment(experiment, sizes)
        model = ours.captioner(settings, sizes)
        step = captioner_step(model, settings.training)
        B = sizes.batch * len(devices)
        _, L, D, *_, T = sizes.letters
        x = {
            "annotations": _struct((B, L, D), "float16"),
            "tokens": _struct((B, T), "int32"),
        }
        lowered = step.lower(devices, (x, _struct((B, T), "int32")))
        return Program(lowered, sizes.batch, _count(model))

    return lower


def _digits(experiment: str, kind: str) -> Callable[..., Program]:
    """Return the function that lowers the training step of a model of digits."""

    def lower(devices: list, sizes: Sizes) -> Program:
        from show_attend_tell.config.experiments import load_experiment
        from show_attend_tell.siblings.digits.data import Digits
        from show_attend_tell.siblings.digits.draw.training import GenerationTask
        from show_attend_tell.siblings.digits.ram.training import ClassificationTask

        classes = {"ram": ClassificationTask, "draw": GenerationTask}
        chips = len(devices)
        settings = load_experiment(experiment, [])
        share = sizes.batch if sizes is TINY else settings.training.batch_size
        training = replace(settings.training, batch_size=share * chips)
        settings = replace(settings, training=training)
        images = np.zeros((_DIGITS, 28, 28), np.uint8)
        data = Digits(images, np.zeros(_DIGITS, np.uint8))
        task = classes[kind](settings, data, data)
        task.compile(total_steps=1000)
        arrays = task.make_batch(np.arange(share * chips), [0])
        batch = tuple(_struct(x.shape, x.dtype) for x in arrays)
        lowered = task.step.lower(devices, batch)
        return Program(lowered, share, _count(task.model))

    return lower


def _count(model: Any) -> int:
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


def _beam(devices: list, sizes: Sizes) -> Program:
    """Lower the beam search of ``flickr8k_soft`` over a batch of photos."""
    from benchmarks import ours
    from show_attend_tell.config.captioner import static_settings
    from show_attend_tell.models.generator import build_search

    settings = _experiment("flickr8k_soft", sizes)
    model = ours.captioner(settings, sizes)
    request = static_settings(settings.decoding)
    search = build_search(model.generator, request)
    B = sizes.batch * len(devices)
    _, L, D, *_ = sizes.letters
    features = _struct((B, L, D), "float16")
    noise = _struct((B, 2, request.max_words), "float32")

    def write(features, noise):
        return tuple(search(features, noise, np.float32(1)))

    lowered = _lower_reading(model.variables, write, devices, (features, noise))
    return Program(lowered, sizes.batch)


def _vgg19(devices: list, sizes: Sizes) -> Program:
    """Lower the encoder with VGG19 on a batch of photos."""
    from show_attend_tell.config.captioner import EncoderSettings
    from show_attend_tell.models.encoder.network import Encoder

    side = 32 if sizes is TINY else 224
    settings = EncoderSettings(weights="none", image_size=side, precision="bfloat16")
    encoder = Encoder(settings)
    squares = _struct((_PHOTOS * len(devices), side, side, 3), "uint8")
    lowered = _lower_reading(encoder.weights, encoder.annotations, devices, (squares,))
    return Program(lowered, _PHOTOS)


def _lower_reading(
    variables: list, function: Callable, devices: list, arguments: tuple
) -> Any:
    """Lower a function that reads variables, for devices that share its arguments.

    Each device runs the function on its own photos. A compiler that splits the arrays
    of the whole batch would send hypotheses of a search from chip to chip, as the
    search selects them in an array of all photos' hypotheses.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from benchmarks.ours import pure

    mesh = Mesh(np.array(devices), ("batch",))
    split = PartitionSpec("batch")
    shared = jax.shard_map(
        pure(function, variables),
        mesh=mesh,
        in_specs=(PartitionSpec(), *(split for _ in arguments)),
        out_specs=split,
        check_vma=False,  # the search begins from constants
    )
    values = [_struct(variable.shape, variable.dtype) for variable in variables]
    whole = NamedSharding(mesh, PartitionSpec())
    shardings = (whole, *(NamedSharding(mesh, split) for _ in arguments))
    return jax.jit(shared, in_shardings=shardings).lower(values, *arguments)


# (devices, sizes) -> the program; by name, in the order of the table.
WORKS: dict[str, Callable[..., Program]] = {
    "LSTM soft, step": _trained("flickr8k_soft"),
    "LSTM hard, step": _trained("flickr8k_hard"),
    "Transformer, step": _trained("flickr8k_transformer"),
    "LSTM soft, beam search": _beam,
    "VGG19": _vgg19,
    "RAM, step": _digits("ram_mnist", "ram"),
    "DRAW, step": _digits("draw_mnist", "draw"),
}


def _devices() -> list:
    """Return the chips of the described slice.

    Raises:
        click.ClickException: the compiler is absent.
    """
    if find_spec("libtpu") is None:
        raise click.ClickException(
            "the compiler for TPUs is not installed; run make test-tpu, or pip install "
            "'jax[tpu]'"
        )
    from jax.experimental import topologies

    return topologies.get_topology_desc(TOPOLOGY, platform="tpu").devices


def measure(work: str, chips: int, sizes: Sizes) -> Row:
    """Compile a program for chips, and return the compiler's report.

    Args:
        work: one of :data:`WORKS`.
        chips: number of chips, at most those of :data:`TOPOLOGY`.
        sizes: those of the captioner; the batch is that of a chip.
    """
    program = WORKS[work](_devices()[:chips], sizes)
    start = time.monotonic()
    compiled = program.lowered.compile()
    seconds = time.monotonic() - start
    needed = compiled.memory_analysis()
    memory = (
        needed.argument_size_in_bytes
        + needed.output_size_in_bytes
        - needed.alias_size_in_bytes  # results in the place of arguments
        + needed.temp_size_in_bytes
        + needed.generated_code_size_in_bytes
    )
    module = hlo.Module(compiled.as_text())
    cost = module.cost()
    row = Row(
        work=work,
        chips=chips,
        batch=program.batch,
        memory=memory,
        operations=cost.operations,
        bytes=cost.bytes,
        seconds=cost.cycles / CLOCK,
        added=module.added_across_chips(),
        compiling=seconds,
    )
    return replace(row, faults=faults_of(row, module, program.weights))


def faults_of(row: Row, module: hlo.Module, weights: int) -> tuple[str, ...]:
    """Return what is wrong with a program that trains a number of weights, or none."""
    faults = []
    if row.memory > MEMORY:
        faults.append(f"needs {row.memory / 1e9:.1f} GB of the {MEMORY / 1e9:.0f}")
    # Two weights with the same gradient, such as two biases of a sum, need one.
    if weights and row.chips > 1 and row.added < 0.99 * weights:
        faults.append(
            f"adds {row.added} numbers across chips, fewer than its {weights} weights"
        )
    if not weights and module.sends():
        faults.append("sends arrays between chips")
    if module.calls_host():
        faults.append("calls the host")
    if module.has_dynamic_shapes():
        faults.append("has a shape that is not static")
    return tuple(faults)


def show(rows: list[Row]) -> str:
    """Return the table of the rows."""
    head = ("program", "chips", "batch of a chip", "memory", "GFLOP", "GB", "time")
    head += ("added across chips", "faults")
    lines = [
        (
            row.work,
            str(row.chips),
            str(row.batch),
            table.number(row.memory / 2**20, "MiB"),
            table.number(row.operations / 1e9),
            table.number(row.bytes / 1e9),
            table.number(row.seconds * 1e3, "ms"),
            f"{row.added:,}",
            "; ".join(row.faults) or "none",
        )
        for row in rows
    ]
    return table.markdown(head, lines)


def section(rows: list[Row]) -> str:
    """Return the table with its date, for the document."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("jax", "keras"))
    compiler = version("libtpu")
    heading = (
        f"{datetime.date.today()}, revision {machine.describe()['revision']}, "
        f"{packages}, libtpu {compiler}."
    )
    return f"{heading}\n\n{show(rows)}"


def write_section(text: str, document: Path = DOCUMENT) -> None:
    """Replace the text between the markers of a document."""
    from show_attend_tell.runtime.files import atomic_write

    before, begin, rest = document.read_text(encoding="utf-8").partition(MARKERS[0])
    _, end, after = rest.partition(MARKERS[1])
    atomic_write(document, f"{before}{begin}\n{text}\n{end}{after}")


@click.command(help=__doc__)
@click.argument("works", nargs=-1, type=click.Choice(list(WORKS)))
@click.option("--small", is_flag=True, help="Tiny sizes, to check that all compile.")
@click.option("--document", is_flag=True, help="Write the table to docs/scale.md.")
def main(works: tuple[str, ...], small: bool, document: bool) -> None:
    """Compile the named works, by default all, for one chip and for four."""
    if document and (works or small):
        raise click.UsageError(
            "--document needs all works at full sizes; leave out WORKS and --small"
        )
    os.environ.update(_ENVIRONMENT)
    from show_attend_tell.runtime.keras_startup import start_keras

    start_keras()
    _devices()  # an absent compiler is named before the first model is built
    rows = []
    for work in works or WORKS:
        for chips in CHIPS:
            row = measure(work, chips, TINY if small else FULL)
            rows.append(row)
            click.echo(f"{work}, {chips} chips: compiled in {row.compiling:.0f} s")
    click.echo(f"\n{show(rows)}")
    if document:
        write_section(section(rows))
    if any(row.faults for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
