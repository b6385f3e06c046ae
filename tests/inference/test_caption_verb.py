"""The verb ``caption``: lines, JSON, figures, pages, metadata, failures."""

import json

import pytest
from PIL import Image
from shell import exit_code
from tiny_pipeline import photo_bytes

from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.visualization import attention_figure as figures
from show_attend_tell.inference.xmp import XmpPacket
from show_attend_tell.models import pretrained


@pytest.fixture(scope="module")
def results(pipeline, folder):
    return list(pipeline.caption_photos([folder]))


def test_it_prints_a_line_for_each_photo_and_continues_after_failures(
    run, folder, results
):
    code, out, err = run(folder)
    captions = [one for one in results if not isinstance(one, Failure)]
    assert out == [f"{one.path}: {one.sentence}" for one in captions]
    assert code == 1
    assert err.count("\n") == 1
    assert "broken.jpeg: cannot be read" in err
    code, out, err = run(folder / "a.png", folder / "b.JPG")
    assert (code, err, len(out)) == (0, "", 2)


def test_it_prints_json_lines_also_for_failures(run, folder, results):
    code, out, err = run("--json", folder)
    assert code == 1
    assert "broken.jpeg" in err
    expected = [json.loads(json.dumps(one.to_dict())) for one in results]
    assert [json.loads(line) for line in out] == expected


def test_it_passes_its_options_to_decoding(run, pipeline, photo):
    for options, changes in (
        ((), {}),
        (("--beam", 1), {"beam": 1}),
        (("--locations", "likeliest"), {"locations": "likeliest"}),
        (
            ("--locations", "sampled", "--seed", 4),
            {"locations": "sampled", "seed": 4},
        ),
    ):
        _, (line,), _ = run("--json", *options, photo)
        (expected,) = pipeline.caption_photos([photo], CaptionRequest(**changes))
        assert json.loads(line) == json.loads(json.dumps(expected.to_dict()))


def test_unknown_options_are_refused_in_one_line(run, photo):
    code, out, err = run("--locations", "best", photo)
    assert (code, out) == (2, [])
    assert "'best' is not one of 'expected', 'likeliest'" in err
    code, out, err = run("--seed", 3, photo)
    assert (code, out, err.count("\n")) == (1, [], 1)
    assert "`seed` has no effect" in err


def test_it_reports_errors_of_loading_in_one_line(run, monkeypatch, tmp_path, photo):
    monkeypatch.undo()  # load the model named
    code, out, err = run("--encoder-weights", tmp_path / "no.h5", photo)
    assert (code, out) == (1, [])
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_without_a_model_the_shipped_one_is_used_or_named_as_missing(
    pipeline, photo, monkeypatch, capsys, tmp_path, run
):
    loaded = []

    def load(model, weights, **options):
        loaded.append(model)
        return pipeline

    monkeypatch.undo()  # load the model named
    for name in pretrained.PACKAGED:
        absent = tmp_path / f"{name}.safetensors"
        monkeypatch.setitem(pretrained.PRESETS, name, absent)
        assert exit_code("caption", "--model", name, photo) == 1
        error = capsys.readouterr().err
        assert f"{name}.safetensors: " in error
        assert error.endswith("pass its file as --model\n")
    monkeypatch.setattr("show_attend_tell.inference.pipeline.load", load)
    assert exit_code("caption", photo) == 0
    assert capsys.readouterr().out.startswith(f"{photo}: ")
    assert loaded == ["shipped"]


def test_it_draws_figures_with_the_locations_selected(
    run, photo, monkeypatch, tmp_path, pipeline
):
    drawn, draw = [], figures.attention_figure

    def keep(*args, locations, **options):
        drawn.append(locations)
        return draw(*args, locations=locations, **options)

    monkeypatch.setattr(figures, "attention_figure", keep)
    code, _, err = run("--attention", tmp_path, "--locations", "sampled", photo)
    assert code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["a photo.png"]
    assert f"figure: {tmp_path / 'a photo.png'}" in err.splitlines()
    expected = pipeline.caption(photo, locations="sampled")
    assert [locations.tolist() for locations in drawn] == [expected.locations.tolist()]


@pytest.mark.parametrize(("theme", "ground"), [("light", 255), ("dark", 20)])
def test_it_draws_in_the_format_and_theme_asked_for(
    run, photo, tmp_path, theme, ground
):
    options = ("--attention", tmp_path, "--format", "png", "--theme", theme)
    assert run(*options, photo)[0] == 0
    (only,) = tmp_path.iterdir()
    assert only.name == "a photo.png"
    with Image.open(only) as picture:
        assert picture.convert("RGB").getpixel((0, 0))[0] == ground


def test_it_writes_one_page_for_all_photos(run, folder, tmp_path):
    page = tmp_path / "page.html"
    code, _, err = run("--html", page, folder)
    assert code == 1  # for the broken photo
    assert err.splitlines()[-1] == f"page: {page}"
    assert page.read_text("utf-8").count('class="photo"') == 5


