"""Copies of all artefacts, and ways to damage them."""

import io
import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import command_line
import h5py
import mutations
import numpy as np
from tally import Tally
from tensor_files import joined, pack, split, unpacked

SECONDS = 300  # a case that takes longer hangs, also on a busy machine
_ODD_ATTRIBUTES = (
    *(1.5, -1, 2**62, np.nan, np.zeros(3), b"a", mutations.LONG_INTEGER),
    *("", "null", "[1]", "[" * 10**5, "{}", '{"grid": [0, 0], "width": -1}'),
)
_TEXTS = itertools.cycle(mutations.hostile_texts())
Damage = Callable[[bytes, random.Random], tuple[str, bytes]]


def line_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Change a value of one line of JSON Lines."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines) - 1)
    what, lines[at] = mutations.json_changed(lines[at], rng)
    return f"line {at}: {what}", b"\n".join(lines)


def cell_damage(
    content: bytes, rng: random.Random, odd_values: Sequence[str] = mutations.ODD_VALUES
) -> tuple[str, bytes]:
    """Replace a cell of a table of comma-separated values."""
    lines, odd = content.split(b"\n"), rng.choice(odd_values)
    at = rng.randrange(len(lines) - 1)
    cells = lines[at].split(b",")
    column = rng.randrange(len(cells))
    cells[column] = odd.encode("utf-8", "surrogatepass")
    lines[at] = b",".join(cells)
    return f"line {at}, column {column} = {odd[:40]!r}", b"\n".join(lines)


def text_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a hostile text in place of the file."""
    return next(_TEXTS)


def config_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Edit the JSON or an array of a model file, whose checksums stay right."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        about, arrays = unpacked(path)
        if rng.random() < 0.3:
            what, arrays = _array_changed(arrays, rng)
            pack(path, about, arrays)
            return what, path.read_bytes()
        what, text = mutations.json_changed(json.dumps(about).encode(), rng)
        try:
            pack(path, dict(json.loads(text)), arrays)
        except (ValueError, TypeError, RecursionError):  # no JSON, or no object
            header, data = split(content)
            header["__metadata__"] = {"show_attend_tell": text.decode("latin-1")}
            return what, joined(header, data)
        return what, path.read_bytes()


def header_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Edit the header of a file of tensors."""
    header, data = split(content)
    what, text = mutations.json_changed(json.dumps(header).encode(), rng)
    return f"header: {what}", joined(text, data)


def array_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Replace an array of a checkpoint by another shape or type."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.safetensors"
        path.write_bytes(content)
        about, arrays = unpacked(path)
        what, arrays = _array_changed(arrays, rng)
        pack(path, about, arrays)
        return what, path.read_bytes()


def _array_changed(arrays: dict, rng: random.Random) -> tuple[str, dict]:
    name = rng.choice(sorted(arrays))
    old = arrays[name]
    kinds = {
        "another shape": np.zeros((*old.shape, 2), old.dtype),
        "NaN": np.full(old.shape, np.nan, np.float32),
        "infinity": np.full(old.shape, np.inf, np.float16),
        "float64": np.zeros(old.shape, np.float64),
        "integers": np.zeros(old.shape, np.int64),
        "8 bits": np.zeros(old.shape, np.int8),
        "nothing": None,
    }
    what = rng.choice(sorted(kinds))
    changed = {key: values for key, values in arrays.items() if key != name}
    if kinds[what] is not None:
        changed[name] = kinds[what]
    return f"{name} of {what}", changed


def hdf5_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Rewrite a data set or attribute of a feature file with another shape or type."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        if rng.random() < 0.35:
            name = rng.choice(sorted(file.attrs))
            odd = rng.choice(_ODD_ATTRIBUTES)
            file.attrs[name] = odd
            return f"attribute {name} = {odd!r:.40}", _closed(file, buffer)
        name = rng.choice(sorted(file))
        old = file[name]
        kinds = {
            "another length": lambda: np.zeros((3, *old.shape[1:]), "f2"),
            "another rank": lambda: np.zeros(old.shape[:1], "f2"),
            "float64": lambda: np.zeros(old.shape, "f8"),
            "text": lambda: np.full(old.shape, b"x"),
            "integers": lambda: np.zeros(old.shape, "i4"),
            "NaN": lambda: np.full(old.shape, np.nan, "f2"),
            "infinity": lambda: np.full(old.shape, np.inf, "f2"),
            "a scalar": lambda: np.float16(1),
            "empty": lambda: np.zeros((0, *old.shape[1:]), "f2"),
        }
        what = rng.choice([*kinds, "a group", "an external link", "absent", "virtual"])
        values = kinds[what]() if what in kinds else None
        shape, kind = old.shape, old.dtype
        del file[name]
        if what == "a group":
            file.create_group(name)
        elif what == "an external link":
            file[name] = h5py.ExternalLink("/etc/passwd", "/features")
        elif what == "virtual":
            layout = h5py.VirtualLayout(shape, kind)
            layout[:] = h5py.VirtualSource("other.h5", name, shape, kind)
            file.create_virtual_dataset(name, layout)
        elif what != "absent":
            file[name] = values
        return f"{name}: {what}", _closed(file, buffer)


def _closed(file: h5py.File, buffer: io.BytesIO) -> bytes:
    file.close()
    return buffer.getvalue()


class Artefacts:
    """A copy of all artefacts; one is damaged at a time and then restored."""

    def __init__(self, world, root: Path):
        self.world, self.root = world, root
        self.mend()
        self.run, self.prepared = root / "runs" / "tiny", root / "work" / "tiny"

    def try_all(
        self,
        tally: Tally,
        path: Path,
        damages: list[tuple[Damage, int]],
        arguments: list[str],
        results: Callable[[command_line.Done], object] | None = None,
    ) -> None:
        """Damage a file in many ways and run a command on each.

        Args:
            tally: receives the outcomes.
            path: the file.
            damages: kinds of damage and their weights. Damage of single bits and
                bytes must be refused or leave the results as they are.
            arguments: of the command line.
            results: returns what must not change without a refusal, from how the
                command ended.
        """
        rng = random.Random(1)
        kinds, weights = zip(*damages, strict=True)
        done = command_line.run(arguments, self.root, SECONDS)
        assert done.code == 0, done
        whole, expected = path.read_bytes(), results and results(done)
        for number in tally.within_time(range(tally.planned)):
            (damage,) = rng.choices(kinds, weights)
            what, content = damage(whole, rng)
            path.write_bytes(content)
            done = command_line.run(arguments, self.root, SECONDS)
            outcome, signature = command_line.judge(done)
            case = f"{' '.join(arguments[:1])}, {number}, {path.name}: {what}"
            accepted = outcome == "handled" and damage is mutations.bytes_damaged
            if accepted and results and results(done) != expected:
                outcome, signature = "failed", f"{path.name}: other values accepted"
            if outcome == "refused" and path.read_bytes() != content:
                outcome, signature = "failed", f"{path.name}: refused, yet changed"
            tally.count(case, outcome, signature)
            if outcome == "handled":
                self.mend()
            path.write_bytes(whole)

    def mend(self) -> None:
        """Copy all artefacts, in place of what a command may have written."""
        for part in ("work", "runs"):
            shutil.copytree(
                self.world.root / part, self.root / part, dirs_exist_ok=True
            )
