"""Damaged manifests, models, feature files and other artefacts of earlier stages."""

import base64
import io
import json
import marshal
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import command_line
import h5py
import mutations
import numpy as np
import pytest
from tally import Tally, scaled

pytestmark = [pytest.mark.torture, pytest.mark.timeout(7200, method="thread")]

SECONDS = 60  # a case that takes longer counts as hanging
Damage = Callable[[bytes, random.Random], tuple[str, bytes]]


def _json_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    return mutations.json_changed(content.decode(), rng)


def _line_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    lines = content.split(b"\n")
    at = rng.randrange(len(lines) - 1)
    what, lines[at] = mutations.json_changed(lines[at].decode(), rng)
    return f"line {at}: {what}", b"\n".join(lines)


def _text_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    return rng.choice(list(mutations.hostile_texts()))


def _config_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Edit a JSON file inside a model file, or a value of the weights."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(["config.json"] * 5 + ["metadata.json"] + sorted(files))
    if name.endswith(".json"):
        what, files[name] = mutations.json_changed(files[name].decode(), rng)
    else:
        what, files[name] = mutations.bytes_damaged(files[name], rng)
    return f"{name}: {what}", _zipped(files)


def _array_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Replace an array of a checkpoint by another shape, type or a pickle."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(files))
    if name.endswith(".json"):
        what, files[name] = mutations.json_changed(files[name].decode(), rng)
        return f"{name}: {what}", _zipped(files)
    old = np.load(io.BytesIO(files[name]))
    kinds = {
        "text": np.full(old.shape, "x"),
        "complex": old.astype(complex),
        "another shape": np.zeros((*old.shape, 2), old.dtype),
        "NaN": np.full(old.shape, np.nan),
        "objects": np.array([{"a": 1}] * 3, object),
        "records": np.zeros(old.shape, [("a", "f4")]),
        "dates": np.zeros(old.shape, "M8[s]"),
    }
    what = rng.choice(sorted(kinds))
    buffer = io.BytesIO()
    np.save(buffer, kinds[what], allow_pickle=True)
    files[name] = buffer.getvalue()
    return f"{name} of {what}", _zipped(files)


def _zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _hdf5_damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Rewrite a data set or attribute of a feature file with another shape or type."""
    buffer = io.BytesIO(content)
    with h5py.File(buffer, "r+") as file:
        if rng.random() < 0.35:
            name = rng.choice(sorted(file.attrs))
            odd = rng.choice(
                [
                    1.5,
                    -1,
                    2**62,
                    "",
                    "null",
                    "[1]",
                    "[" * 10**5,
                    "{}",
                    np.zeros(3),
                    b"a",
                ]
                + [mutations.LONG_INTEGER, '{"grid": [0, 0], "width": -1}', np.nan]
            )
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
        world.copy(root, "work", "runs")
        self.run, self.prepared = root / "runs" / "tiny", root / "work" / "tiny"

    def try_all(
        self,
        tally: Tally,
        path: Path,
        damages: list[tuple[Damage, int]],
        arguments: list[str],
        results: Callable[[], object] | None = None,
        seed: int = 1,
    ) -> None:
        """Damage a file in many ways and run a command on each.

        Args:
            tally: receives the outcomes.
            path: the file.
            damages: kinds of damage and their weights. Damage of single bits and
                bytes must be refused or leave the results as they are.
            arguments: of the command line.
            results: returns what must not change without a refusal.
            seed: seed of the damage.
        """
        rng, whole = random.Random(seed), path.read_bytes()
        kinds, weights = zip(*damages, strict=True)
        done = command_line.run(arguments, self.root, SECONDS)
        assert done.code == 0, done
        expected = results and results()
        for number in tally.within_time(range(tally.planned)):
            (damage,) = rng.choices(kinds, weights)
            what, content = damage(whole, rng)
            path.write_bytes(content)
            done = command_line.run(arguments, self.root, SECONDS)
            outcome, signature = command_line.judge(done)
            case = f"{' '.join(arguments[:1])}, {number}, {path.name}: {what}"
            accepted = outcome == "handled" and damage is mutations.bytes_damaged
            if accepted and results and results() != expected:
                outcome, signature = "failed", f"{path.name}: other values accepted"
            if outcome == "refused" and path.read_bytes() != content:
                outcome, signature = "failed", f"{path.name}: refused, yet changed"
            tally.count(case, outcome, signature)
            if outcome == "handled":
                self._mend()
            path.write_bytes(whole)
        tally.finish()

    def output(self, arguments: list[str]) -> str:
        """Return what a command prints."""
        return command_line.run(arguments, self.root, SECONDS).out

    def _mend(self) -> None:
        """Put back what a command may have written."""
        for part in ("work", "runs"):
            shutil.copytree(
                self.world.root / part, self.root / part, dirs_exist_ok=True
            )


@pytest.fixture
def artefacts(world, tmp_path) -> Artefacts:
    return Artefacts(world, tmp_path)


BYTES = (mutations.bytes_damaged, 4)


def test_damaged_manifests(artefacts, world):
    tally = Tally("damaged manifests", scaled(150), 25)
    captions = artefacts.run / "captions-val.json"
    arguments = world.stage("eval", artefacts.root, "--captions", str(captions))
    damages = [BYTES, (_line_damage, 3), (_text_damage, 1)]
    path = artefacts.prepared / "manifest.jsonl"
    artefacts.try_all(
        tally, path, damages, arguments, lambda: artefacts.output(arguments)
    )


def test_damaged_results_files(artefacts, world):
    tally = Tally("damaged results files", scaled(100), 10)
    path = artefacts.root / "made-elsewhere.json"
    shutil.copy(artefacts.run / "captions-val.json", path)
    arguments = world.stage("eval", artefacts.root, "--captions", str(path))
    damages = [BYTES, (_json_damage, 3), (_text_damage, 1)]
    artefacts.try_all(tally, path, damages, arguments)


def test_damaged_vocabularies(artefacts, world):
    tally = Tally("damaged vocabularies", scaled(12), 20)
    model = artefacts.run / "model.keras"
    arguments = world.stage("train", artefacts.root, "--overwrite")
    arguments += ["--set", "training.epochs=1"]
    damages = [BYTES, (_json_damage, 3), (_text_damage, 1)]
    path = artefacts.prepared / "vocabulary.json"
    artefacts.try_all(tally, path, damages, arguments, lambda: _weights(model))


def _weights(path: Path) -> dict:
    """Return the members of a model file that hold values."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist()) - {"metadata.json"}
        return {name: archive.read(name) for name in names}


