"""Models that carry code, values that are not finite, names that lead outside."""

import base64
import io
import json
import marshal
import shutil
from pathlib import Path

import command_line
import h5py
import numpy as np
from artefacts import SECONDS
from mutations import unzipped, zipped
from tally import Tally


def _configs_with_code(mark: Path) -> dict[str, dict]:
    """Return configurations of a model that would run code when loaded."""
    code = marshal.dumps(compile(f"open({str(mark)!r}, 'w')", "x", "eval"))
    function = {"code": base64.b64encode(code).decode(), "defaults": None}
    body = {"class_name": "__lambda__", "config": {**function, "closure": None}}
    layer = {"name": "a", "function": body}
    call = {"command": f"touch {mark}"}
    return {
        "a lambda": {"module": "keras.layers", "class_name": "Lambda", "config": layer},
        "os.system": {"module": "os", "class_name": "system", "config": call},
        "builtins.eval": {"module": "builtins", "class_name": "eval", "config": call},
        "subprocess": {"module": "subprocess", "class_name": "Popen", "config": call},
        "a function": {"module": "os", "class_name": "function", "config": "system"},
    }


def test_models_that_carry_code_are_refused(world, tmp_path):
    tally = Tally("models that carry code", 5, 15)
    path, mark = tmp_path / "model.keras", tmp_path / "outside"
    files = unzipped(world.model.read_bytes())
    arguments = ["caption", "--model", str(path), str(world.photos / "photo00.jpg")]
    for what, config in tally.within_time(_configs_with_code(mark).items()):
        config = {**config, "registered_name": None, "build_config": {}}
        files["config.json"] = json.dumps(config).encode()
        path.write_bytes(zipped(files))
        done = command_line.run(arguments, tmp_path, SECONDS)
        outcome, signature = command_line.judge(done, handled="accepted")
        if mark.exists():
            outcome, signature = "failed", "code of a model file was run"
        tally.count(f"caption, config.json is {what}", outcome, signature)


def _experiment_names(outside: Path):
    yield from ("../../outside", f"{outside}", "", ".", "..", "a/b", "nul\\u0000", "~")
    yield from ("x" * 300, "a\\nb", "-dash", "\\U0001f600", "a b", "con", "caf\\u00e9")


def test_names_of_experiments_stay_in_the_folder_of_runs(artefacts, world):
    tally = Tally("names of experiments", 15, 12)
    text = world.settings.read_text().replace("epochs = 2", "epochs = 1")
    file, runs = artefacts.root / "named.toml", artefacts.root / "runs" / "below"
    for name in tally.within_time(_experiment_names(artefacts.root / "outside")):
        file.write_text(f'name = "{name}"\n{text}')
        shutil.rmtree(runs, ignore_errors=True)
        arguments = ["train", "--experiment", str(file), "--runs", str(runs)]
        arguments += ["--work", str(artefacts.root / "work")]
        done = command_line.run(arguments, runs, SECONDS)
        done.strays = [s for s in done.strays if s != f"os.mkdir {runs}"]
        tally.count(f"train, name = {name[:40]!r}", *command_line.judge(done))


def _not_finite(world, root: Path):
    """Yield descriptions and arguments of commands that meet NaN or infinity."""
    features = root / "work" / "tiny" / world.features.name
    train = world.stage("train", root, "--overwrite")
    for rate in ("1e9", "1e30"):
        change = ["--set", f"training.learning_rate={rate}"]
        yield f"learning_rate={rate}", [*train, *change]
    whole = features.read_bytes()
    for value in (np.nan, np.inf):
        with h5py.File(features, "r+") as file:
            rows = file["features"][:]
            rows[:, 0, 0] = value
            file["features"][:] = rows
            del file["checksums"], file.attrs["digest"]  # they would be refused first
        yield f"features of {value}", train
        features.write_bytes(whole)
    model = root / "damaged.keras"
    files = unzipped(world.model.read_bytes())
    (name,) = (name for name in files if name.endswith(".h5"))
    buffer = io.BytesIO(files[name])
    with h5py.File(buffer, "r+") as weights:

        def spoil(_, item):
            if isinstance(item, h5py.Dataset) and item.ndim == 2:
                item[...] = np.full(item.shape, np.nan, item.dtype)

        weights.visititems(spoil)
    model.write_bytes(zipped({**files, name: buffer.getvalue()}))
    photo = str(world.photos / "photo00.jpg")
    yield "a model of NaN, caption", ["caption", "--model", str(model), photo]
    yield "a model of NaN, train", [*train, "--init-from", str(model)]


def test_values_that_are_not_finite_are_refused(artefacts, world):
    tally = Tally("values that are not finite", 6, 20)
    for what, arguments in tally.within_time(_not_finite(world, artefacts.root)):
        done = command_line.run(arguments, artefacts.root, SECONDS)
        judged = command_line.judge(done, handled=f"accepted without a word: {what}")
        tally.count(f"{arguments[0]}, {what}", *judged)


def test_a_checkpoint_of_another_vocabulary_is_refused(artefacts, world):
    tally = Tally("another vocabulary", 1, 10)
    path = artefacts.prepared / "vocabulary.json"
    content = json.loads(path.read_text())
    content["words"][4:] = content["words"][:3:-1]
    path.write_text(json.dumps(content))
    arguments = world.stage("train", artefacts.root, "--resume")
    done = command_line.run(arguments, artefacts.root, SECONDS)
    judged = command_line.judge(done, handled="--resume with other words accepted")
    tally.count("train --resume, words in another order", *judged)
    tally.finish()
