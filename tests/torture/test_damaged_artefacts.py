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
    config_damage,
    hdf5_damage,
    json_damage,
    line_damage,
    text_damage,
    toml_damage,
)
from stages import content_of
from tally import Tally, scaled

BYTES = (mutations.bytes_damaged, 4)


def test_damaged_manifests(artefacts, world):
    tally = Tally("damaged manifests", scaled(150), 25)
    captions = artefacts.run / "captions-val.json"
    arguments = world.stage("eval", artefacts.root, "--captions", str(captions))
    damages = [BYTES, (line_damage, 3), (text_damage, 1)]
    path = artefacts.prepared / "manifest.jsonl"
    artefacts.try_all(
        tally, path, damages, arguments, lambda: artefacts.output(arguments)
    )


def test_damaged_results_files(artefacts, world):
    tally = Tally("damaged results files", scaled(100), 10)
    path = artefacts.root / "made-elsewhere.json"
    shutil.copy(artefacts.run / "captions-val.json", path)
    arguments = world.stage("eval", artefacts.root, "--captions", str(path))
    damages = [BYTES, (json_damage, 3), (text_damage, 1)]
    artefacts.try_all(tally, path, damages, arguments)


def test_damaged_vocabularies(artefacts, world):
    tally = Tally("damaged vocabularies", scaled(12), 20)
    model = artefacts.run / "model.keras"
    arguments = world.stage("train", artefacts.root, "--overwrite")
    arguments += ["--set", "training.epochs=1"]
    damages = [BYTES, (json_damage, 3), (text_damage, 1)]
    path = artefacts.prepared / "vocabulary.json"
    artefacts.try_all(tally, path, damages, arguments, lambda: content_of(model))


def test_damaged_feature_files(artefacts, world):
    tally = Tally("damaged feature files", scaled(50), 25)
    path = artefacts.prepared / world.features.name
    captions = artefacts.run / "captions-val.json"
    arguments = world.stage("eval", artefacts.root)
    damages = [BYTES, (hdf5_damage, 5)]
    artefacts.try_all(tally, path, damages, arguments, captions.read_bytes)


def test_damaged_feature_files_at_extraction(artefacts, world):
    tally = Tally("damaged feature files, features", scaled(30), 8)
    path = artefacts.prepared / world.features.name
    arguments = world.stage("features", artefacts.root)
    artefacts.try_all(tally, path, [BYTES, (hdf5_damage, 5)], arguments)


def test_damaged_models(artefacts, world):
    tally = Tally("damaged models", scaled(60), 35)
    path = artefacts.root / "damaged.keras"
    shutil.copy(world.model, path)
    arguments = ["caption", "--model", str(path), str(world.photos / "photo00.jpg")]
    damages = [BYTES, (config_damage, 6), (mutations.zip_fields_changed, 3)]
    artefacts.try_all(
        tally, path, damages, arguments, lambda: artefacts.output(arguments)
    )


def test_damaged_checkpoints(artefacts, world):
    tally = Tally("damaged checkpoints", scaled(40), 20)
    path = artefacts.run / "checkpoint.npz"
    arguments = world.stage("train", artefacts.root, "--resume")
    damages = [BYTES, (array_damage, 6), (mutations.zip_fields_changed, 2)]
    model = artefacts.run / "model.keras"
    artefacts.try_all(tally, path, damages, arguments, lambda: content_of(model))


def test_damaged_settings_of_a_run(artefacts, world):
    tally = Tally("damaged settings of runs", scaled(40), 7)
    path = artefacts.run / "experiment.toml"
    arguments = world.stage("train", artefacts.root, "--resume")
    damages = [BYTES, (toml_damage, 4), (text_damage, 1)]
    artefacts.try_all(tally, path, damages, arguments)


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_damaged_output_files(artefacts, world, ending):
    tally = Tally(f"damaged --out files, {ending}", scaled(40), 15)
    path = artefacts.root / f"rows.{ending}"
    arguments = ["caption", "--model", str(world.model), "--out", str(path)]
    arguments.append(str(world.photos))
    assert command_line.run(arguments, artefacts.root, SECONDS).code == 0
    damages = [BYTES, (text_damage, 2), (_text_damage_of_rows, 4)]
    artefacts.try_all(tally, path, damages, arguments)


def _text_damage_of_rows(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    if content.startswith(b"{"):
        return line_damage(content, rng)
    lines = content.split(b"\n")
    at, odd = rng.randrange(len(lines) - 1), rng.choice(mutations.ODD_VALUES).encode()
    cells = lines[at].split(b",")
    cells[rng.randrange(len(cells))] = odd
    lines[at] = b",".join(cells)
    return f"line {at}: {odd[:40]!r}", b"\n".join(lines)


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
        damage = rng.choice([mutations.bytes_damaged, json_damage, text_damage])
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
