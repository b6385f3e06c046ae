"""Model files of digits and words: smaller files, damaged files, and the package's."""

import dataclasses
import json
from itertools import product

import keras
import made_up_digits
import numpy as np
import pytest
import tiny_draw as tiny_drawing
import tiny_ram as tiny_glimpses
import tiny_reader
from checks import assert_equal_leaves
from nightly import nightly, others_nightly
from old_files import smaller
from PIL import Image
from random_weights import randomised
from refusals import refused
from tensor_files import pack, repack, unpacked
from tiny_digits import drawing_bytes, tiny_draw, tiny_ram
from tiny_reader import VARIANTS, drawn_crop, drawn_words, random_reader
from tiny_siblings import MODELS_OF
from zip_members import hdf5, replace_members, unzipped

from show_attend_tell.cli import main as cli
from show_attend_tell.conversion.convert import convert
from show_attend_tell.runtime.errors import ModelFileError, SetupError
from show_attend_tell.siblings.digits import page_models
from show_attend_tell.siblings.digits.classifier import PictureClassifier
from show_attend_tell.siblings.digits.draw.model import WindowClassifier
from show_attend_tell.siblings.digits.ram.model import PlaceNoise
from show_attend_tell.siblings.digits.settings import (
    ClassifierSettings,
    DrawReaderSettings,
)
from show_attend_tell.siblings.words import page_reader
from show_attend_tell.siblings.words.data import normalise
from show_attend_tell.siblings.words.model import Reader

MOST_BYTES = 5_000_000  # of a file in the package
SHIPPED = {task: models.shipped.stem for task, models in MODELS_OF.items()}


def load_model(path, task, experiment=None):
    return MODELS_OF[task].load(path, experiment)


def build_model(experiment):
    return MODELS_OF[experiment.task].build(experiment)


IMAGES = np.random.default_rng(0).random((3, 12, 12), np.float32)
MODELS = {
    "RAM": lambda rng: tiny_glimpses.build(rng, core="lstm"),
    "DRAW": lambda rng: tiny_drawing.build(rng, 12, 12),
    "DRAW without attention": lambda rng: tiny_drawing.build(rng, 12, 12, attention=0),
    "windows": lambda rng: randomised(
        WindowClassifier(DrawReaderSettings(3, 3, 6), 12), rng
    ),
    "a convolution": lambda rng: randomised(
        PictureClassifier(ClassifierSettings("convolution", (5,)), 12), rng
    ),
}
MODELS |= {
    "-".join(variant.values()): lambda rng, variant=variant: random_reader(variant)
    for variant in VARIANTS[::3]
}


@pytest.mark.parametrize("name", others_nightly(MODELS, kept=("DRAW", [*MODELS][-1])))
def test_a_saved_model_computes_the_same(rng, tmp_path, name):
    model = MODELS[name](rng)
    model.save(tmp_path / "model.safetensors")
    model.save(tmp_path / "model.keras")
    inputs = IMAGES
    if isinstance(model, Reader):
        crops = normalise(drawn_words(3)[0])[..., None]
        inputs = {"image": crops, "tokens": np.ones((3, 8), np.int32)}
    for loaded in (
        MODELS_OF[task_of(model)].load(tmp_path / "model.safetensors"),
        keras.saving.load_model(tmp_path / "model.keras"),
    ):
        assert type(loaded) is type(model)
        assert loaded.arguments() == model.arguments()
        assert_equal_leaves(model.get_weights(), loaded.get_weights())
        for generator in (getattr(each, "generator", None) for each in (model, loaded)):
            if generator is not None:
                generator.state.assign([0, 7])
        assert_equal_leaves(model(inputs), loaded(inputs))


def task_of(model):
    """Return the task of a model's class."""
    return next(task for task, m in MODELS_OF.items() if type(model) in m.classes)


OF_VERSION_0_3 = ("RAM", "DRAW", "a convolution", [*MODELS][-1])
KEPT = (("RAM", True), ("a convolution", None))


