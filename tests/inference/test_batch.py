"""Captions of folders into files: resuming, failures, CSV, the gallery."""

import base64
import csv
import html
import io
import itertools
import json
import os
import re
import shutil

import pytest
from chromium import browser, fits
from PIL import Image
from tiny_pipeline import photo_image

from show_attend_tell.inference.batch import caption_into_file, made_by
from show_attend_tell.inference.gallery import write_gallery
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import DOUBTFUL, LowConfidence, as_sentence
from show_attend_tell.runtime.errors import CaptionError

NAMES = ["a b.png", "z.png", "nested/été.jpg", "nested/花.webp"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photos"
    (folder / "nested").mkdir(parents=True)
    for seed, name in enumerate(NAMES):
        photo_image(seed, (48, 40)).save(folder / name)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff not really")
    return folder


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_photos_become_rows_and_bad_ones_are_listed_and_skipped(run, folder, tmp_path):
    out = tmp_path / "new" / "captions.jsonl"
    code, lines, err = run(folder, "--out", out)
    assert code == 1
    assert [row["path"] for row in rows(out)] == [str(folder / n) for n in NAMES]
    assert all(row["log_prob"] < 0 for row in rows(out))
    assert len({row["caption"] for row in rows(out)}) > 1
    assert lines == [f"{out}: 4 captions written, 1 photo skipped"]
    assert "broken.jpg: cannot be read as a photo" in err
    (folder / "broken.jpg").unlink()
    code, lines, _ = run(folder, "--out", out)
    assert (code, lines) == (0, [f"{out}: 0 captions written, 4 already present"])


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_second_run_resumes_and_ends_with_the_same_file(
    pipeline, folder, tmp_path, ending
):
    whole = tmp_path / f"whole{ending}"
    caption_into_file(pipeline, [folder], whole)
    (folder / "broken.jpg").unlink()
    part = tmp_path / f"part{ending}"
    lines = whole.with_suffix(".jsonl").read_bytes().splitlines(keepends=True)
    part.with_suffix(".jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:20])
    photos = [folder, folder / "z.png"]
    report = caption_into_file(pipeline, photos, part)
    assert (report.written, report.present, report.failures) == (2, 2, ())
    # A row's numbers may differ in the last digit, for it was in another batch.
    assert [row["caption"] for row in rows(part.with_suffix(".jsonl"))] == [
        row["caption"] for row in rows(whole.with_suffix(".jsonl"))
    ]
    if ending == ".csv":
        with part.open(encoding="utf-8", newline="") as file:
            found = [row["path"] for row in csv.DictReader(file) if not row["error"]]
        assert found == [str(folder / name) for name in NAMES]


def test_an_interruption_keeps_every_caption_so_far(
    pipeline, folder, tmp_path, monkeypatch
):
    whole = CaptioningPipeline.caption_inputs

    def interrupted(self, *arguments):
        yield from itertools.islice(whole(self, *arguments), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(CaptioningPipeline, "caption_inputs", interrupted)
    out = tmp_path / "captions.jsonl"
    with pytest.raises(KeyboardInterrupt):
        caption_into_file(pipeline, [folder], out)
    assert len(rows(out)) == 2  # the third result is the damaged photo
    assert {path.name for path in tmp_path.iterdir()} == {"captions.jsonl", "photos"}


def test_a_csv_without_its_journal_is_not_lost(pipeline, folder, tmp_path):
    out = tmp_path / "captions.csv"
    caption_into_file(pipeline, [folder], out)
    out.with_suffix(".jsonl").unlink()
    before = out.read_bytes()
    for empty in (False, True):
        with pytest.raises(CaptionError, match="made from captions.jsonl beside it"):
            caption_into_file(pipeline, [folder], out)
        assert out.read_bytes() == before
        assert out.with_suffix(".jsonl").exists() == empty  # it was there before
        out.with_suffix(".jsonl").touch()


def test_a_csv_that_a_person_changes_during_a_run_is_not_lost(
    run, pipeline, folder, tmp_path, monkeypatch
):
    out = tmp_path / "captions.csv"
    run(folder, "--out", out)
    photo_image(9, (48, 40)).save(folder / "new.png")
    edited = out.read_bytes().replace(b"\n", b" checked\n").replace(b" checked", b"", 1)

    def edit(*arguments, whole=pipeline._caption_batch):
        out.write_bytes(edited)
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_caption_batch", edit)
        code, _, err = run(folder, "--out", out)
    assert code == 1
    assert "made from captions.jsonl beside it" in err
    assert out.read_bytes() == edited
    out.rename(tmp_path / "checked.csv")
    _, lines, _ = run(folder, "--out", out)
    assert "0 captions written, 5 already present" in lines[-1]
    assert "new.png" in out.read_text()


def test_a_table_has_a_row_for_each_photo_also_without_a_caption(run, folder):
    out = folder.parent / "captions.csv"
    for _ in range(2):
        assert run(folder, "--out", out)[0] == 1
        with out.open(encoding="utf-8", newline="") as file:
            *found, last = csv.DictReader(file)
        assert [row["path"] for row in found] == [str(folder / n) for n in NAMES]
        assert all(row["sentence"] == as_sentence(row["caption"]) for row in found)
        assert last["path"] == str(folder / "broken.jpg")
        assert last["error"].startswith("cannot be read as a photo")


def test_a_replaced_photo_gets_a_new_caption_in_every_form(run, folder, tmp_path):
    outs = [tmp_path / f"captions.{ending}" for ending in ("csv", "html", "jsonl")]
    for out in outs:
        run(folder, "--out", out)
        known = out.with_suffix(".jsonl").read_bytes()
        photo_image(9, (48, 40)).save(folder / "z.png")
        _, lines, _ = run(folder, "--out", out)
        assert lines == [
            f"{out}: 1 caption written, 3 already present, 1 photo skipped"
        ]
        assert out.with_suffix(".jsonl").read_bytes().startswith(known)
        photo_image(1, (48, 40)).save(folder / "z.png")
        out.with_suffix(".jsonl").unlink()
        out.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("captions.jsonl", []),
        ("captions.csv", []),
        ("captions.csv", ["--exiftool-columns"]),
        ("captions.html", []),
    ],
)
def test_a_replaced_photo_without_a_new_caption_loses_the_old_one(
    run, folder, tmp_path, name, options
):
    out = tmp_path / name
    journal = out.with_suffix(".jsonl")
    run(folder, "--out", out, *options)
    (folder / "z.png").write_bytes(b"no photo")
    code, lines, err = run(folder, "--out", out, *options)
    assert code == 1
    assert lines == [
        f"{out}: 0 captions written, 3 already present, 2 photos skipped, 1 row of "
        "photos replaced since removed"
    ]
    assert "z.png: cannot be read as a photo" in err
    assert [row["path"] for row in rows(journal)] == [
        str(folder / n) for n in NAMES if n != "z.png"
    ]
    content = out.read_text("utf-8")
    assert "no longer there" not in content
    if options:
        assert "z.png" not in content
    elif name.endswith(".csv"):
        last = list(csv.DictReader(io.StringIO(content)))[-1]
        assert last["path"] == str(folder / "z.png")
        assert last["sentence"] == ""
    elif name.endswith(".html"):
        assert content.count("<figure ") == 3
    _, lines, _ = run(folder, "--out", out, *options)
    assert lines[-1].endswith("3 already present, 2 photos skipped")
    photo_image(9, (48, 40)).save(folder / "z.png")
    _, lines, _ = run(folder, "--out", out, *options)
    assert "1 caption written, 3 already present, 1 photo skipped" in lines[-1]


def test_a_replaced_photo_below_the_minimum_confidence_loses_its_caption(
    pipeline, folder, tmp_path, monkeypatch
):
    out = tmp_path / "captions.csv"
    caption_into_file(pipeline, [folder], out)
    photo_image(9, (48, 40)).save(folder / "z.png")
    whole = CaptioningPipeline.caption_inputs

    def low(self, *arguments):
        for result in whole(self, *arguments):
            if isinstance(result, Failure):
                yield result
            else:
                yield LowConfidence(result.path, f"{result.path}: left out")

    monkeypatch.setattr(CaptioningPipeline, "caption_inputs", low)
    report = caption_into_file(pipeline, [folder], out)
    assert (report.written, report.present, report.outdated) == (0, 3, 1)
    assert len(rows(out.with_suffix(".jsonl"))) == 3


def test_the_gallery_tells_a_photo_that_is_gone_from_one_that_cannot_be_read(
    tmp_path,
):
    (tmp_path / "a.jpg").write_bytes(b"no photo")
    rows = [
        {"path": str(tmp_path / name), "caption": "a dog", "log_prob": -1.0}
        for name in ("a.jpg", "b.jpg")
    ]
    write_gallery(tmp_path / "page.html", rows)
    cards = (tmp_path / "page.html").read_text("utf-8").split("<figure ")[1:]
    assert "The photo cannot be read." in cards[0]
    assert "The photo is no longer there." in cards[1]


def test_rows_of_deleted_photos_leave_with_prune_alone(run, folder, tmp_path):
    out = tmp_path / "captions.csv"
    run(folder, "--out", out)
    (folder / "z.png").unlink()
    code, lines, _ = run(folder, "--out", out)
    assert lines[-1].endswith(
        "3 already present, 1 photo skipped, 1 row of deleted photos kept (--prune "
        "removes them)"
    )
    assert "z.png" in out.read_text()
    for end in (", 1 row of deleted photos removed", "1 photo skipped"):
        code, lines, _ = run(folder, "--out", out, "--prune")
        assert lines[-1].endswith(end)
        for file in (out, out.with_suffix(".jsonl")):
            assert "z.png" not in file.read_text()
            assert "a b.png" in file.read_text()


def test_prune_keeps_rows_of_other_folders_and_of_a_drive_that_is_away(
    run, folder, tmp_path
):
    out = tmp_path / "captions.jsonl"
    other = tmp_path / "other"
    other.mkdir()
    photo_image(3, (48, 40)).save(other / "o.png")
    run(folder, other, "--out", out)
    before = out.read_bytes()
    (other / "o.png").unlink()
    assert run(folder, "--out", out, "--prune")[0] == 1  # for the broken photo
    assert out.read_bytes() == before
    code, _, err = run(other, "--out", out, "--prune")
    assert code == 1
    assert "--prune must find a photo there" in err
    assert out.read_bytes() == before
    code, _, err = run(folder, "--prune")
    assert (code, "--prune needs --out" in err) == (2, True)


def test_prune_keeps_rows_of_an_empty_folder_below(run, folder, tmp_path):
    out = tmp_path / "captions.jsonl"
    mounted = folder / "drive"
    (mounted / "2019").mkdir(parents=True)
    photo_image(3, (48, 40)).save(mounted / "2019" / "o.png")
    run(folder, "--out", out)
    before = out.read_bytes()
    shutil.rmtree(mounted / "2019")
    code, _, err = run(folder, "--out", out, "--prune")
    assert code == 1
    assert f"{mounted}: --prune must find a file there" in err
    assert out.read_bytes() == before
    mounted.rmdir()
    run(folder, "--out", out, "--prune")
    assert "o.png" not in out.read_text()


def pictures(page):
    """Return the pictures that a page holds."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_the_gallery_holds_every_picture_with_a_text_to_copy(
    pipeline, folder, tmp_path
):
    photo_image(8, (900, 600)).save(folder / "large.jp2")
    out = tmp_path / "pages" / "captions.html"
    caption_into_file(pipeline, [folder], out)
    (folder / "z.png").unlink()
    for again in (False, True):  # the second run reads the photos again
        if again:
            caption_into_file(pipeline, [folder], out)
        page = out.read_text("utf-8")
        for row in rows(out.with_suffix(".jsonl")):
            assert f"<p>{as_sentence(row['caption'])}</p>" in page
        assert "<code hidden>&lt;img src=&#34;../photos/a%20b.png&#34; alt=" in page
        assert "src=&#34;../photos/nested/%C3%A9t%C3%A9.jpg&#34;" in page
        assert "broken.jpg: cannot be read" in page
        assert "http" not in page
        sizes = sorted(picture.size for picture in pictures(page))
        assert sizes == [(48, 40)] * (3 if again else 4) + [(320, 213)]
        assert page.count("The photo is no longer there.") == int(again)


def test_the_gallery_is_sorted_and_filtered(tmp_path):
    given = {"a dog": 0.3, "a cat": 0.9, "a bus": None, "a cup": 0.718}
    rows = [
        {"path": f"{k}.jpg", "caption": text, "log_prob": -1.0, "confidence": value}
        for k, (text, value) in enumerate(given.items())
    ]
    write_gallery(tmp_path / "page.html", rows)
    with browser() as driver:
        driver.get((tmp_path / "page.html").as_uri())

        def shown():
            cards = driver.find_elements("css selector", "figure:not([hidden]) p")
            return [card.text for card in cards]

        def select(control, value):
            script = (
                "const control = document.getElementById(arguments[0]);"
                "control.value = arguments[1];"
                "control.dispatchEvent(new Event('input'));"
            )
            driver.execute_script(script, control, value)

        assert shown() == ["A cat.", "A cup.", "A dog.", "A bus."]
        select("order", "low")
        assert shown() == ["A bus.", "A dog.", "A cup.", "A cat."]
        select("order", "name")
        assert shown() == ["A dog.", "A cat.", "A bus.", "A cup."]
        select("word", "unsure")
        assert shown() == ["A dog.", "A cup."]
        assert driver.find_element("id", "shown").text == "2 of 4 shown"
        select("find", "CUP")
        assert shown() == ["A cup."]
        select("word", "")
        select("find", "1.jpg")
        assert shown() == ["A cat."]
        assert fits(driver)
        assert not driver.get_log("browser")


def test_the_gallery_marks_doubtful_captions_alone(tmp_path):
    given = {"a dog": 0.9, "a cat": DOUBTFUL, "a bus": DOUBTFUL - 0.01, "a cup": None}
    rows = [
        {"path": "a.jpg", "caption": text, "log_prob": -1.0, "confidence": confidence}
        for text, confidence in given.items()
    ]
    write_gallery(tmp_path / "page.html", rows)
    cards = (tmp_path / "page.html").read_text("utf-8").split("<figure ")[1:]
    assert ['class="doubt"' in card for card in cards] == [False, False, True, False]
    assert "probably wrong, confidence 0.19" in cards[2]
    captions = [card.partition("<small>")[0] for card in cards]
    assert ["confidence" in text for text in captions] == [True, True, True, False]


def test_no_text_of_a_row_becomes_markup_in_the_gallery(tmp_path):
    evil = '<script>alert("1")</script>'
    row = {"path": str(tmp_path / f"{evil}.jpg"), "caption": evil, "log_prob": -1.0}
    failure = Failure(evil, f"{evil}\udcff: lost")
    write_gallery(tmp_path / "page.html", [row], [failure])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<script>alert" not in page
    assert page.count("<script>") == page.count("</script>") == 1
    tag = page.split("<code hidden>")[1].split("</code>")[0]
    assert html.unescape(tag) == (
        '<img src="%3Cscript%3Ealert%28%221%22%29%3C/script%3E.jpg" '
        f'alt="{html.escape(as_sentence(evil)).replace("&quot;", "&#34;")}">'
    )


def test_the_gallery_links_photos_of_another_drive_by_whole_urls(tmp_path, monkeypatch):
    def on_another_drive(path, start=None):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")  # as on Windows

    monkeypatch.setattr(os.path, "relpath", on_another_drive)
    photo = tmp_path / "a b.jpg"
    row = {"path": str(photo), "caption": "a dog", "log_prob": -1.0}
    write_gallery(tmp_path / "page.html", [row])
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "a%20b.jpg" in photo.as_uri()
    assert f"&lt;img src=&#34;{photo.as_uri()}&#34; alt=" in page


def test_a_pipeline_without_a_file_is_refused(pipeline, folder, tmp_path):
    unsaved = CaptioningPipeline(pipeline.generator, pipeline.encoder)
    with pytest.raises(CaptionError, match="`pipeline` must be loaded from a file"):
        caption_into_file(unsaved, [folder], tmp_path / "captions.jsonl")


def test_a_page_of_somebody_else_is_kept_and_one_of_captions_replaced(
    run, folder, tmp_path
):
    page = tmp_path / "index.html"
    page.write_text("<title>My own page</title>", encoding="utf-8")
    code, _, err = run(folder, "--out", page)
    assert code == 1
    assert "must be absent, or a page of captions. Received: another file" in err
    assert page.read_text(encoding="utf-8") == "<title>My own page</title>"
    assert not page.with_suffix(".jsonl").exists()
    for before in (None, "", "Captions of 1 photo"):
        page.unlink(missing_ok=True)
        if before is not None:
            page.write_text(before and f"<title>{before}</title>", encoding="utf-8")
        run(folder, "--out", page)
        assert "<title>Captions of " in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("ending", ["csv", "html", "jsonl"])
def test_a_folder_in_place_of_the_file_is_refused_before_any_work(
    run, folder, tmp_path, ending
):
    out = tmp_path / f"captions.{ending}"
    out.mkdir()
    code, _, err = run(folder, "--out", out)
    assert code == 2
    assert "`out` must be a file. Received: a folder" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, "photos"]


@pytest.mark.parametrize("out", ["captions.txt", "captions"])
def test_an_unknown_ending_is_refused_before_any_work(run, folder, tmp_path, out):
    code, _, err = run(folder, "--out", tmp_path / out)
    assert code == 2
    assert "`out` must end in .jsonl, .csv or .html" in err


@pytest.mark.parametrize(
    ("options", "author"),
    [
        ({}, "beam 3"),
        ({"min_confidence": 0}, "beam 3"),  # it leaves out nothing
        ({"min_confidence": 0.3}, "beam 3, confidence at least 0.3"),
        ({"locations": "likeliest"}, "beam 3, likeliest"),
        ({"locations": "sampled", "seed": 3}, "beam 3, sampled with seed 3"),
        (
            {"method": "sample", "seed": 4},
            "words sampled at temperature 1.0 with seed 4",
        ),
    ],
)
def test_rows_name_settings_that_must_not_be_mixed(pipeline, options, author):
    assert made_by(pipeline, CaptionRequest(**options)).endswith(f", {author}")