def test_damaged_feature_files(artefacts, world):
    tally = Tally("damaged feature files", scaled(50), 25)
    path = artefacts.prepared / world.features.name
    captions = artefacts.run / "captions-val.json"
    arguments = world.stage("eval", artefacts.root)
    damages = [BYTES, (_hdf5_damage, 5)]
    artefacts.try_all(tally, path, damages, arguments, captions.read_bytes)


def test_damaged_feature_files_at_extraction(artefacts, world):
    tally = Tally("damaged feature files, features", scaled(30), 8)
    path = artefacts.prepared / world.features.name
    arguments = world.stage("features", artefacts.root)
    artefacts.try_all(tally, path, [BYTES, (_hdf5_damage, 5)], arguments)


def test_damaged_models(artefacts, world):
    tally = Tally("damaged models", scaled(60), 35)
    path = artefacts.root / "damaged.keras"
    shutil.copy(world.model, path)
    arguments = ["caption", "--model", str(path), str(world.photos / "photo00.jpg")]
    damages = [BYTES, (_config_damage, 6), (mutations.zip_fields_changed, 3)]
    artefacts.try_all(
        tally, path, damages, arguments, lambda: artefacts.output(arguments)
    )


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
    with zipfile.ZipFile(world.model) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    arguments = ["caption", "--model", str(path), str(world.photos / "photo00.jpg")]
    for what, config in tally.within_time(_configs_with_code(mark).items()):
        config = {**config, "registered_name": None, "build_config": {}}
        files["config.json"] = json.dumps(config).encode()
        path.write_bytes(_zipped(files))
        done = command_line.run(arguments, tmp_path, SECONDS)
        outcome, signature = command_line.judge(done)
        if mark.exists() or outcome == "handled":
            outcome, signature = "failed", "code of a model file was run, or accepted"
        tally.count(f"caption, config.json is {what}", outcome, signature)
    tally.finish()


def test_damaged_checkpoints(artefacts, world):
    tally = Tally("damaged checkpoints", scaled(40), 20)
    path = artefacts.run / "checkpoint.npz"
    arguments = world.stage("train", artefacts.root, "--resume")
    damages = [BYTES, (_array_damage, 6), (mutations.zip_fields_changed, 2)]
    model = artefacts.run / "model.keras"
    artefacts.try_all(tally, path, damages, arguments, lambda: _weights(model))


