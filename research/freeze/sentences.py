"""Record the sentences of dev photos by both engines, and compare two records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from research.freeze.checkout import Checkout, engine_options

ENGINES = ("numpy", "keras")
MODELS = ("shipped", "shipped-lstm")
TOLERANCE = 1e-5  # of log p, in nats
SHOWN = 10  # changed sentences that are printed of each record

Sentences = Mapping[str, tuple[str, float]]  # name of the photo -> caption, log p


def dev_photos(data: Path, count: int | None = None) -> list[Path]:
    """Return the photos of Flickr8k's dev list, or its first ones."""
    names = (data / "Flickr_8k.devImages.txt").read_text().split()
    return [data / "Flicker8k_Dataset" / name for name in names[:count]]


def record(checkout: Checkout, photos: Sequence[Path], folder: Path) -> None:
    """Write `<engine>-<model>.jsonl` for each engine and model; keep present files."""
    folder.mkdir(parents=True, exist_ok=True)
    usage = checkout.run(folder, "caption", "--help")
    for engine in ENGINES:
        options = engine_options(usage, engine)
        for model in MODELS:
            out = (folder / f"{engine}-{model}.jsonl").absolute()
            # An interrupted run is resumed by `caption` itself.
            arguments = ("caption", *options, "--model", model, "--out", out)
            checkout.run(folder, *arguments, *photos)


def read(path: Path) -> Sentences:
    """Read the captions of a file of `caption --out`."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {
        Path(row["path"]).name: (row["caption"], float(row["log_prob"])) for row in rows
    }


def differences(before: Sentences, after: Sentences) -> list[str]:
    """Return a line for each photo whose sentence or log p changed, or is missing."""
    lines = []
    for photo in sorted(before.keys() | after.keys()):
        old = before.get(photo)
        new = after.get(photo)
        if old is None or new is None:
            lines.append(f"{photo}: {old} -> {new}")
        elif old[0] != new[0]:
            lines.append(f"{photo}: {old[0]!r} -> {new[0]!r}")
        elif not abs(old[1] - new[1]) <= TOLERANCE:
            lines.append(f"{photo}: log p {old[1]} -> {new[1]}")
    return lines


def compare(before: Path, after: Path) -> list[str]:
    """Return what differs between two folders of :func:`record`."""
    lines = []
    for engine in ENGINES:
        for model in MODELS:
            name = f"{engine}-{model}.jsonl"
            old = read(before / name)
            new = read(after / name)
            changed = differences(old, new)
            if changed:
                lines.append(f"{name}: {len(changed)} of {len(old)} sentences changed")
                lines += [f"  {line}" for line in changed[:SHOWN]]
    return lines