@pytest.fixture
def photos(tmp_path):
    """A folder of two photos and a damaged one."""
    for seed, name in enumerate(("a.png", "b.PNG"), start=1):
        (tmp_path / name).write_bytes(photo_bytes(seed, size=(60, 40)))
    (tmp_path / "broken.jpeg").write_bytes(b"\xff\xd8\xff not really")
    return tmp_path


def captions_in(folder):
    return {
        path.name: XmpPacket(path.read_bytes()).caption for path in folder.glob("*.xmp")
    }


def test_caption_writes_sidecars_and_resumes(run, pipeline, photos, monkeypatch):
    code, lines, err = run("--write-metadata", photos)
    assert code == 1
    assert err.splitlines()[-1] == "metadata: 2 captions written"
    found = captions_in(photos)
    assert sorted(found) == ["a.png.xmp", "b.PNG.xmp"]
    assert lines == [f"{photos / name[:-4]}: {found[name]}" for name in sorted(found)]
    assert found["a.png.xmp"] == pipeline.caption(photos / "a.png").sentence
    (photos / "a.png.xmp").unlink()
    captioned = []

    def spy(read, *settings, whole=pipeline._caption_batch):
        captioned.extend(photo.path for photo in read)
        return whole(read, *settings)

    monkeypatch.setattr(pipeline, "_caption_batch", spy)
    code, again, err = run("--write-metadata", photos / "b.PNG", photos / "a.png")
    assert (code, again) == (0, lines[::-1])
    assert captioned == [photos / "a.png"]
    assert err == "metadata: 1 caption written, 1 already present\n"
    assert captions_in(photos) == found


def test_writing_metadata_shows_its_progress(run, photos):
    _, lines, err = run("--write-metadata", photos)
    assert "caption: 100%" in err
    assert "3/3" in err
    assert len(lines) == 2
    _, _, err = run("--write-metadata", "--out", photos / "a.jsonl", photos)
    assert "metadata" not in err.partition("caption:")[0]
    _, _, err = run("--write-metadata", "--out", photos / "a.jsonl", photos)
    assert "metadata: 100%" in err


@pytest.mark.parametrize("out", [(), ("--out", "captions.jsonl")])
def test_a_photo_that_is_replaced_while_it_is_captioned_is_captioned_again(
    run, pipeline, photos, monkeypatch, out
):
    monkeypatch.chdir(photos)
    options = ("--write-metadata", *out, "a.png", "b.PNG")
    content = (photos / "b.PNG").read_bytes()

    def replace(*arguments, whole=pipeline._caption_batch):
        (photos / "a.png").write_bytes(content)  # it was read before
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_caption_batch", replace)
        run(*options)
    for counts in ("1 caption written, 1 already", "0 captions written, 2 already"):
        code, lines, err = run(*options)
        assert code == 0
        assert err.splitlines()[-1] == f"metadata: {counts} present"
        assert not out or lines == [f"captions.jsonl: {counts} present"]


@pytest.mark.parametrize("out", [(), ("--out", "captions.jsonl")])
def test_a_photo_that_was_replaced_by_a_damaged_one_loses_its_caption(
    run, photos, monkeypatch, out
):
    monkeypatch.chdir(photos)
    options = ("--write-metadata", *out, "a.png", "b.PNG")
    run(*options)
    (photos / "a.png").write_bytes(b"no photo")
    code, _, err = run(*options)
    assert code == 1
    assert err.splitlines()[-1] == (
        "metadata: 0 captions written, 1 already present, 1 of replaced photos removed"
    )
    assert captions_in(photos)["a.png.xmp"] == ""
    assert captions_in(photos)["b.PNG.xmp"]


def test_figures_of_heads_are_drawn_on_request(run, photo, tmp_path, monkeypatch):
    def draw(engine, caption, dark):
        return figures.caption_figure(caption, dark)

    monkeypatch.setattr(figures, "heads_figure", draw)
    run("--attention", tmp_path / "one", photo)
    run("--attention", tmp_path / "two", "--heads", "--format", "svg", photo)
    names = sorted(path.name for path in tmp_path.rglob("*.*"))
    assert names == ["a photo-heads.svg", "a photo.png", "a photo.svg"]
    code, _, err = run("--heads", photo)
    assert (code, "--heads needs --attention" in err) == (2, True)


def test_out_with_metadata_completes_an_interrupted_run(run, photos):
    out = photos / "out" / "captions.jsonl"
    assert run("--out", out, photos / "a.png")[0] == 0  # as if ended before a sidecar
    assert captions_in(photos) == {}
    code, lines, err = run("--out", out, "--write-metadata", photos)
    assert code == 1
    assert "1 caption written, 1 already present" in lines[-1]
    assert err.splitlines()[-1] == "metadata: 2 captions written"
    assert sorted(captions_in(photos)) == ["a.png.xmp", "b.PNG.xmp"]
