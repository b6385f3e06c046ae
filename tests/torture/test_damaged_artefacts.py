"""Damaged manifests, models, feature files and other artefacts of earlier stages."""

import random
import shutil
from pathlib import Path

import child_process
import command_line
import mutations
import pytest
from artefacts import (
    SECONDS,
    array_damage,
    cell_damage,
    config_damage,
    hdf5_damage,
    header_damage,
    line_damage,
    text_damage,
)
from stages import content_of
from tally import Tally, scaled

BYTES = (mutations.bytes_damaged, 4)
JSON = [BYTES, (mutations.json_changed, 3), (text_damage, 1)]
TOML = [BYTES, (mutations.toml_changed, 5), (text_damage, 2)]
HDF5 = [BYTES, (hdf5_damage, 5)]


ROWS = [BYTES, (text_damage, 2)]
# Part -> planned cases, seconds in a run of 15 minutes, kinds of damage and weights.
PARTS = {
    "manifests": (150, 25, [BYTES, (line_damage, 3), (text_damage, 1)]),
    "results files": (100, 10, JSON),
    "vocabularies": (12, 20, JSON),
    "feature files": (50, 25, HDF5),
    "feature files, features": (30, 8, HDF5),
    "models": (60, 35, [BYTES, (config_damage, 6), (header_damage, 3)]),
    "checkpoints": (40, 20, [BYTES, (array_damage, 6), (header_damage, 2)]),
    "settings of runs": (40, 7, TOML),
    "experiments": (500, 10, TOML),
    "--out files, jsonl": (40, 15, [*ROWS, (line_damage, 4)]),
    "--out files, csv": (40, 15, [*ROWS, (cell_damage, 4)]),
}


def _subject(part: str, artefacts, world):
    """Return the file to damage, the command, and what must not change unnoticed."""
    root, run, prepared = artefacts.root, artefacts.run, artefacts.prepared
    captions, model = run / "captions-val.json", run / "model.safetensors"
    features, other = prepared / world.features.name, root / "other.safetensors"
    rows = root / f"rows.{part.rpartition(' ')[2]}"
    settings, places = root / "damaged.toml", world.stage("prepare", root)[3:]
    photo = str(world.photos / "photo00.jpg")

    def weights(_):
        return content_of(model)

    def output(done):
        return done.out

    def stage(verb, *options):
        return world.stage(verb, root, *map(str, options))

    once = ("--overwrite", "--set", "training.epochs=1")
    out = ["caption", "--model", str(world.model), "--out", str(rows)]
    shutil.copy(world.settings, settings)
    shutil.copy(world.model, other)
    shutil.copy(captions, root / "other.json")
    subjects = {
        "manifests": ("manifest.jsonl", stage("eval", "--captions", captions), output),
        "results files": (
            root / "other.json",
            stage("eval", "--captions", root / "other.json"),
            None,
        ),
        "vocabularies": ("vocabulary.json", stage("train", *once), weights),
        "feature files": (features, stage("eval"), lambda _: captions.read_bytes()),
        "feature files, features": (features, stage("features"), None),
        "models": (other, ["caption", "--model", str(other), photo], output),
        "checkpoints": (
            run / "checkpoint.safetensors",
            stage("train", "--resume"),
            weights,
        ),
        "settings of runs": (run / "experiment.toml", stage("train", "--resume"), None),
        "experiments": (settings, ["prepare", "-e", str(settings), *places], None),
    }
    path, arguments, results = subjects.get(
        part, (rows, [*out, str(world.photos)], None)
    )
    return prepared / path, arguments, results


@pytest.mark.parametrize("part", PARTS)
def test_damaged_files_are_refused_or_change_nothing(artefacts, world, part):
    planned, share, damages = PARTS[part]
    path, arguments, results = _subject(part, artefacts, world)
    tally = Tally(f"damaged {part}", scaled(planned), share)
    artefacts.try_all(tally, path, damages, arguments, results)


def test_damaged_parts_of_an_extraction(artefacts, world):
    """What a killed extraction left may be damaged too."""
    tally = Tally("damaged parts of features", scaled(12), 6)
    rng = random.Random(5)
    features = artefacts.prepared / world.features.name
    parts = features.with_name(features.name + ".parts")
    whole = features.read_bytes()
    header = _header(artefacts, world, features, parts)
    arguments = world.stage("features", artefacts.root)
    for number in tally.within_time(range(tally.planned)):
        damage = rng.choice([kind for kind, _ in JSON])
        what, content = damage(header, rng)
        features.unlink(missing_ok=True)
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        (parts / "header.json").write_bytes(content)
        done = command_line.run(arguments, artefacts.root, SECONDS)
        outcome, signature = command_line.judge(done)
        if outcome == "handled" and features.read_bytes() != whole:
            outcome, signature = "failed", "features: other values after a resumption"
        tally.count(f"features, {number}, header.json: {what}", outcome, signature)


def _header(artefacts, world, features: Path, parts: Path) -> bytes:
    """Return the header of an unfinished extraction, from one killed at its end."""
    features.unlink()
    for change in range(4, 60):
        arguments = world.stage("features", artefacts.root)
        child_process.run(arguments, artefacts.root, kill_at=change)
        if (parts / "header.json").exists():
            return (parts / "header.json").read_bytes()
        features.unlink(missing_ok=True)
    raise AssertionError("no kill left an unfinished extraction")
