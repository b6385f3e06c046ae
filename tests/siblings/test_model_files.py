"""Model files of digits and words: smaller files, damaged files, and the package's."""

import json
import zipfile

import keras
import made_up_digits
import made_up_drawing
import made_up_reading
import numpy as np
import pytest
from PIL import Image
from tiny_digits import drawing_bytes, tiny_draw, tiny_ram
from tiny_page_reader import random_reader
from tiny_reader import drawn_crop

from show_attend_tell.cli import main as cli
from show_attend_tell.deployment.exports.half_precision import save_half
from show_attend_tell.deployment.server.siblings import DigitModels
from show_attend_tell.deployment.server.siblings import WordReader
from show_attend_tell.runtime.errors import ModelFileError, PretrainedModelError
from show_attend_tell.siblings import models
from show_attend_tell.siblings.draw import task as generation
from show_attend_tell.siblings.model_files import DRAW, RAM, READER
from show_attend_tell.siblings.ram import task as classification
from show_attend_tell.siblings.ram.model import PlaceNoise
from show_attend_tell.siblings.words import task as reading

MOST_BYTES = 2_000_000  # of both models of digits


def shrink(model, path, load):
    """Write a model with 8 bits per weight; return the size of the file."""
    full = path.with_suffix(".full.keras")
    model.save(full)
    size = save_half(full, path, eight_bit=True, load=load)
    full.unlink()
    return size


def load(folder):
    """Load RAM and DRAW."""
    return (
        classification.load_model(folder / f"{RAM}.keras"),
        generation.load_model(folder / f"{DRAW}.keras"),
    )


def outputs(ram, draw, rng):
    """Return what the two models compute, from the same inputs in every call."""
    noise = PlaceNoise(np.zeros((6, 2), "float32"), np.zeros((6, 3, 2), "float32"))
    images = rng.random((6, 28, 28), np.float32)
    z = rng.standard_normal((6, 4, 6), np.float32)
    seen = ram.look(images, noise)
    drawn = draw.draw(images, z)
    return {
        "probabilities": np.asarray(keras.ops.softmax(seen["logits"])),
        "canvas": np.asarray(keras.ops.sigmoid(drawn["canvas"])),
        "bound": np.asarray(drawn["l_x"]) + np.asarray(drawn["l_z"]).sum(-1),
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, model in ((RAM, tiny_ram()), (DRAW, tiny_draw())):
        model.save(folder / f"{name}.keras")
    return folder


@pytest.mark.parametrize(
    ("form", "share", "error"), [("half", 0.7, 0.002), ("8bit", 0.55, 0.03)]
)
def test_smaller_files_compute_nearly_the_same(sources, tmp_path, form, share, error):
    for name in (RAM, DRAW):
        source, out = sources / f"{name}.keras", tmp_path / f"{name}.keras"
        cli.main(["export", str(source), "--format", form, "--out", str(out)])
        assert out.stat().st_size < share * source.stat().st_size
    ours, theirs = (
        outputs(*load(folder), np.random.default_rng(0))
        for folder in (tmp_path, sources)
    )
    for name in ("probabilities", "canvas"):
        assert 0 < np.abs(ours[name] - theirs[name]).max() < error, name
    np.testing.assert_allclose(ours["bound"], theirs["bound"], rtol=error)


@pytest.mark.parametrize("task", [classification, generation, reading])
@pytest.mark.parametrize(
    ("content", "message"),
    [({"class_name": "Draw"}, "cannot be read"), (None, "no such model")],
    ids=["damaged", "absent"],
)
def test_a_damaged_or_absent_file_is_one_line(tmp_path, task, content, message):
    path = tmp_path / "model.keras"
    if content is not None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps(content))
    with pytest.raises(ModelFileError, match=message) as caught:
        task.load_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "experiment", "changes"),
    [
        (classification, made_up_digits.experiment, {"glimpse": {"patch": 9}}),
        (classification, made_up_digits.experiment, {"classifier": {"widths": [4]}}),
        (classification, made_up_digits.experiment, {"data": {"canvas": 40}}),
        (generation, made_up_drawing.experiment, {"draw": {"read": 4}}),
        (reading, made_up_reading.experiment, {"reader": {"width": 17}}),
    ],
)
def test_a_model_of_other_settings_is_refused(tmp_path, task, experiment, changes):
    path = tmp_path / "model.keras"
    task.build_model(experiment()).save(path)
    assert task.load_model(path, experiment()).built
    with pytest.raises(ModelFileError, match="other settings"):
        task.load_model(path, experiment(**changes))


# --- the files of the package ---


def test_exported_files_are_those_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    assert DigitModels.shipped() is WordReader.shipped() is None
    for name, model, task in (
        (RAM, tiny_ram(), classification),
        (DRAW, tiny_draw(), generation),
        (READER, random_reader(), reading),
    ):
        shrink(model, tmp_path / f"{name}.keras", task.load_model)
    models = DigitModels.shipped()
    (tmp_path / "digit.png").write_bytes(drawing_bytes())
    with Image.open(tmp_path / "digit.png") as image:
        assert len(models.classify(image, 0)["glimpses"]) == 3
    assert len(models.draw(1)["canvases"]) == 5
    word = WordReader.shipped().read(Image.fromarray(drawn_crop("stop")))
    assert len(word["attention"]) == len(word["word"]) > 0


def test_an_absent_or_other_model_of_the_package_is_one_line(
    sources, tmp_path, monkeypatch
):
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    with pytest.raises(PretrainedModelError, match="EXPERIMENT=draw_mnist") as caught:
        model_files.shipped_file(DRAW)
    assert "\n" not in str(caught.value)
    with pytest.raises(ModelFileError, match="must be a model of task = 'generate'"):
        generation.load_model(sources / f"{RAM}.keras")


def test_the_models_of_the_package_are_small():
    if not model_files.are_shipped(RAM, DRAW):
        pytest.skip("this installation ships no models of digits")
    files = [model_files.shipped_file(name) for name in (RAM, DRAW)]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    ram, draw = load(model_files.FOLDER)
    assert ram.canvas == draw.height == 28
