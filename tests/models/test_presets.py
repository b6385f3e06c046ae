"""Folders of a model hub: layout, card, and captioners that come back unchanged."""

import json
import os

import hard_model
import keras
import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
import yaml
from checks import assert_equal_leaves
from nightly import others_nightly
from refusals import refused
from tensor_files import repack, unpacked

from show_attend_tell.config.runs import find_model
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.pretrained import CARD, NAMES, PRESETS, model_path
from show_attend_tell.runtime.errors import ModelFileError, SetupError

IDENTITY = {"encoder_identity": {"network": "VGG16", "layer": "block5_conv3"}}
BUILD = {
    "lstm": lambda rng: tiny.build(rng, IDENTITY),
    "hard": lambda rng: hard_model.build(rng, arguments=IDENTITY),
    "transformer": lambda rng: tiny_transformer.build(rng, arguments=IDENTITY),
}
FILES = {"config.json", "metadata.json", "model.weights.h5", "README.md"}
FILES |= {"model.safetensors"}


@pytest.fixture
def saved(rng, tmp_path):
    folder = tmp_path / "mine"
    tiny.build(rng, IDENTITY).save_to_preset(folder)
    return folder


def front_matter(folder):
    _, text, _ = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(text)


def test_a_folder_may_have_the_name_of_a_file(rng, tmp_path):
    folder = tmp_path / "mine.safetensors"
    tiny.build(rng, IDENTITY).save_to_preset(folder)
    assert {path.name for path in folder.iterdir()} == FILES


@pytest.mark.parametrize("kind", BUILD)
def test_a_folder_holds_the_captioner_in_kerashubs_layout(rng, tmp_path, kind):
    model, folder = BUILD[kind](rng), tmp_path / "mine"
    model.save_to_preset(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert list(tmp_path.iterdir()) == [folder]
    assert find_model(str(folder), tmp_path) == folder / "model.safetensors"
    card = front_matter(folder)
    assert (card["library_name"], card["license"]) == ("keras", "other")
    assert card["pipeline_tag"] == "image-to-text"
    metadata = json.loads((folder / "metadata.json").read_bytes())
    assert metadata["parameter_count"] == model.count_params()
    for loaded in (Captioner.from_preset(folder), keras.saving.load_model(folder)):
        assert loaded.get_config() | {"name": ""} == model.get_config() | {"name": ""}
        assert_equal_leaves(loaded.get_weights(), model.get_weights())


@pytest.mark.parametrize("name", others_nightly(PRESETS, kept=("shipped",)))
def test_a_packaged_model_writes_the_same_captions_from_its_folder(name, tmp_path):
    Captioner.from_preset(name).save_to_preset(tmp_path / "pushed")
    card, text = front_matter(tmp_path / "pushed"), CARD.read_text("utf-8")
    assert card["license_name"] == "research-and-education"
    assert (tmp_path / "pushed" / "README.md").read_text("utf-8").endswith(text)
    photo = "docs/images/sheep.jpg"
    pipelines = load(PRESETS[name]), load(tmp_path / "pushed")
    packaged, found = (pipeline.caption(photo, beam=2) for pipeline in pipelines)
    assert found.text == packaged.text
    assert (found.log_prob, found.confidence) == (
        packaged.log_prob,
        packaged.confidence,
    )
    assert found.confidence is not None


@pytest.mark.parametrize("name", PRESETS)
def test_models_have_one_name_on_the_command_line_and_as_presets(name, tmp_path):
    assert name in NAMES
    assert model_path(name, tmp_path) == PRESETS[name]
    assert "everyday" not in NAMES  # the files' names are no second set


def test_a_name_that_is_no_preset_is_refused_in_one_line(tmp_path):
    for name in ("flikr8k", tmp_path, "", "a\nb"):
        with refused(ModelFileError, "`preset` must be shipped or shipped-lstm or"):
            Captioner.from_preset(name)


def test_a_preset_that_an_installation_lacks_is_named(monkeypatch, tmp_path):
    """The models of Flickr8k alone are in a checkout only."""
    monkeypatch.setitem(PRESETS, "flickr8k", tmp_path / "flickr8k.safetensors")
    with refused(SetupError, "this installation has no model 'flickr8k'"):
        Captioner.from_preset("flickr8k")


DAMAGE = {
    "absent": lambda path: None,
    "a pipe": os.mkfifo,
    "empty": lambda path: path.touch(),
    "damaged": lambda path: path.write_bytes(b"{junk" * 100),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_folders_are_refused_as_model_files_are(saved, damage):
    (saved / "model.safetensors").unlink()
    (saved / "model.weights.h5").unlink()
    DAMAGE[damage](saved / "model.safetensors")
    with refused(ModelFileError, str(saved)):
        Captioner.from_preset(saved)


def test_a_folder_of_version_0_3_names_convert(saved):
    (saved / "model.safetensors").unlink()
    with refused(ModelFileError, f"run `show-attend-tell convert {saved}`"):
        Captioner.from_preset(saved)
    with refused(ModelFileError, f"run `show-attend-tell convert {saved}`"):
        load(saved)


def test_values_and_weights_of_a_folder_are_checked_and_its_files_kept(rng, saved):
    model = tiny.build(rng, IDENTITY)
    with pytest.raises(OSError, match="not empty"):
        model.save_to_preset(saved)
    assert {path.name for path in saved.iterdir()} == FILES
    config, _ = unpacked(saved / "model.safetensors")
    config["config"]["decoding"]["beam"] = 0
    repack(saved / "model.safetensors", config)
    with refused(ModelFileError, r"config\.decoding\.beam"):
        Captioner.from_preset(saved)
    model.weights[3].assign(np.full(model.weights[3].shape, np.nan))
    model.save_to_preset(saved.parent / "other")
    with refused(ModelFileError, "must be finite"):
        Captioner.from_preset(saved.parent / "other")
