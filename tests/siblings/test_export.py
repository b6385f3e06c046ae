"""Smaller files of models of digits, and those in the package."""

import json
import zipfile

import keras
import numpy as np
import pytest
from PIL import Image
from tiny_digits import drawing_bytes, tiny_draw, tiny_ram
from tiny_pipeline import make_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.errors import ModelFileError, PretrainedModelError
from show_attend_tell.siblings import pretrained
from show_attend_tell.siblings.classification import training as classification
from show_attend_tell.siblings.draw import training as generation
from show_attend_tell.siblings.export import export_smaller, is_of_digits
from show_attend_tell.siblings.page_models import PageModels
from show_attend_tell.siblings.ram.model import PlaceNoise
from show_attend_tell.siblings.saved_model import read_model

MOST_BYTES = 2_000_000  # of both files


def outputs(ram, draw, rng):
    """Return what the two models compute, of the same inputs in every call."""
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
    for name, model in (("ram_mnist", tiny_ram()), ("draw_mnist", tiny_draw())):
        model.save(folder / f"{name}.keras")
    return folder


@pytest.mark.parametrize(
    ("form", "share", "error"), [("half", 0.7, 0.002), ("8bit", 0.55, 0.03)]
)
def test_smaller_files_compute_nearly_the_same(sources, tmp_path, form, share, error):
    for name in ("ram_mnist", "draw_mnist"):
        source, out = sources / f"{name}.keras", tmp_path / f"{name}.keras"
        cli.main(["export", str(source), "--format", form, "--out", str(out)])
        assert out.stat().st_size < share * source.stat().st_size
    ours, theirs = (
        outputs(
            *(read_model(folder / f"{name}_mnist.keras") for name in ("ram", "draw")),
            np.random.default_rng(0),
        )
        for folder in (tmp_path, sources)
    )
    for name in ("probabilities", "canvas"):
        assert 0 < np.abs(ours[name] - theirs[name]).max() < error, name
    np.testing.assert_allclose(ours["bound"], theirs["bound"], rtol=error)


def test_8_bits_are_rounded_by_output_channel_and_vectors_are_float16(
    sources, tmp_path
):
    export_smaller(sources / "draw_mnist.keras", tmp_path / "out.keras", True)
    old, new = (
        {w.path: np.asarray(w) for w in read_model(path).weights}
        for path in (sources / "draw_mnist.keras", tmp_path / "out.keras")
    )
    assert old.keys() == new.keys()
    for path, values in old.items():
        error = np.abs(new[path] - values)
        if values.ndim > 1:
            step = np.abs(values).max(axis=0) / 127
            assert (error <= 0.501 * step + 1e-7).all(), path
        elif values.dtype == np.float32:
            assert (error <= 1e-3 * np.abs(values) + 1e-7).all(), path
        else:
            assert not error.any(), path


def test_only_models_of_digits_are_exported_so(sources, tmp_path):
    assert is_of_digits(sources / "ram_mnist.keras")
    encoder = EncoderSettings("SceneNet", "annotations", "none", 32, "crop")
    make_captioner(Encoder(encoder)).save(tmp_path / "captioner.keras")
    (tmp_path / "text.keras").write_text("none")
    with zipfile.ZipFile(tmp_path / "list.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(["Draw"]))
    for name in ("captioner", "text", "list", "absent"):
        assert not is_of_digits(tmp_path / f"{name}.keras"), name


def test_weights_that_are_not_finite_are_refused_and_nothing_is_written(tmp_path):
    model = tiny_draw()
    model.to_read.kernel.assign(np.full(model.to_read.kernel.shape, np.nan))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ModelFileError, match="must be finite"):
        export_smaller(tmp_path / "model.keras", tmp_path / "out.keras", True)
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_a_damaged_or_absent_source_is_one_line(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Draw"}))
    out = str(tmp_path / "out.keras")
    for name, message in (("model", "cannot be read"), ("absent", "no such model")):
        source = str(tmp_path / f"{name}.keras")
        with pytest.raises(SystemExit) as stop:
            cli.main(["export", source, "--format", "8bit", "--out", out])
        assert stop.value.code == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


# --- the files of the package ---


def test_exported_files_are_those_of_the_page(sources, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    assert not pretrained.are_shipped()
    for name in ("ram_mnist", "draw_mnist"):
        export_smaller(sources / f"{name}.keras", tmp_path / f"{name}.keras", True)
    assert pretrained.are_shipped()
    models = PageModels.shipped()
    (tmp_path / "digit.png").write_bytes(drawing_bytes())
    with Image.open(tmp_path / "digit.png") as image:
        assert len(models.classify(image, 0)["glimpses"]) == 3
    assert len(models.draw(1)["canvases"]) == 5


def test_an_absent_or_other_model_of_the_package_is_one_line(
    sources, tmp_path, monkeypatch
):
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    with pytest.raises(PretrainedModelError, match="no trained draw_mnist") as caught:
        pretrained.load_shipped("draw_mnist")
    assert "\n" not in str(caught.value)
    (tmp_path / "draw_mnist.keras").write_bytes(
        (sources / "ram_mnist.keras").read_bytes()
    )
    with pytest.raises(ModelFileError, match="other settings"):
        pretrained.load_shipped("draw_mnist")


def test_the_models_of_the_package_are_small():
    if not pretrained.are_shipped():
        pytest.skip("this installation ships no models of digits")
    files = [pretrained.FOLDER / f"{n}.keras" for n in ("ram_mnist", "draw_mnist")]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    assert pretrained.load_shipped("ram_mnist").canvas == 28
    assert pretrained.load_shipped("draw_mnist").height == 28


def test_two_models_of_the_experiments_sizes_are_small_enough(tmp_path):
    total = 0
    for name, room in (("ram_mnist", classification), ("draw_mnist", generation)):
        room.build_model(load_experiment(name)).save(tmp_path / f"{name}.keras")
        out = tmp_path / f"{name}-small.keras"
        total += export_smaller(tmp_path / f"{name}.keras", out, True)
    assert total < MOST_BYTES
