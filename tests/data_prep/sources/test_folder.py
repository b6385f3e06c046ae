"""Test the reader of the user's own photos, with CSV or JSON Lines."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from data_prep_files import coco_json, make_csv, make_file
from refusals import refusal

from data_prep.data_folder import DataFolder
from data_prep.preparation import Problem
from data_prep.sources.folder import CSV, read_folder
from data_prep.sources.tables import split_by_hash
from show_attend_tell.runtime.errors import DataError

ROWS = [
    ["a.jpg", "A dog, running .", "train"],
    ["a.jpg", 'A "fast" dog', "train"],
    ["sub/b.png", "Ein Hund läuft .", "dev"],
    ["./c.jpg", "A cat .", "Test"],
]


def make_photos(folder):
    for name in ("a.jpg", "sub/b.png", "c.jpg"):
        make_file(folder / name)
    return folder


def read(folder):
    data = DataFolder(folder, folder / "prepared" / "mine")
    return read_folder(data), data.problems


def read_table(folder, *rows, columns=("file", "caption", "split"), mark=b""):
    """Read photos and a table of rows, whose file begins with a mark."""
    file = make_csv(folder / "captions.csv", [columns, *rows])
    file.write_bytes(mark + file.read_bytes())
    return read(make_photos(folder))


def ids(photos):
    return [photo.id for photo in photos]


def check(photos, folder):
    assert [(photo.id, photo.split) for photo in photos] == [
        ("a.jpg", "train"),
        ("c.jpg", "test"),
        ("sub/b.png", "val"),
    ]
    assert photos[0].captions == ("A dog, running .", 'A "fast" dog')
    assert photos[2].captions == ("Ein Hund läuft .",)
    assert photos[2].path == folder / "sub" / "b.png"


@pytest.mark.parametrize(("column", "mark"), [("file", b""), ("path", b"\xef\xbb\xbf")])
def test_a_csv_file_is_read_also_with_a_byte_order_mark(tmp_path, column, mark):
    columns = (column, "caption", "split")
    photos, problems = read_table(tmp_path, *ROWS, columns=columns, mark=mark)
    check(photos, tmp_path)
    assert len(problems) == 0
    assert problems.notes == []


def test_a_json_lines_file_is_read(tmp_path):
    keys = ("file", "caption", "split")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in ROWS]
    make_file(tmp_path / "captions.jsonl", "\n".join(lines) + "\n\n")
    photos, problems = read(make_photos(tmp_path))
    check(photos, tmp_path)
    assert len(problems) == 0


def test_without_splits_the_hash_of_the_id_decides(tmp_path):
    names = [f"{number}.jpg" for number in range(300)]
    for name in names:
        make_file(tmp_path / name)
    rows = [[name, "A dog ."] for name in names]
    make_csv(tmp_path / "captions.csv", [["file", "caption"], *rows])
    photos, problems = read(tmp_path)
    splits = {photo.id: photo.split for photo in photos}
    assert splits == {name: split_by_hash(name) for name in names}
    shares = [list(splits.values()).count(split) / 300 for split in ("val", "test")]
    assert shares == pytest.approx([0.1, 0.1], abs=0.05)
    assert "no row names a split: 80% of the photos train" in problems.notes[0]


def test_malformed_rows_are_problems_and_the_others_are_read(tmp_path):
    rows = [
        ["a.jpg", "A dog .", "train"],
        ["a.jpg"],
        ["a.jpg", "one", "train", "too many"],
        ["", "no file", "train"],
        ["c.jpg", "A cat .", "trian"],
        ["a.jpg", " ", "train"],
        ["gone.jpg", "Gone .", "train"],
        ["a.jpg", "two\nlines", "train"],
    ]
    photos, problems = read_table(tmp_path, *rows)
    assert [photo.captions for photo in photos] == [("A dog .",)]
    lines = [f"{tmp_path / 'captions.csv'}:{line}" for line in (3, 4, 5, 6, 10)]
    assert problems.names(Problem.MALFORMED_LINE) == lines
    assert problems.names(Problem.EMPTY_CAPTION) == ["a.jpg#1"]
    assert problems.names(Problem.MISSING_PHOTO) == ["gone.jpg"]
    assert problems.names(Problem.NO_CAPTIONS) == ["c.jpg", "sub/b.png"]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"file": 1, "caption": "A"}',
        '{"file": "half\\ud800.jpg", "caption": "A"}',
        "9" * 5000,
        "[" * 10**5,
    ],
)
def test_malformed_lines_of_json_are_problems(tmp_path, line):
    file = make_file(
        tmp_path / "captions.jsonl", '{"path": "a.jpg", "caption": "A"}\n' + line
    )
    photos, problems = read(make_photos(tmp_path))
    assert ids(photos) == ["a.jpg"]
    assert problems.names(Problem.MALFORMED_LINE) == [f"{file}:2"]


def test_photos_of_two_splits_are_skipped_and_those_of_none_are_in_none(tmp_path):
    rows = [["a.jpg", "A", "train"], ["a.jpg", "B", "val"], ["c.jpg", "C", "val"]]
    photos, problems = read_table(tmp_path, *rows, ["sub/b.png", "D", ""])
    assert [(photo.id, photo.split) for photo in photos] == [
        ("c.jpg", "val"),
        ("sub/b.png", "none"),
    ]
    assert problems.names(Problem.TWO_SPLITS) == ["a.jpg"]
    assert problems.notes == ["photos that name no split, put in 'none': 1"]


def test_names_of_one_file_are_one_photo_with_all_captions(tmp_path):
    (tmp_path / "link.jpg").symlink_to("a.jpg")
    rows = [
        ["b.png", "A dog .", "val"],
        ["a.jpg", "A cat .", "train"],
        ["sub/b.png", "A hen .", ""],
        [str(tmp_path / "a.jpg"), "A cow .", "train"],
        ["link.jpg", "A pig .", "train"],
    ]
    photos, problems = read_table(tmp_path, *rows)
    assert [(photo.id, photo.split, photo.captions) for photo in photos] == [
        ("a.jpg", "train", ("A cat .", "A cow .", "A pig .")),
        ("b.png", "val", ("A dog .", "A hen .")),
    ]
    assert problems.notes == [
        "names of photos that another name also means, joined: 3, the first is "
        "'sub/b.png', also 'b.png'"
    ]
    assert problems.names(Problem.NO_CAPTIONS) == ["c.jpg"]


def test_names_of_one_file_in_two_splits_are_skipped(tmp_path):
    rows = [["b.png", "A dog .", "test"], ["sub/b.png", "A dog .", "train"], ROWS[0]]
    photos, problems = read_table(tmp_path, *rows)
    assert ids(photos) == ["a.jpg"]
    assert problems.names(Problem.TWO_SPLITS) == ["b.png"]


@pytest.mark.parametrize("names", [[], ["captions.csv", "captions.jsonl"]])
def test_there_must_be_one_table_of_captions(tmp_path, names):
    for name in names:
        make_file(tmp_path / name, "file,caption\n")
    with pytest.raises(DataError, match=r"either captions\.csv or captions\.jsonl"):
        read(make_photos(tmp_path))


def test_an_unclosed_quote_is_refused_by_line(tmp_path):
    text = 'file,caption\na.jpg,"A dog\n' + "c.jpg,A cat\n" * 20_000
    make_file(tmp_path / "captions.csv", text)
    with pytest.raises(DataError, match="line .*: not CSV: field larger"):
        read(make_photos(tmp_path))


def test_absolute_paths_and_paths_outside_the_folder_are_read(tmp_path):
    inside, outside = tmp_path / "in", make_file(tmp_path / "out" / "d.jpg")
    rows = [str(outside), "A"], ["../out/d.jpg", "B"]
    photos, _ = read_table(inside, *rows, columns=("file", "caption"))
    assert {photo.path.resolve() for photo in photos} == {outside}


def test_names_that_no_file_can_have_are_missing_photos(tmp_path):
    names = ["n" * 300 + ".jpg", "nul\0.jpg"]
    lines = [json.dumps({"file": name, "caption": "A"}) for name in ["a.jpg", *names]]
    make_file(tmp_path / "captions.jsonl", "\n".join(lines))
    photos, problems = read(make_photos(tmp_path))
    assert ids(photos) == ["a.jpg"]
    assert sorted(problems.names(Problem.MISSING_PHOTO)) == sorted(names)


def test_a_caption_that_exceeds_the_limit_of_csv_is_a_malformed_line(tmp_path):
    words = "dog " * 10**5
    text = f"file,caption\n\na.jpg,A dog .\n\nc.jpg,{words}\nsub/b.png,A cat .\n"
    file = make_file(tmp_path / "captions.csv", text)
    photos, problems = read(make_photos(tmp_path))
    assert ids(photos) == ["a.jpg", "sub/b.png"]
    assert problems.names(Problem.MALFORMED_LINE) == [f"{file}:5"]


@pytest.mark.parametrize(
    "header",
    [
        *("", "file;caption", "file,path,caption", "file", "\0\x1b[31m"),
        *("x" * 10**5, "x," * 10**5, "x" * 10**6),
    ],
)
def test_a_first_line_without_the_columns_is_refused_in_one_short_line(
    tmp_path, header
):
    file = make_file(tmp_path / "captions.csv", header + "\na.jpg,A dog\n")
    message = refusal(DataError, read, make_photos(tmp_path))
    fault = r"captions\.csv(: the first line must name|, line 1: not CSV)"
    assert re.search(fault, message)
    assert len(message) < 300 + len(str(file))
    assert message.isprintable()


def read_both(folder):
    photos, problems = read(folder)
    found = [(p.id, p.split, p.captions, p.path.relative_to(folder)) for p in photos]
    return found, problems


NFC, NFD = "caf\u00e9.jpg", "cafe\u0301.jpg"


@pytest.mark.parametrize(("on_disk", "in_table"), [(NFD, NFC), (NFC, NFD), (NFD, NFD)])
@pytest.mark.parametrize("folder", ["", "e\u0301te\u0301/"])
def test_names_match_whatever_their_normal_form(tmp_path, on_disk, in_table, folder):
    make_file(tmp_path / folder / on_disk)
    table = unicodedata.normalize("NFC" if in_table == NFC else "NFD", folder + NFC)
    make_csv(tmp_path / CSV, [["file", "caption"], [table, "A"], [table, "B"]])
    photos, problems = read(tmp_path)
    (photo,) = photos
    assert photo.id == unicodedata.normalize("NFC", folder + NFC)
    assert photo.captions == ("A", "B")
    assert photo.path.is_file()
    assert len(problems) == 0


def test_files_whose_names_differ_by_their_form_alone_are_two_photos(tmp_path):
    for name in (NFC, NFD):
        make_file(tmp_path / name)
    make_csv(tmp_path / CSV, [["file", "caption"], [NFC, "A"], [NFD, "B"]])
    photos, problems = read(tmp_path)
    assert {photo.id: photo.captions for photo in photos} == {NFC: ("A",), NFD: ("B",)}
    assert [photo.path.name for photo in photos] == [photo.id for photo in photos]
    assert len(problems) == 0


def test_kaggles_table_names_photos_of_another_folder(tmp_path):
    make_file(tmp_path / "Images" / "a.jpg")
    text = 'image,caption\na.jpg,"A dog , running ."\na.jpg,A dog .\n'
    make_file(tmp_path / "captions.txt", text)
    found, problems = read_both(tmp_path)
    captions = ("A dog , running .", "A dog .")
    split = split_by_hash("a.jpg")
    assert found == [("a.jpg", split, captions, Path("Images/a.jpg"))]
    assert len(problems) == 0


def test_a_name_alone_does_not_mean_one_of_two_photos(tmp_path):
    for name in ("x/a.jpg", "y/a.jpg", "b.jpg"):
        make_file(tmp_path / name)
    make_csv(tmp_path / CSV, [["file", "caption"], ["a.jpg", "A"], ["b.jpg", "B"]])
    photos, problems = read(tmp_path)
    assert ids(photos) == ["b.jpg"]
    assert problems.names(Problem.MISSING_PHOTO) == ["a.jpg"]


def test_metadata_of_hugging_face_is_read_in_the_folders_of_splits(tmp_path):
    for split, key in (("train", "text"), ("validation", "captions"), ("test", "text")):
        make_file(tmp_path / split / "1.jpg")
        caption = ["A dog .", "A cat ."] if key == "captions" else "A dog ."
        line = json.dumps({"file_name": "1.jpg", key: caption, "label": 3})
        make_file(tmp_path / split / "metadata.jsonl", line + "\n")
    found, problems = read_both(tmp_path)
    assert found == [
        ("test/1.jpg", "test", ("A dog .",), Path("test/1.jpg")),
        ("train/1.jpg", "train", ("A dog .",), Path("train/1.jpg")),
        (
            *("validation/1.jpg", "val", ("A dog .", "A cat .")),
            Path("validation/1.jpg"),
        ),
    ]
    assert len(problems) == 0


def test_metadata_of_hugging_face_is_read_beside_the_photos(tmp_path):
    make_photos(tmp_path)
    rows = [["file_name", "text"], ["a.jpg", "A dog ."], ["sub\\b.png", "A cat ."]]
    make_csv(tmp_path / "metadata.csv", rows)
    found, _ = read_both(tmp_path)
    assert [(name, captions) for name, _, captions, _ in found] == [
        ("a.jpg", ("A dog .",)),
        ("sub/b.png", ("A cat .",)),
    ]


def test_annotations_of_coco_are_read_under_any_name(tmp_path):
    make_photos(tmp_path)
    make_file(tmp_path / "my_train.json", coco_json({"a.jpg": ["A dog ."]}))
    make_file(tmp_path / "x" / "val-2.json", coco_json({"b.png": ["A cat ."]}))
    make_file(tmp_path / "other.json", "[]")
    found, _ = read_both(tmp_path)
    assert found == [
        ("a.jpg", "train", ("A dog .",), Path("a.jpg")),
        ("b.png", "val", ("A cat .",), Path("sub/b.png")),
    ]


def test_annotations_without_a_usable_row_are_not_called_absent(tmp_path):
    images = [{"id": "a", "file_name": "a.jpg"}]
    annotations = [{"id": "1", "image_id": "a", "caption": "A dog runs ."}]
    content = {"images": images, "annotations": annotations}
    make_file(tmp_path / "mine.json", json.dumps(content))
    message = refusal(DataError, read, make_photos(tmp_path))
    assert "no captions could be read: malformed line: 2 (" in message
    assert "mine.json images:1" in message


def test_one_file_of_annotations_is_split_by_hash(tmp_path):
    make_photos(tmp_path)
    make_file(tmp_path / "restrained.json", coco_json({"a.jpg": ["A dog ."]}))
    found, problems = read_both(tmp_path)
    assert found == [
        ("a.jpg", split_by_hash("a.jpg"), ("A dog .",), Path("a.jpg")),
    ]
    assert problems.notes[0].startswith("no row names a split")


def test_a_text_beside_each_photo_has_a_caption_on_each_line(tmp_path):
    make_photos(tmp_path)
    make_file(tmp_path / "a.txt", "\ufeffA dog .\r\n\r\nA brown dog .\n")
    make_file(tmp_path / "sub" / "b.png.txt", "A cat .")
    make_file(tmp_path / "train" / "d.jpg")
    make_file(tmp_path / "train" / "d.txt", "")
    photos, problems = read(tmp_path)
    assert [(photo.id, photo.captions) for photo in photos] == [
        ("a.jpg", ("A dog .", "A brown dog .")),
        ("sub/b.png", ("A cat .",)),
    ]
    assert problems.names(Problem.NO_CAPTIONS) == ["c.jpg", "train/d.jpg"]
    assert problems.names(Problem.EMPTY_CAPTION) == ["train/d.jpg#0"]


def test_several_tables_are_refused_by_name(tmp_path):
    for name in ("captions.txt", "metadata.jsonl"):
        make_file(tmp_path / name, "image,caption\n")
    message = refusal(DataError, read, make_photos(tmp_path))
    assert message.endswith("Received: captions.txt, metadata.jsonl; keep one")
