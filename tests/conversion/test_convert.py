"""Files, runs and presets of version 0.3 become files of this version."""

import hashlib
import json
import os
import shutil
import tomllib
from pathlib import Path

import hard_model
import keras
import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_run
import tiny_transformer
import tomli_w
from old_files import save_old, save_old_reranker
from refusals import refused
from shell import exit_code
from tensor_files import unpacked
from zip_members import replace_members

from show_attend_tell.config.settings import EncoderSettings, experiment_to_toml
from show_attend_tell.conversion.convert import convert
from show_attend_tell.data.encoder_identity import is_accepted
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder, weights_digest
from show_attend_tell.models.encoder.scene_net import build_scene_net
from show_attend_tell.models.encoder.weights import load_weights
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.encoder_file import source_md5
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.reference.reranker import (
    NgramVectors,
    Reranker,
    find_reranker,
    load_reranker,
)
from show_attend_tell.runtime.errors import ModelFileError

OLD = Path(__file__).parents[1] / "artefacts" / "version_0_1" / "runs"
IDENTITY = {"encoder_identity": {"network": "VGG16", "weights": "net.weights.h5"}}
BUILD = {
    "lstm": lambda rng: tiny.build(rng, IDENTITY, attention_layers=2, init_layers=2),
    "no start": lambda rng: tiny.build(rng, IDENTITY, init_layers=0),
    "mean": lambda rng: tiny.build(rng, IDENTITY, attention="mean"),
    "hard": lambda rng: hard_model.build(rng, arguments=IDENTITY),
    "transformer": lambda rng: tiny_transformer.build(
        rng, arguments=IDENTITY, encoder_layers=2, layers=2
    ),
    "transformer, post": lambda rng: tiny_transformer.build(
        rng, arguments=IDENTITY, norm="post", tie_output=False
    ),
}


def reranker_of(rng, words=tiny.WORDS, identity=None) -> Reranker:
    """Return a reranker of made-up numbers, rounded as its file rounds them."""
    ngrams = [(4,), (5,), (4, 5), (5, 6, 4)]
    return Reranker(
        NgramVectors(ngrams, np.float32([1, 2, 3, 4])),
        basis=rng.normal(size=(4, 2)),
        mean=np.zeros(tiny.D, np.float32),
        deviation=np.ones(tiny.D, np.float32),
        landmarks=rng.normal(size=(3, tiny.D)),
        coefficients=rng.normal(size=(3, 2)),
        gamma=0.5,
        vocabulary=tuple(words),
        encoder_identity=identity or IDENTITY["encoder_identity"],
    )


@pytest.mark.parametrize("kind", BUILD)
def test_a_captioner_keeps_its_weights_and_its_settings(rng, tmp_path, kind):
    model = BUILD[kind](rng)
    model.set_annotation_scale(3.0)
    save_old(model, tmp_path / "model.keras")
    done = convert(tmp_path / "model.keras")
    assert done.target == tmp_path / "model.safetensors"
    found = load_captioner(done.target)
    for ours, theirs in zip(model.weights, found.weights, strict=True):
        assert ours.path.partition("/")[2] == theirs.path.partition("/")[2]
        np.testing.assert_array_equal(ours, theirs)
    expected = model.get_config() | {"name": ""}
    expected["encoder_identity"] = {"network": "VGG16", "weights": "net.safetensors"}
    assert found.get_config() | {"name": ""} == expected
    assert (tmp_path / "model.keras").is_file()


