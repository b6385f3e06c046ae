"""Captions of folders into files: resuming, failures, CSV, the gallery."""

import csv
import html
import itertools
import json

import pytest
from tiny_pipeline import photo_image

from show_attend_tell.inference.batch import caption_into_file, made_by, write_gallery
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import DOUBTFUL, Failure, as_sentence
from show_attend_tell.runtime.errors import CaptionError, OutputFileError

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
            found = [row["path"] for row in csv.DictReader(file)]
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


def test_a_csv_of_version_0_1_is_neither_lost_nor_repeated(pipeline, folder, tmp_path):
    out = tmp_path / "captions.csv"
    caption_into_file(pipeline, [folder], out)
    out.with_suffix(".jsonl").unlink()  # version 0.1 wrote the CSV alone
    before = out.read_bytes()
    with pytest.raises(OutputFileError, match="made from captions.jsonl beside it"):
        caption_into_file(pipeline, [folder], out)
    assert out.read_bytes() == before


def test_the_gallery_shows_every_photo_with_a_text_to_copy(pipeline, folder, tmp_path):
    out = tmp_path / "pages" / "captions.html"
    caption_into_file(pipeline, [folder], out)
    page = out.read_text("utf-8")
    for row in rows(out.with_suffix(".jsonl")):
        assert f"<p>{as_sentence(row['caption'])}</p>" in page
    assert 'src="../photos/nested/%C3%A9t%C3%A9.jpg" alt="' in page
    assert "<code hidden>&lt;img src=&#34;../photos/a%20b.png&#34; alt=" in page
    assert "broken.jpg: cannot be read" in page
    assert "http" not in page


def test_the_gallery_marks_doubtful_captions_alone(tmp_path):
    given = {"a dog": 0.9, "a cat": DOUBTFUL, "a bus": DOUBTFUL - 0.01, "a cup": None}
    rows = [
        {"path": "a.jpg", "caption": text, "log_prob": -1.0, "confidence": confidence}
        for text, confidence in given.items()
    ]
    write_gallery(tmp_path / "page.html", rows)
    cards = (tmp_path / "page.html").read_text("utf-8").split("<figure>")[1:]
    assert ['class="doubt"' in card for card in cards] == [False, False, True, False]
    assert "probably wrong, confidence 0.19" in cards[2]
    assert ["confidence" in card for card in cards] == [True, True, True, False]


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


def test_a_pipeline_without_a_file_is_refused(pipeline, folder, tmp_path):
    unsaved = CaptioningPipeline(pipeline.generator, pipeline.encoder)
    with pytest.raises(CaptionError, match="`pipeline` must be loaded from a file"):
        caption_into_file(unsaved, [folder], tmp_path / "captions.jsonl")


@pytest.mark.parametrize("out", ["captions.txt", "captions"])
def test_an_unknown_ending_is_refused_before_any_work(run, folder, tmp_path, out):
    code, _, err = run(folder, "--out", tmp_path / out)
    assert code == 1
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
