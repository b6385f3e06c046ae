"""Compare our captioner on JAX with PyTorch, eager and compiled, on a GPU.

Run ``make bench ARGS=gpu`` or ``python -m benchmarks.gpu``. Contenders run in separate
processes, in turn; if they do not fit in memory together each is measured alone, and
failures are noted. All contenders of a row compute in its precision: ``float32`` is
strict, ``tf32`` rounds the factors of products and convolutions to TensorFloat-32, and
``bfloat16`` to bfloat16.
"""

import dataclasses
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from benchmarks import gpu_ours, machine, table, turns
from benchmarks.cost import Cost, training_step, vgg19, writing
from benchmarks.sizes import FULL, TINY, Sizes
from benchmarks.turns import Contender, ContenderError, Times

BATCHES = (256,)
# times the compiled common design's training step
BAR_BATCH = 256
BAR = 3.0
RESULTS = Path(__file__).with_name("gpu.json")
BEAM = 5
WORDS = 20
PRECISIONS = ("float32", "tf32", "bfloat16")
NAMES = ("ours", "eager", "compiled")
_SECONDS = 10
_STEPS = 5
_DECODED = 4  # photos in a burst of the baseline


def _contenders(
    work: str, options: dict, theirs: dict, ours_alone: bool
) -> dict[str, Contender]:
    """Return our contender of one work and PyTorch's, eager and compiled."""
    own = {
        "ours": Contender(getattr(gpu_ours, work), options, gpu_ours.ENVIRONMENT),
    }
    if ours_alone:
        return own
    from benchmarks import gpu_theirs  # PyTorch, in the child too

    common = getattr(gpu_theirs, work)
    return {
        **own,
        "eager": Contender(common, {**options, **theirs, "compiled": False}),
        "compiled": Contender(common, {**options, **theirs, "compiled": True}),
    }


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The times of contenders.

    Attributes:
        times: times of the contenders that did not fail.
        failed: reason of each that did.
        in_turn: whether a round of one is beside a round of the others.
    """

    times: Times
    failed: dict[str, str]
    in_turn: bool


def _measure(contenders: dict[str, Contender], seconds: float) -> _Measured:
    """Measure in turn, or if that fails one after the other."""
    try:
        return _Measured(turns.compare(contenders, seconds), {}, in_turn=True)
    except ContenderError:
        times = Times({}, {})
        failed = {}
    for name, contender in contenders.items():
        try:
            own = turns.compare({name: contender}, seconds)
        except ContenderError as error:
            failed[name] = str(error).splitlines()[-1]
            continue
        times.seconds.update(own.seconds)
        times.facts.update(own.facts)
    return _Measured(times, failed, in_turn=False)


def _ratio(found: _Measured, name: str) -> float | None:
    times = found.times
    if not {"ours", name} <= times.seconds.keys():
        return None
    if found.in_turn:
        return times.ratio(name, "ours")
    return times.median(name) / times.median("ours")


def _row(
    work: str, batch: int, precision: str, found: _Measured, cost: Cost, about
) -> dict:
    """Return the row of one work at one batch; `cost` is that of one unit."""
    times = found.times
    median = {name: times.median(name) for name in times.seconds}
    peaks = {name: facts.get("peak") for name, facts in times.facts.items()}
    rates = about["rates"]
    ours = median.get("ours")
    known = ours and rates  # rates are PyTorch's
    captions = batch if work == "train_step" else 1  # in a unit
    return {
        "work": work,
        "batch": batch,
        "precision": precision,
        "seconds": median,
        "captions_per_second": ours and captions / ours,
        "times_faster_than_eager": _ratio(found, "eager"),
        "times_faster_than_compiled": _ratio(found, "compiled"),
        "share_of_arithmetic": cost.calculating(rates) / ours if known else None,
        "share_of_bandwidth": cost.moving(rates) / ours if known else None,
        "peak_bytes": peaks,
        "failed": found.failed,
        "machine": about,
    }


def _per(cost: Cost, units: int) -> Cost:
    operations = {kind: n / units for kind, n in cost.operations.items()}
    return Cost(operations, cost.bytes / units)


def _plan(sizes: Sizes, side: int, precision: str, ours_alone: bool):
    """Yield work, contenders and the cost of a unit, at one batch and precision."""
    batch = sizes.batch
    common = {"precision": precision}
    steps = {"sizes": sizes, "steps": _STEPS, **common}
    cost = training_step(sizes, precision, precision)
    yield "train_step", _contenders("train_step", steps, {}, ours_alone), cost
    # Our search has no bfloat16, and a row compares equal precisions.
    if precision != "bfloat16":
        yield _search(sizes, precision, ours_alone)
    photos = {"batch": batch, "side": side, **common}
    cost = _per(vgg19(batch, side, precision), batch)
    yield "extract", _contenders("extract", photos, {}, ours_alone), cost


def _search(sizes: Sizes, precision: str, ours_alone: bool):
    """Return the work, the contenders and the cost of a beam search, of a photo."""
    batch = sizes.batch
    options = {"sizes": sizes, "beam": BEAM, "words": WORDS, "precision": precision}
    contenders = _contenders("decode", options, {"photos": _DECODED}, ours_alone)
    cost = writing(sizes, batch, BEAM, WORDS, precision)
    return "decode", contenders, _per(cost, batch)


def _cells(row: dict) -> list[str]:
    def gib(name):
        peak = row["peak_bytes"].get(name)
        return "-" if peak is None else f"{peak / 2**30:.2f}"

    def share(name):
        return "-" if row[name] is None else f"{row[name]:.0%}"

    times = [row["seconds"].get(name) for name in NAMES]
    milliseconds = [table.number(t and t * 1e3) for t in times]
    ratios = ("times_faster_than_eager", "times_faster_than_compiled")
    return [
        *(row["work"], str(row["batch"]), row["precision"], *milliseconds),
        table.number(row["captions_per_second"]),
        *(table.number(row[name]) for name in ratios),
        *(share("share_of_arithmetic"), share("share_of_bandwidth")),
        " ".join(gib(name) for name in NAMES),
    ]


def show(rows: list[dict]) -> str:
    """Return the table, the failures and the verdict on the bar."""
    head = ("work", "batch", "precision", "ours ms", "eager ms", "compiled ms")
    head += (
        "ours per s",
        "x eager",
        "x compiled",
        "arithmetic",
        "bandwidth",
        "peak GiB of each",
    )
    lines = [table.markdown(head, [_cells(row) for row in rows]), ""]
    lines.append("ms: of a training step, else of a photo.")
    for row in rows:
        lines += [
            f"{row['work']}, batch {row['batch']}, {row['precision']}: {name} failed: "
            f"{reason}"
            for name, reason in row["failed"].items()
        ]
        if row["work"] == "train_step" and row["batch"] == BAR_BATCH:
            ratio = row["times_faster_than_compiled"]
            verdict = "unknown" if ratio is None else "yes" if ratio >= BAR else "no"
            lines.append(f"at least {BAR:g}x compiled, {row['precision']}: {verdict}")
    return "\n".join(lines)


def _about(small: bool, ours_alone: bool) -> dict:
    if ours_alone:
        return {**machine.describe(), "gpu": None}
    from benchmarks import gpu_theirs

    side, copied = (64, 2**20) if small else (8192, 2**30)
    about = machine.describe() | turns.run_in_process(gpu_theirs.device)
    rates = turns.run_in_process(gpu_theirs.rates, side=side, copied=copied)
    return {**about, "rates": rates}


def _parse_batches(context, parameter, value: str) -> list[int]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(
            f"must be positive integers such as 64,256. Received: {value!r}"
        )
    return list(map(int, parts))


@click.command(help=__doc__)
@click.option(
    "--batches",
    callback=_parse_batches,
    default=",".join(map(str, BATCHES)),
    show_default=True,
)
@click.option(
    "--small", is_flag=True, help="Tiny sizes, also on a CPU, to check that it runs."
)
@click.option("--ours", "ours_alone", is_flag=True, help="Ours alone, without PyTorch.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS)
def main(batches: list[int], small: bool, ours_alone: bool, output: Path) -> None:
    """Measure all works at all batches in all precisions."""
    needed = ("jax",) if ours_alone else ("torch", "jax")
    missing = [name for name in needed if not find_spec(name)]
    if missing:
        raise click.ClickException(f"needs {', '.join(missing)}; pip install them")
    about = _about(small, ours_alone)
    if about["gpu"] is None and not small and not ours_alone:
        raise click.ClickException(
            "PyTorch finds no GPU; run this on a machine with one, or with --small to "
            "check that it runs"
        )
    if not ours_alone:
        gpu = f"{about['gpu'] or 'no GPU'}"
        click.echo("\n".join([gpu, *machine.lines(about)]))
    rows = []
    side = 32 if small else 224
    chosen = [dataclasses.replace(FULL, batch=n) for n in batches]
    for sizes in [TINY] if small else chosen:
        for precision in PRECISIONS:
            plan = _plan(sizes, side, precision, ours_alone)
            for work, contenders, cost in plan:
                found = _measure(contenders, 0 if small else _SECONDS)
                rows.append(_row(work, sizes.batch, precision, found, cost, about))
                click.echo(" | ".join(_cells(rows[-1])))
                table.write_results(output, rows)  # kept if a later one fails
    click.echo(f"\n{show(rows)}\n\n{output}")
    if any(row["failed"] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