@pytest.mark.parametrize(
    ("name", "eight_bit"),
    others_nightly([*product(OF_VERSION_0_3, (None, False, True))], kept=KEPT),
)
def test_models_of_version_0_3_are_converted(rng, tmp_path, name, eight_bit):
    model = MODELS[name](rng)
    path = tmp_path / "model.keras"
    model.save(path)
    if eight_bit is not None:
        weights = smaller(unzipped(path.read_bytes())["model.weights.h5"], eight_bit)
        replace_members(path, {"model.weights.h5": weights})
    found = MODELS_OF[task_of(model)].load(convert(path).target)
    assert found.arguments() == model.arguments()
    for ours, theirs in zip(model.get_weights(), found.get_weights(), strict=True):
        bound = 0
        if eight_bit is not None:
            bound = np.abs(ours).max() / (250 if eight_bit and ours.ndim > 1 else 2000)
        assert np.abs(ours - theirs).max() <= bound
    _, arrays = unpacked(tmp_path / "model.safetensors")
    kinds = {None: np.float32, False: np.float16, True: np.int8}
    types = {values.dtype.type for values in arrays.values() if values.ndim > 1}
    assert types == {kinds[eight_bit]}


def test_a_damaged_model_of_version_0_3_is_one_line(tmp_path):
    path = tmp_path / "model.keras"
    tiny_ram().save(path)
    config = json.loads(unzipped(path.read_bytes())["config.json"])
    weights = unzipped(path.read_bytes())["model.weights.h5"]

    def external(file):
        del file["act/vars/0"]
        file.create_dataset("act/vars/0", (16, 10), "f4", external="/etc/passwd")

    def nan(file):
        file["act/vars/0"][0, 0] = np.nan

    def surplus(file):
        file["more/vars/0"] = np.zeros(3, "f4")

    for change, fault in ((external, "this file"), (nan, "act"), (surplus, "weights")):
        content = hdf5(change, weights)
        replace_members(path, {"model.weights.h5": content}, tmp_path / "bad.keras")
        with refused(ModelFileError, f"bad.keras: cannot be converted .*{fault}"):
            convert(tmp_path / "bad.keras")
    for key, value in (("width", 10**8), ("core", ["lstm"]), ("unknown", 1)):
        config["config"]["settings"][key] = value
        content = json.dumps(config)
        replace_members(path, {"config.json": content}, tmp_path / "bad.keras")
        with refused(ModelFileError, "bad.keras: cannot be converted"):
            convert(tmp_path / "bad.keras")
    assert not (tmp_path / "bad.safetensors").exists()


@pytest.mark.parametrize(
    "make", [made_up_digits.experiment, tiny_reader.experiment], ids=["RAM", "words"]
)
def test_the_same_seed_gives_the_same_weights_and_another_one_others(make):
    one, same, other = (
        build_model(make(training={"seed": k})).get_weights() for k in (1, 1, 2)
    )
    assert_equal_leaves(one, same)
    assert not np.allclose(max(one, key=np.size), max(other, key=np.size))


def outputs(folder):
    """Return what RAM and DRAW of a folder compute, from the same inputs."""
    ram, draw = (
        load_model(folder / f"{SHIPPED[task]}.safetensors", task)
        for task in ("classify", "generate")
    )
    rng = np.random.default_rng(0)
    noise = PlaceNoise(np.zeros((6, 2), "float32"), np.zeros((6, 3, 2), "float32"))
    images = rng.random((6, 28, 28), np.float32)
    seen = ram.look(images, noise)
    drawn = draw.draw(images, rng.standard_normal((6, 4, 6), np.float32))
    return {
        "probabilities": np.asarray(keras.ops.softmax(seen["logits"])),
        "canvas": np.asarray(keras.ops.sigmoid(drawn["canvas"])),
        "bound": np.asarray(drawn["l_x"]) + np.asarray(drawn["l_z"]).sum(-1),
    }


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with full models under the names of the package's models."""
    folder = tmp_path_factory.mktemp("runs")
    for task, make in (
        ("classify", tiny_ram),
        ("generate", tiny_draw),
        ("read", random_reader),
    ):
        make().save(folder / f"{SHIPPED[task]}.safetensors")
    return folder


def export(source, form, out):
    cli.main(["export", str(source), "--format", form, "--out", str(out)])
    return out.stat().st_size


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("form", "share", "error"), [("8bit", 0.6, 0.03), *nightly(("half", 0.7, 0.002))]
)
def test_smaller_files_compute_nearly_the_same(sources, tmp_path, form, share, error):
    for name in ("ram_mnist.safetensors", "draw_mnist.safetensors"):
        size = export(sources / name, form, tmp_path / name)
        assert size < share * (sources / name).stat().st_size
    ours, theirs = map(outputs, (tmp_path, sources))
    for name in ("probabilities", "canvas"):
        assert 0 < np.abs(ours[name] - theirs[name]).max() < error, name
    np.testing.assert_allclose(ours["bound"], theirs["bound"], rtol=error)