@pytest.mark.parametrize("eight_bit", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_weights_of_fewer_bits_keep_them(rng, tmp_path, kind, eight_bit):
    model = BUILD[kind](rng)
    save_old(model, tmp_path / "model.keras", eight_bit)
    found = convert(tmp_path / "model.keras").target
    _, arrays = unpacked(found)
    kinds = {np.int8} if eight_bit else {np.float16}
    matrices = [x for n, x in arrays.items() if x.ndim > 1]
    assert {values.dtype.type for values in matrices} == kinds
    for ours, theirs in zip(model.weights, read_captioner(found).weights, strict=True):
        w = np.asarray(ours)
        step = np.abs(w).max() / (100 if eight_bit and w.ndim > 1 else 2000)
        assert np.abs(w - theirs).max() <= step


def test_a_reranker_beside_a_model_becomes_a_part_of_its_file_a_calibration_does_not(
    rng, tmp_path, capsys
):
    model, source = BUILD["lstm"](rng), tmp_path / "model.keras"
    save_old(model, source)
    reranker = reranker_of(rng)
    save_old_reranker(reranker, tmp_path / "model.reranker.npz")
    shutil.copy(tmp_path / "model.reranker.npz", tmp_path / "alone.npz")
    alone = load_reranker(convert(tmp_path / "alone.npz").target)
    np.testing.assert_allclose(alone.basis, reranker.basis, atol=0.05)
    (tmp_path / "model.confidence.npz").touch()
    assert exit_code("convert", source) == 0
    target = tmp_path / "model.safetensors"
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{source} -> {target}: 0.")
    assert "left out" in printed.out + printed.err
    assert f"calibrate --model {target}`" in printed.out + printed.err
    assert find_reranker(None, [target]).digest() == alone.digest()
    assert "confidence" not in unpacked(target)[0]


def test_a_run_is_converted_with_its_settings_and_its_checkpoint_is_named(
    rng, tmp_path, capsys
):
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    save_old(BUILD["lstm"](rng), folder / "model.keras")
    (folder / "checkpoint.npz").touch()
    settings = tomllib.loads(experiment_to_toml(tiny_run.experiment()))
    settings["encoder"]["trainable_from"] = ""
    settings["training"]["rollouts"] = "beam"
    (folder / "experiment.toml").write_text(tomli_w.dumps(settings))
    for name in ("tiny", folder):
        assert exit_code("convert", name, "--runs", folder.parent, "--overwrite") == 0
        assert "checkpoint is not converted; only" in capsys.readouterr().err
        assert (folder / "model.safetensors").is_file()
        kept = tomllib.loads((folder / "experiment.toml").read_text())
        assert "trainable_from" not in kept["encoder"]
        assert "rollouts" not in kept["training"]


def test_a_preset_is_converted(rng, tmp_path):
    model, folder = BUILD["transformer"](rng), tmp_path / "mine"
    model.save_to_preset(folder)
    (folder / "model.safetensors").unlink()
    save_old_reranker(reranker_of(rng), folder / "model.weights.reranker.npz")
    convert(folder)
    found = Captioner.from_preset(folder)
    for ours, theirs in zip(model.weights, found.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert find_reranker(None, [folder / "model.safetensors"]) is not None


def vgg(rng) -> keras.Model:
    """Return VGG16 with weights that float32 holds exactly."""
    network = keras.applications.VGG16(include_top=False, weights=None)
    network.set_weights(
        [rng.normal(0, 0.1, w.shape).astype("f2").astype("f4") for w in network.weights]
    )
    return network


@pytest.mark.nightly
def test_weights_of_vgg_are_converted_beside_a_model_too(rng, tmp_path):
    network, file = vgg(rng), tmp_path / "net.weights.h5"
    network.save_weights(file)
    md5 = hashlib.md5(file.read_bytes()).hexdigest()
    save_old(BUILD["lstm"](rng), tmp_path / "model.keras")
    convert(tmp_path / "model.keras")
    target = tmp_path / "net.safetensors"
    assert source_md5(target) == md5
    accepts = {"accepts": {"imagenet": md5}}
    assert is_accepted(accepts, target, source_md5(target))
    other = keras.applications.VGG16(include_top=False, weights=None)
    load_weights(other, target, "VGG16")
    assert weights_digest(other) == weights_digest(network)
    with refused(ModelFileError, "its network must be VGG19"):
        Encoder(EncoderSettings("VGG19", "block1_conv1", str(target), 32))


@pytest.mark.nightly
def test_weights_of_scene_net_and_of_other_networks_are_converted(rng, tmp_path):
    network = build_scene_net()
    network.save_weights(tmp_path / "scene.weights.h5")
    other = build_scene_net()
    load_weights(other, convert(tmp_path / "scene.weights.h5").target, "SceneNet")
    assert weights_digest(other) == weights_digest(network)
    build = keras.applications.MobileNet
    file = tmp_path / "mobile.weights.h5"
    network = build(include_top=False, weights=None)
    network.save_weights(file)
    with refused(ModelFileError, "name the network with --network"):
        convert(file)
    with refused(ModelFileError, "of keras.applications. Received: 'MobilNet'"):
        convert(file, network="MobilNet")
    with refused(ModelFileError, "cannot be converted"):
        convert(file, network="VGG16")
    other = build(include_top=False, weights=None)
    load_weights(other, convert(file, network="MobileNet").target, "MobileNet")
    assert weights_digest(other) == weights_digest(network)


@pytest.mark.parametrize("name", ["tiny", "tiny-hard"])
def test_a_model_before_version_0_3_is_one_line_that_names_0_3(tmp_path, name):
    shutil.copy(OLD / name / "model.keras", tmp_path / "model.keras")
    with refused(ModelFileError, "a version before 0.3 saved it.*files of version 0.3"):
        convert(tmp_path / "model.keras")


def test_a_reranker_of_another_format_is_one_line_that_names_0_3(rng, tmp_path):
    save_old_reranker(reranker_of(rng), tmp_path / "a.npz", format=1)
    with refused(ModelFileError, "`format` must be 2.*files of version 0.3"):
        convert(tmp_path / "a.npz")


def test_a_reranker_whose_arrays_have_false_headers_is_one_line(rng, tmp_path):
    file = tmp_path / "a.npz"
    save_old_reranker(reranker_of(rng), file)
    for header in (b"(" * 9000, b"{'descr': '<f4', 'fortran_order'", b"", b"{}"):
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        replace_members(file, {"about.npy": content}, tmp_path / "b.npz")
        with refused(ModelFileError, "b.npz: cannot be converted"):
            convert(tmp_path / "b.npz")


def test_arrays_of_another_program_are_one_line(tmp_path):
    file = tmp_path / "results.npz"
    np.savez(file, accuracy=np.zeros(3))
    with refused(ModelFileError, "`block1_conv1/kernel` is missing.*version 0.3"):
        convert(file)
    assert list(tmp_path.iterdir()) == [file]


def test_fine_tuned_convolutions_are_one_line(rng, tmp_path):
    file = tmp_path / "model.keras"
    save_old(BUILD["lstm"](rng), file, changes={"convolutions": ["block5_conv3"]})
    with refused(ModelFileError, r"`convolutions` must be \[\]; version 0.3 reads"):
        convert(file)
    assert not (tmp_path / "model.safetensors").exists()


def test_paths_that_need_no_conversion_or_have_no_model_are_one_line(rng, tmp_path):
    good, old = tmp_path / "good.safetensors", tmp_path / "good.keras"
    tiny.build(rng).save(good)
    with refused(ModelFileError, "is already a .safetensors file"):
        convert(good)
    save_old(tiny.build(rng), old)
    before = good.read_bytes()
    with refused(ModelFileError, "already exists; replace it with --overwrite"):
        convert(old)
    assert good.read_bytes() == before
    with refused(ModelFileError, "no such file"):
        convert(tmp_path / "absent.keras")
    with refused(ModelFileError, "must be a run or a preset"):
        convert(tmp_path)
    with refused(ModelFileError, "absent: no such file, run or preset"):
        convert("absent", tmp_path)
    (tmp_path / "a.txt").touch()
    with refused(ModelFileError, "must end with .keras, .npz or .h5"):
        convert(tmp_path / "a.txt")
    np.savez(tmp_path / "good.confidence.npz", familiarity=np.zeros(6))
    with refused(ModelFileError, rf"part of its model; run .*convert {old}`"):
        convert(tmp_path / "good.confidence.npz")
    np.savez(tmp_path / "checkpoint.npz", x=np.zeros(3))
    content = zip_with_position(tmp_path / "checkpoint.npz")
    with refused(ModelFileError, "only show-attend-tell 0.3 resumes it"):
        convert(content)
    os.mkfifo(tmp_path / "pipe.keras")
    with refused(ModelFileError, "not a regular file"):
        convert(tmp_path / "pipe.keras")


def zip_with_position(path):
    """Return a checkpoint of version 0.3."""
    replace_members(path, {"position.json": json.dumps({"epoch": 1}).encode()})
    return path


def test_every_command_names_convert_for_an_old_path(rng, tmp_path, capsys):
    file = tmp_path / "model.keras"
    tiny.build(rng).save(file)
    photo = "docs/images/sheep.jpg"
    for arguments in (
        ("caption", "--model", file, photo),
        ("caption", "--model", file, "--engine", "keras", photo),
        ("caption", "--reranker", tmp_path / "x.npz", photo),
        ("caption", "--encoder-weights", tmp_path / "x.weights.h5", photo),
        ("demo", file, "--port", "0"),
        ("export", file, "--format", "half", "--out", tmp_path / "out.safetensors"),
        ("export", file, "--format", "onnx", "--out", tmp_path / "out"),
        ("eval", "-e", "scenes", "--model", file, "--work", tmp_path),
        ("calibrate", "-e", "scenes", "--model", file, "--work", tmp_path),
        ("average", file, file, "--runs", tmp_path / "runs"),
    ):
        assert exit_code(*arguments) == 1, arguments
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("error: ")
        assert "show-attend-tell convert" in line, line
    convert(file)
    assert exit_code("caption", "--model", file, photo) == 1
    error = capsys.readouterr().err
    assert f"`convert` made it {tmp_path / 'model.safetensors'}" in error
