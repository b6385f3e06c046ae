"""Files of models that run code, read other files, take all memory; values of NaN."""

import contextlib
import ctypes
import itertools
import json
import os
import shutil
import socket
import zipfile
from pathlib import Path

import child_process
import command_line
import h5py
import numpy as np
import pytest
from artefacts import SECONDS
from hostile_models import Canaries, changed_weights, hostile_models
from hostile_tensors import changed_arrays, headers, hostile_files, other_files
from mutations import zip_of_zeros
from sealed_features import edited
from tally import Tally
from tensor_files import pack, unpacked
from zip_members import npy, zipped

from show_attend_tell.models.encoder import scene_net
from show_attend_tell.models.pretrained import SHIPPED
from show_attend_tell.models.saving import load_captioner

MOST_MEMORY = 1_500_000_000
_OPENED, _READ = 0x20, 0x1  # events of inotify


class Guard:
    """A file, an address and a mark that models name, and whether one was touched."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack):
        folder.mkdir()
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._server.setblocking(False)
        url = f"http://127.0.0.1:{self._server.getsockname()[1]}/x"
        self.canaries = Canaries(folder / "mark", folder / "canary.weights.h5", url)
        with h5py.File(self.canaries.file, "w") as file:
            file["x"] = np.zeros(1000, "f4")
        libc = ctypes.CDLL(None)
        self._events = libc.inotify_init1(os.O_NONBLOCK)
        stack.callback(os.close, self._events)
        name = os.fsencode(self.canaries.file)
        assert libc.inotify_add_watch(self._events, name, _OPENED | _READ) >= 0

    def touched(self) -> str:
        """Return what was touched since the last call, "" for nothing."""
        if self.canaries.mark.exists():
            self.canaries.mark.unlink()
            return "code of a file was run"
        with contextlib.suppress(BlockingIOError):
            self._server.accept()[0].close()
            return "a socket was opened"
        with contextlib.suppress(BlockingIOError):
            os.read(self._events, 4096)
            return "another file was read"
        return ""


@pytest.fixture
def guard(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Guard(tmp_path / "guarded", stack)


def _count(tally, guard, what, arguments, folder, reason) -> None:
    """Run a command, which must refuse a file for a reason, and count the outcome."""
    done = child_process.run(arguments, folder, SECONDS, memory=6_000_000_000)
    outcome, signature = command_line.judge(done, handled=f"accepted: {what}")
    memory = "memory" in done.err.lower()
    if outcome == "refused" and (memory or reason not in done.err):
        outcome, signature = "failed", f"{what}: {done.err.strip()[-150:]}"
    if done.peak > MOST_MEMORY:
        outcome, signature = "failed", f"took {done.peak / 1e9:.1f} GB: {what}"
    if harm := guard.touched():
        outcome, signature = "failed", harm
    tally.count(what, outcome, signature)


@pytest.mark.parametrize("engine", ["numpy", "keras", "sibling"])
def test_hostile_models_are_refused(world, tmp_path, guard, engine):
    tally = Tally(f"hostile models, {engine}", 90, 60)
    path, photo = tmp_path / "model.safetensors", str(world.photos / "photo00.jpg")
    arguments = ["caption", "--engine", engine, "--model", str(path), photo]
    shutil.copy(world.model, path)
    if engine == "sibling":
        out = str(tmp_path / "x.safetensors")
        arguments = ["export", str(path), "--format", "half", "--out", out]
        pytest.importorskip("tiny_digits").tiny_ram().save(path)
    reason = f"{path}: cannot be read as a model"
    files = hostile_files(path, *unpacked(path), guard.canaries)
    for what in tally.within_time(files):
        _count(tally, guard, f"{engine}: {what}", arguments, tmp_path, reason)
    path.unlink()
    os.mkfifo(path)
    _count(tally, guard, f"{engine}: a pipe", arguments, tmp_path, reason)
    tally.finish()


@pytest.mark.parametrize("kind", ["captioner", "sibling"])
def test_hostile_models_of_version_0_3_are_not_converted(world, tmp_path, guard, kind):
    tally = Tally(f"hostile models to convert, {kind}", 90, 60)
    path = tmp_path / "model.keras"
    arguments = ["convert", str(path)]
    if kind == "sibling":
        model = pytest.importorskip("tiny_digits").tiny_ram()
    else:
        model = load_captioner(world.model)
    model.save(path)
    content, reason = path.read_bytes(), f"{path}: cannot be converted"
    for what, changed in tally.within_time(hostile_models(content, guard.canaries)):
        path.write_bytes(changed)
        _count(tally, guard, f"{kind}: {what}", arguments, tmp_path, reason)
        assert [other.name for other in tmp_path.glob("*.safetensors")] == []
    path.unlink()
    os.mkfifo(path)
    _count(tally, guard, f"{kind}: a pipe", arguments, tmp_path, reason)
    tally.finish()


def _hostile_npz(folder: Path):
    """Yield descriptions and contents of files of arrays."""
    good = {"about.npy": npy(np.array('{"format": 2}')), "coefficients.npy": b""}
    yield "6 GB of zeros", zip_of_zeros("mean.npy", 4000)
    yield (
        "900 MB of zeros",
        zipped(
            good | {"mean.npy": npy(np.zeros(225_000_000, "f4"))}, zipfile.ZIP_DEFLATED
        ),
    )
    deep = b"(" * 9000
    header = b"\x93NUMPY\x01\x00" + len(deep).to_bytes(2, "little") + deep
    yield "9,000 parentheses", zipped(good | {"mean.npy": header})
    yield "parentheses alone", zipped({"about.npy": header})
    objects = np.array([{"a": 1}], object)
    yield "objects", zipped(good | {"mean.npy": npy(objects)})
    yield "LZMA", zipped(good | {"mean.npy": npy(np.zeros(9))}, zipfile.ZIP_LZMA)
    large = npy(np.zeros(9, "f4")).replace(b"(9,), ", b"(9000000000,), ")
    yield "36 GB declared", zipped(good | {"mean.npy": large})
    yield "a path outside", zipped(good | {"../../outside.npy": b""})


@pytest.mark.parametrize("name", ["alone.npz", "model.reranker.npz"])
def test_hostile_rerankers_of_version_0_3_are_not_converted(
    world, tmp_path, guard, name
):
    tally = Tally(f"hostile files to convert, {name}", 8, 15)
    load_captioner(world.model).save(tmp_path / "model.keras")
    path = tmp_path / name
    source = path if name == "alone.npz" else tmp_path / "model.keras"
    reason = f"{path}: cannot be converted"
    for what, content in tally.within_time(_hostile_npz(tmp_path)):
        path.write_bytes(content)
        arguments = ["convert", str(source)]
        _count(tally, guard, f"{name}: {what}", arguments, tmp_path, reason)
        assert [other.name for other in tmp_path.glob("*.safetensors")] == []


@pytest.mark.parametrize("engine", ["numpy", "keras"])
@pytest.mark.parametrize("kind", ["reranker", "confidence"])
def test_hostile_parts_of_a_model_are_refused(world, tmp_path, guard, kind, engine):
    tally = Tally(f"hostile {kind}, {engine}", 8, 15)
    path, photo = tmp_path / "model.safetensors", str(world.photos / "photo00.jpg")
    arguments = ["caption", "--engine", engine, "--model", str(path), photo]
    about, arrays = unpacked(SHIPPED)
    words = {"reranker": "a reranker", "confidence": "a calibration"}[kind]
    own = {n: v for n, v in arrays.items() if n.startswith(f"{kind}/") and v.ndim < 3}
    for what, changed in tally.within_time(changed_arrays(own)):
        kept = {name: v for name, v in arrays.items() if name not in own}
        surplus = {n: v for n, v in changed.items() if not n.startswith(f"{kind}/")}
        if surplus or changed.keys() == own.keys() and "8 bits" in what:
            continue  # they would belong to the model
        pack(path, about, kept | changed)
        reason = f"cannot be read as {words}"
        _count(tally, guard, f"{kind}, {engine}: {what}", arguments, tmp_path, reason)
    for value in (None, [], 5, {}):
        pack(path, about | {kind: value}, arrays)
        case = f"{kind}, {engine}: {value!r}"
        _count(tally, guard, case, arguments, tmp_path, f"cannot be read as {words}")


def test_hostile_checkpoints_are_refused(world, artefacts, guard):
    tally = Tally("hostile checkpoints", 8, 15)
    arguments = world.stage("train", artefacts.root, "--resume")
    path = artefacts.run / "checkpoint.safetensors"
    about, arrays = unpacked(path)
    pack(path, about, arrays)
    content = path.read_bytes()
    cases = itertools.chain(headers(content), other_files(guard.canaries))
    for what, changed in tally.within_time(cases):
        path.write_bytes(changed)
        _count(
            tally, guard, f"--resume: {what}", arguments, artefacts.root, "checkpoint"
        )


def test_hostile_weights_of_an_encoder_are_refused(world, tmp_path, guard):
    tally = Tally("hostile weights of an encoder", 18, 20)
    photo, path = str(world.photos / "photo00.jpg"), tmp_path / "x.safetensors"
    arguments = ["caption", "--model", str(world.model), photo]
    arguments += ["--encoder-weights", str(path)]
    about, arrays = unpacked(scene_net.WEIGHTS)
    pack(path, about, arrays)
    cases = list(headers(path.read_bytes()))
    for what, content in tally.within_time(cases):
        for engine in ("numpy", "keras"):
            path.write_bytes(content)
            more = [*arguments, "--engine", engine]
            _count(tally, guard, f"{engine}: {what}", more, tmp_path, "weights of")
    tally.finish()


def test_hostile_weights_of_version_0_3_are_not_converted(tmp_path, guard):
    tally = Tally("hostile weights of an encoder to convert", 18, 20)
    path = tmp_path / "x.weights.h5"
    network = scene_net.build_scene_net()
    network.save_weights(path)
    whole = path.read_bytes()
    for what, change in tally.within_time(changed_weights(guard.canaries)):
        path.write_bytes(whole)
        with h5py.File(path, "r+") as file:
            change(file)
        arguments = ["convert", str(path)]
        _count(tally, guard, what, arguments, tmp_path, "cannot be converted")
    index = tmp_path / "x.weights.json"
    for name in ("../canary.weights.h5", str(guard.canaries.file)):
        index.write_text(json.dumps({"metadata": {}, "weight_map": {"/": [name]}}))
        arguments = ["convert", str(index)]
        _count(
            tally, guard, f"an index of {name}", arguments, tmp_path, "must end with"
        )
    tally.finish()


def _not_finite(world, root: Path):
    """Yield descriptions and arguments of commands that meet NaN or infinity."""
    features = root / "work" / "tiny" / world.features.name
    train = world.stage("train", root, "--overwrite")
    for rate in ("1e9", "1e30"):
        change = ["--set", f"training.learning_rate={rate}"]
        yield f"learning_rate={rate}", [*train, *change]
    whole = features.read_bytes()
    for value in (np.nan, np.inf):
        with edited(features) as file:
            rows = file["features"][:]
            rows[:, 0, 0] = value
            file["features"][:] = rows
        yield f"features of {value}", train
        features.write_bytes(whole)


def test_values_that_are_not_finite_are_refused(artefacts, world):
    tally = Tally("values that are not finite", 4, 20)
    for what, arguments in tally.within_time(_not_finite(world, artefacts.root)):
        done = command_line.run(arguments, artefacts.root, SECONDS)
        judged = command_line.judge(done, handled=f"accepted without a word: {what}")
        tally.count(f"{arguments[0]}, {what}", *judged)