def test_damaged_settings_of_a_run(artefacts, world):
    tally = Tally("damaged settings of runs", scaled(40), 7)
    path = artefacts.run / "experiment.toml"

    def toml(content: bytes, rng: random.Random) -> tuple[str, bytes]:
        return mutations.toml_changed(content.decode(), rng)

    arguments = world.stage("train", artefacts.root, "--resume")
    artefacts.try_all(tally, path, [BYTES, (toml, 4), (_text_damage, 1)], arguments)


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_damaged_output_files(artefacts, world, ending):
    tally = Tally(f"damaged --out files, {ending}", scaled(40), 15)
    path = artefacts.root / f"rows.{ending}"
    arguments = ["caption", "--model", str(world.model), "--out", str(path)]
    arguments.append(str(world.photos))
    assert command_line.run(arguments, artefacts.root, SECONDS).code == 0
    damages = [BYTES, (_text_damage, 2), (_text_damage_of_rows, 4)]
    artefacts.try_all(tally, path, damages, arguments)


def _text_damage_of_rows(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    if content.startswith(b"{"):
        return _line_damage(content, rng)
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
        damage = rng.choice([mutations.bytes_damaged, _json_damage, _text_damage])
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
    tally.finish()


def _header(artefacts, world, features: Path, parts: Path) -> bytes:
    """Return the header of an unfinished extraction, from one killed at its end."""
    import child_process

    features.unlink()
    for change in range(4, 60):
        arguments = world.stage("features", artefacts.root)
        child_process.run(arguments, artefacts.root, kill_at=change)
        if (parts / "header.json").exists():
            return (parts / "header.json").read_bytes()
        features.unlink(missing_ok=True)
    raise AssertionError("no kill left an unfinished extraction")


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
    tally.finish()


def _not_finite(world, root: Path):
    """Yield descriptions and arguments of commands that meet NaN or infinity."""
    features = root / "work" / "tiny" / world.features.name
    train = world.stage("train", root, "--overwrite")
    for rate in ("1e9", "1e30"):
        yield (
            f"learning_rate={rate}",
            [*train, "--set", f"training.learning_rate={rate}"],
        )
    whole = features.read_bytes()
    for value in (np.nan, np.inf):
        with h5py.File(features, "r+") as file:
            rows = file["features"][:]
            rows[:, 0, 0] = value
            file["features"][:] = rows
        yield f"features of {value}", train
        features.write_bytes(whole)
    model = root / "damaged.keras"
    with zipfile.ZipFile(world.model) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in files if name.endswith(".h5"))
    buffer = io.BytesIO(files[name])
    with h5py.File(buffer, "r+") as weights:
        found = []
        weights.visititems(
            lambda _, item: (
                found.append(item)
                if isinstance(item, h5py.Dataset) and item.ndim == 2
                else None
            )
        )
        for item in found:
            item[...] = np.full(item.shape, np.nan, item.dtype)
    model.write_bytes(_zipped({**files, name: buffer.getvalue()}))
    photo = str(world.photos / "photo00.jpg")
    yield "a model of NaN, caption", ["caption", "--model", str(model), photo]
    start = ["--init-from", str(model)]
    yield "a model of NaN, train", [*train, *start]


def test_values_that_are_not_finite_are_refused(artefacts, world):
    tally = Tally("values that are not finite", 6, 20)
    for what, arguments in tally.within_time(_not_finite(world, artefacts.root)):
        done = command_line.run(arguments, artefacts.root, SECONDS)
        outcome, signature = command_line.judge(done)
        if outcome == "handled":
            outcome, signature = "failed", f"accepted without a word: {what}"
        tally.count(f"{arguments[0]}, {what}", outcome, signature)
    tally.finish()


def test_a_checkpoint_of_another_vocabulary_is_refused(artefacts, world):
    tally = Tally("another vocabulary", 1, 10)
    path = artefacts.prepared / "vocabulary.json"
    content = json.loads(path.read_text())
    content["words"][4:] = content["words"][:3:-1]
    path.write_text(json.dumps(content))
    arguments = world.stage("train", artefacts.root, "--resume")
    done = command_line.run(arguments, artefacts.root, SECONDS)
    outcome, signature = command_line.judge(done)
    if outcome == "handled":
        outcome, signature = "failed", "--resume with other words accepted"
    tally.count("train --resume, words in another order", outcome, signature)
    tally.finish()