@pytest.mark.parametrize("task", SHIPPED)
@pytest.mark.parametrize(
    ("present", "message"), [(True, "cannot be read"), (False, "no such model")]
)
def test_a_damaged_or_absent_file_is_one_line(tmp_path, task, present, message):
    path = tmp_path / "model.safetensors"
    if present:  # without weights
        pack(path, {"class": MODELS_OF[task].classes[0].__name__}, {})
    with refused(ModelFileError, message):
        load_model(path, task)


def test_a_model_of_another_task_is_refused(sources):
    with refused(ModelFileError, "must be a model of task = 'generate'"):
        load_model(sources / "ram_mnist.safetensors", "generate")


@pytest.mark.parametrize(
    ("experiment", "changes"),
    [
        (made_up_digits.experiment, {"glimpse": {"patch": 9}}),
        (made_up_digits.drawing_experiment, {"draw": {"read": 4}}),
        *nightly(
            (made_up_digits.experiment, {"classifier": {"widths": [4]}}),
            (made_up_digits.experiment, {"draw": {"read": 7}}),
            (made_up_digits.experiment, {"data": {"canvas": 40}}),
            (tiny_reader.experiment, {"reader": {"width": 17}}),
        ),
    ],
)
def test_a_model_of_other_settings_is_refused(tmp_path, experiment, changes):
    path, chosen = tmp_path / "model.safetensors", experiment()
    build_model(chosen).save(path)
    assert load_model(path, chosen.task, chosen).built
    with pytest.raises(ModelFileError, match="other settings"):
        load_model(path, chosen.task, experiment(**changes))


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("width", 4096, r"must be \(.*4096"),
        ("width", 10**8, "width"),
        ("core", ["lstm"], "core"),
        ("unknown", 1, "unknown"),
    ],
)
def test_settings_are_verified_before_a_model_is_built(
    sources, tmp_path, key, value, fault
):
    source, path = sources / "ram_mnist.safetensors", tmp_path / "model.safetensors"
    about, arrays = unpacked(source)
    about["config"]["settings"][key] = value
    pack(path, about, arrays)
    with refused(ModelFileError, fault):
        load_model(path, "classify")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "`act/kernel` is missing"),
        (np.full((16, 10), np.nan, "f4"), "act/kernel.*lower"),
        (np.zeros((10, 16), "f4"), "must be"),
    ],
)
def test_missing_arrays_other_shapes_and_nan_are_refused(
    sources, tmp_path, value, fault
):
    source, path = sources / "ram_mnist.safetensors", tmp_path / "model.safetensors"
    repack(source, arrays={"act/kernel": value}, target=path)
    with refused(ModelFileError, fault):
        load_model(path, "classify")
    repack(source, arrays={"more": np.zeros(3, "f4")}, target=path)
    with refused(ModelFileError, "it also holds 'more'"):
        load_model(path, "classify")


# --- the files of the package ---


@pytest.mark.nightly
def test_exported_files_are_those_of_the_page(sources, tmp_path, monkeypatch):
    elsewhere = {
        task: dataclasses.replace(models, shipped=tmp_path / models.shipped.name)
        for task, models in MODELS_OF.items()
    }
    monkeypatch.setattr(page_models, "CLASSIFIERS", elsewhere["classify"])
    monkeypatch.setattr(page_models, "GENERATORS", elsewhere["generate"])
    monkeypatch.setattr(page_reader, "READERS", elsewhere["read"])
    with refused(SetupError, "EXPERIMENT=draw_mnist"):
        elsewhere["generate"].shipped_file()
    for name in SHIPPED.values():
        export(
            sources / f"{name}.safetensors", "8bit", tmp_path / f"{name}.safetensors"
        )
    digits = page_models.DigitModels()
    (tmp_path / "digit.png").write_bytes(drawing_bytes())
    with Image.open(tmp_path / "digit.png") as image:
        assert len(digits.classify(image, 0)["glimpses"]) == 3
    assert len(digits.draw(1)["canvases"]) == 5
    word = page_reader.PageReader().read(Image.fromarray(drawn_crop("stop")))
    assert len(word["attention"]) == len(word["word"]) > 0


@pytest.mark.parametrize("task", SHIPPED)
def test_the_models_of_the_package_are_small_and_loaded(task):
    file = MODELS_OF[task].shipped_file()
    assert file.stat().st_size < MOST_BYTES
    assert load_model(file, task).built
