"""Captions written from one location a word: asked for, told and drawn."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image
from speaking_captioner import ENCODER, make_captioner

import show_attend_tell as sat
from show_attend_tell.cli import main as cli
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference import captioning as caption
from show_attend_tell.inference import figures as caption_figures
from show_attend_tell.inference.attention_figure import attention_figure
from show_attend_tell.inference.batch import caption_album
from show_attend_tell.runtime.errors import CaptionError, OutputFileError


@pytest.fixture(scope="module")
def captioner():
    return make_captioner(sat.Encoder(ENCODER))


@pytest.fixture(scope="module")
def files(captioner, tmp_path_factory):
    """A model's file and a photo."""
    folder = tmp_path_factory.mktemp("files")
    captioner.save(folder / "model.keras")
    pixels = np.random.default_rng(5).integers(0, 256, (40, 48, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    return folder


def by_verb(capsys, files, *options):
    """Return what ``caption --json`` prints of the photo."""
    model = ("--model", files / "model.keras")
    cli.main(["caption", *map(str, (*model, *options, "--json", files / "a.png"))])
    return json.loads(capsys.readouterr().out)


def peaks(attention):
    return np.reshape(attention, (len(attention), -1)).argmax(1).tolist()


def test_the_verb_tells_the_location_of_each_word_where_asked(capsys, files):
    assert "locations" not in by_verb(capsys, files)
    found = by_verb(capsys, files, "--locations", "likeliest")
    assert found["locations"] == peaks(found["attention"])
    drawn = by_verb(capsys, files, "--locations", "sampled", "--seed", 4)
    assert len(drawn["locations"]) == len(drawn["words"])
    assert drawn["locations"] != peaks(drawn["attention"])


def test_other_seeds_draw_other_locations(files):
    model, photo = sat.load(files / "model.keras"), files / "a.png"
    seeds = (None, 0, 2, 4, 6, 7)
    found = [model.caption(photo, None, "sampled", seed) for seed in seeds]
    drawn = [tuple(one.locations) for one in found if one.words]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 2


def test_a_photos_draws_do_not_depend_on_other_photos(files, tmp_path):
    rng = np.random.default_rng(6)
    for name in "bc":
        pixels = rng.integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    among = [tmp_path / "b.png", files / "a.png", tmp_path / "c.png"]
    how = {"locations": "sampled", "seed": 4}
    model = files / "model.keras"
    (alone,) = caption.caption_paths(model, [files / "a.png"], **how)
    _, found, _ = caption.caption_paths(model, among, **how)
    assert found.locations.tolist() == alone.locations.tolist()


def test_python_gives_what_the_verb_prints(capsys, files):
    printed = by_verb(capsys, files, "--locations", "sampled", "--seed", 4)
    photo = (files / "a.png", None, "sampled", 4)
    found = sat.load(files / "model.keras").caption(*photo)
    assert found.locations.tolist() == printed["locations"]
    assert found.text == printed["text"]


def test_the_verb_draws_the_locations_chosen(files, monkeypatch, tmp_path):
    drawn = []

    def keep(*args, locations, **options):
        drawn.append(locations)
        return attention_figure(*args, locations=locations, **options)

    monkeypatch.setattr(caption_figures, "attention_figure", keep)
    where = ("--attention", tmp_path, "--format", "png", "--locations", "sampled")
    model = ("--model", files / "model.keras")
    cli.main(["caption", *map(str, (*model, *where, files / "a.png"))])
    assert (tmp_path / "a.png").is_file()
    (one,) = caption.caption_paths(model[1], [files / "a.png"], locations="sampled")
    assert [locations.tolist() for locations in drawn] == [one.locations.tolist()]


def test_rows_written_from_other_locations_are_not_mixed(files, tmp_path):
    album = (files / "model.keras", [files / "a.png"], tmp_path / "captions.jsonl")
    caption_album(*album, locations="likeliest", shown=False)
    with pytest.raises(
        OutputFileError, match="beam 3, likeliest, and not by .* beam 3; name"
    ):
        caption_album(*album, shown=False)


def test_rows_tell_the_seed_of_their_locations(files, tmp_path):
    album = (files / "model.keras", [files / "a.png"], tmp_path / "captions.jsonl")
    caption_album(*album, locations="sampled", seed=3, shown=False)
    with pytest.raises(OutputFileError, match="beam 3, sampled with seed 3, and not"):
        caption_album(*album, locations="sampled", seed=4, shown=False)


def test_the_models_own_locations_stand_unless_others_are_given(captioner):
    own = {**dataclasses.asdict(captioner.decoding), "locations": "likeliest"}
    model = make_captioner(sat.Encoder(ENCODER))
    model.decoding = DecodingSettings(**own)
    assert caption.decoding_of(model) == DecodingSettings(**own)
    assert caption.decoding_of(model, locations="expected").locations == "expected"


@pytest.mark.parametrize("locations", [None, "likeliest"])
def test_a_seed_that_changes_nothing_is_refused(captioner, locations):
    with pytest.raises(CaptionError, match="a seed changes nothing where"):
        caption.decoding_of(captioner, locations=locations, seed=3)
    drawn = caption.decoding_of(captioner, locations="sampled", seed=3)
    assert drawn.seed == 3


def test_unknown_locations_are_refused(captioner, files, capsys):
    with pytest.raises(CaptionError, match="`locations` be expected, likel"):
        caption.decoding_of(captioner, locations="best")
    with pytest.raises(CaptionError, match="`seed` at least 0"):
        caption.decoding_of(captioner, seed=-1)
    with pytest.raises(SystemExit):
        by_verb(capsys, files, "--locations", "best")
    assert "'best' is not one of 'expected', 'likeliest'" in capsys.readouterr().err
