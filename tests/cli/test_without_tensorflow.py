"""What README's first screen promises works where only the plain install is."""

import json
from pathlib import Path

import pytest
from new_process import python
from nightly import nightly
from tiny_pipeline import make_captioner, make_encoder, photo_bytes

from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.inference.pipeline import load

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PHOTO = ROOT / "docs" / "images" / "sheep.jpg"
SENTENCE = "A sheep is standing in the grass."
TRAINING = (
    *("h5py", "hdf5plugin", "jax", "keras", "nltk", "pycocoevalcap", "rapidfuzz"),
    *("requests", "scipy", "tensorboard", "tensorflow"),
)
PROLOGUE = f"""
import sys
for name in {TRAINING}:
    sys.modules[name] = None
"""
COMMAND = PROLOGUE + "from show_attend_tell.cli.main import main; main(sys.argv[1:])"


@pytest.mark.parametrize("model", ["shipped", *nightly("shipped-lstm")])
def test_a_photo_is_captioned_and_drawn(tmp_path, model):
    options = ("--model", model, "--attention", "figures", "--html", "page.html")
    done = python("-c", COMMAND, "caption", PHOTO, "--json", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    caption = json.loads(done.stdout)
    if model == "shipped":
        assert caption["sentence"] == SENTENCE
        line = README.read_text("utf-8").partition(f"{SENTENCE} (likely, ")[2]
        assert caption["confidence"] == pytest.approx(float(line[:4]), abs=0.01)
    assert 0 < caption["confidence"] < 1
    figures = [file.name for file in (tmp_path / "figures").iterdir()]
    assert figures == ["sheep.png"]
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_model_of_drawn_scenes_captions(tmp_path):
    settings = EncoderSettings("SceneNet", "annotations", "scenes", 112, "squash")
    model, photo = tmp_path / "model.safetensors", tmp_path / "a.png"
    make_captioner(make_encoder(settings)).save(model)
    photo.write_bytes(photo_bytes())
    done = python("-c", COMMAND, "caption", photo, "--model", model, cwd=tmp_path)
    sentence = load(model, engine="keras").caption(photo).sentence
    assert done.stdout == f"{photo}: {sentence}\n", done.stderr


def test_python_prints_the_lines_of_readme(tmp_path):
    script = PROLOGUE + (
        "import show_attend_tell as sat\n"
        "caption = sat.load().caption(sys.argv[1])\n"
        "print(caption.sentence, caption.attention.shape)"
    )
    done = python("-c", script, PHOTO, cwd=tmp_path)
    assert done.stdout == f"{SENTENCE} (7, 14, 14)\n", done.stderr


@pytest.mark.parametrize("name", ["Captioner", "FeatureReader"])
def test_public_names_that_need_more_name_what_to_install(tmp_path, name):
    script = PROLOGUE + (
        "import show_attend_tell as sat\n"
        f"assert not hasattr(sat, {name!r})\n"
        f"assert {name!r} not in sat.__all__ and {name!r} not in dir(sat)\n"
        f"try:\n    sat.{name}\n"
        "except AttributeError as error:\n    print(error)"
    )
    done = python("-c", script, cwd=tmp_path)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    assert "is not installed; run pip install 'show-attend-tell[train]'" in done.stdout


def test_help_and_a_star_import_show_what_is_installed(tmp_path):
    script = PROLOGUE + (
        "import pydoc\n"
        "import show_attend_tell as sat\n"
        "text = pydoc.plain(pydoc.render_doc(sat))\n"
        "assert 'class CaptioningPipeline' in text\n"
        "from show_attend_tell import *\n"
        "print(load.__name__, Caption.__name__, 'Captioner' in globals())"
    )
    done = python("-c", script, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("load Caption False\n", "")


@pytest.mark.nightly
def test_a_folder_is_captioned_into_a_table_and_into_metadata(tmp_path):
    (tmp_path / "sheep.jpg").write_bytes(PHOTO.read_bytes())
    arguments = ("caption", ".", "--out", "captions.csv", "--write-metadata")
    done = python("-c", COMMAND, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert SENTENCE.rstrip(".").lower() in (tmp_path / "captions.csv").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "-e", "scenes"),
        ("caption", PHOTO, "--engine", "keras"),
        *nightly(
            (("eval", "-e", "scenes"),),
            (("export", PHOTO, "--format", "keras", "--out", "out.keras"),),
            (("download", "flickr8k", "--data", "photos"),),
        ),
    ],
)
def test_what_needs_more_names_what_to_install(tmp_path, arguments):
    done = python("-c", COMMAND, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'show-attend-tell[train]'" in done.stderr
