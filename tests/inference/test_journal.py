"""The JSON Lines journal: repair, refusal, locking, identity, and the CSV from it."""

import csv
import itertools
import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from full_disk import files_of_at_most
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.inference.gallery import write_gallery
from show_attend_tell.inference.journal import ENCODING, FIELDS, Journal, caption_row
from show_attend_tell.inference.photos import Failure
from show_attend_tell.inference.table import exiftool_table, require_replaceable
from show_attend_tell.inference.table import table as csv_of
from show_attend_tell.runtime.errors import CaptionError

MADE_BY = "model.safetensors 0123456789ab, beam 3"
NAMES = ["a b.jpg", "été.jpg", 'say "hi", twice.jpg', "two\nlines.jpg", "\udcff.jpg"]


def row(path, made_by=MADE_BY):
    caption = {"path": path, "text": "a red circle", "log_prob": -2.5, "score": -1.25}
    return caption_row(SimpleNamespace(**caption, confidence=None, tags=None), made_by)


def row_text(**values):
    """A line of the journal; values are JSON."""
    row = {"path": '"a"', "caption": '"b"', "log_prob": "1", "score": "1"}
    row |= {"made_by": '"c"'} | values
    return "{" + ", ".join(f'"{key}": {x}' for key, x in row.items()) + "}\n"


def is_file_name(name):
    """Whether a file system has the name."""
    try:
        return (
            not {"/", "\0"} & set(name)
            and Path(name).name == name
            and os.fsencode(name)
        )
    except UnicodeEncodeError:  # half of a pair
        return False


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def write(path, names, made_by=MADE_BY):
    with Journal(path, made_by) as journal:
        journal.append(row(name, made_by) for name in names if name not in journal)
        return journal.rows


def test_a_photo_is_never_written_twice_by_whatever_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(path, NAMES)
    assert len(write(path, [*NAMES, "./a b.jpg", str(tmp_path / "a b.jpg")])) == 5


def test_a_file_cut_anywhere_is_repaired_without_loss_or_repetition(path):
    expected = write(path, NAMES)
    content = path.read_bytes()
    for length in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        assert write(path, NAMES) == expected
        assert path.read_bytes() == content


def test_the_last_row_is_kept_though_an_editor_dropped_its_line_feed(path):
    write(path, NAMES[:3])
    content = path.read_bytes().replace(b"a red circle", b"Rex")
    path.write_bytes(content.removesuffix(b"\n"))
    rows = write(path, NAMES[:4])
    captions = [row["caption"] for row in rows]
    assert captions == ["Rex", "Rex", "Rex", "a red circle"]
    assert path.read_bytes().startswith(content)
    assert write(path, []) == rows


def test_rows_come_back_as_they_were_appended_and_other_programs_read_them(path):
    rows = write(path, NAMES[:4])
    expected = ("a red circle", -2.5, -1.25, MADE_BY, None)
    fields = [dict(zip(FIELDS, (name, *expected), strict=True)) for name in NAMES[:4]]
    without = [{name: row[name] for name in FIELDS} for row in rows]
    assert without == fields
    assert write(path, []) == rows
    lines = path.read_text("utf-8").splitlines()
    assert [list(json.loads(line).items()) for line in lines] == [
        list(row.items()) for row in rows
    ]


def test_a_table_has_the_sentence_as_shown_and_photos_without_a_caption(path):
    rows = [row | {"confidence": 0.718} for row in write(path, NAMES[:4])]
    table = path.with_suffix(".csv")
    failures = [Failure(Path("cut.jpg"), "cut.jpg: cannot be read, it ends early")]
    table.write_bytes(csv_of(rows, failures))
    with table.open(encoding="utf-8", newline="") as file:
        *found, last = csv.DictReader(file)
    assert [row["path"] for row in found] == NAMES[:4]
    for line in found:
        assert line["sentence"] == "A red circle."
        assert line["caption"] == "a red circle"
        assert (line["confidence"], line["confidence_word"]) == ("0.718", "unsure")
        assert (line["log_prob"], line["made_by"]) == ("-2.5", MADE_BY)
        assert line["error"] == ""
    assert last["path"] == "cut.jpg"
    assert last["error"] == "cannot be read, it ends early"
    assert last["sentence"] == last["caption"] == last["confidence"] == ""
    require_replaceable(table, rows)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of photos, named from the folder above it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    names = [f"photos/{letter}.jpg" for letter in "abc"]
    for name in names:
        Path(name).write_bytes(name.encode() * 9)
    return names


def test_a_photo_is_known_from_every_folder(path, photos, tmp_path, monkeypatch):
    expected = write(path, photos)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "photos", target_is_directory=True)
    absolute = [str(tmp_path / name) for name in photos]
    relative = [f"../{name}" for name in photos]
    linked = [name.replace("../photos", "../link") for name in relative]
    for names in (absolute, relative, linked):
        assert write(path, names) == expected
    with Journal(path, MADE_BY) as journal:
        assert str(journal.location(journal.rows[0])) == relative[0]
        journal.append([row(tmp_path / "d.jpg")])
    # The photos and the file move together.
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("photos", path.name):
        (tmp_path / name).rename(moved / name)
    monkeypatch.chdir(moved)
    with Journal(moved / path.name, MADE_BY) as journal:
        assert all(name in journal for name in photos)


def test_a_photo_is_known_from_another_drive(path, photos, tmp_path, monkeypatch):
    write(path, photos)
    (tmp_path / "drive").mkdir()
    monkeypatch.chdir(tmp_path / "drive")

    def on_another_drive(path, start=None):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")  # as on Windows

    monkeypatch.setattr(os.path, "relpath", on_another_drive)
    with Journal(path, MADE_BY) as journal:
        assert journal.location(journal.rows[0]) == tmp_path / photos[0]
        assert tmp_path / photos[0] in journal


def test_a_row_of_another_folder_is_not_this_photos(path, tmp_path, monkeypatch):
    for place in ("one", "two"):
        (tmp_path / place / "photos").mkdir(parents=True)
        (tmp_path / place / "photos" / "a.jpg").write_text(place)
        monkeypatch.chdir(tmp_path / place)
        write(path, ["photos/a.jpg"])
    assert [row["folder"] for row in write(path, [])] == ["one", "two"]


def test_a_photo_that_was_replaced_is_captioned_again(path, photos):
    write(path, photos)
    time = Path(photos[0]).stat().st_mtime_ns
    contents = {
        "another size": (b"longer" * 99, time),
        "the same size": (b"x" * len(Path(photos[0]).read_bytes()), time + 1),
    }
    for content, modified in contents.values():
        Path(photos[0]).write_bytes(content)
        os.utime(photos[0], ns=(modified, modified))
        with Journal(path, MADE_BY) as journal:
            assert [name in journal for name in photos] == [False, True, True]
            journal.append([row(photos[0]) | {"caption": "another"}])
            assert photos[0] in journal
        assert [row["path"] for row in write(path, [])] == photos
        assert write(path, [])[0]["caption"] == "another"


def test_a_photo_that_was_touched_copied_or_deleted_keeps_its_row(path, photos):
    write(path, photos)
    before = path.read_bytes()
    os.utime(photos[0], ns=(1, 1))
    Path(photos[1]).unlink()
    assert len(write(path, photos)) == 3
    assert path.read_bytes() == before


def test_a_journal_of_an_earlier_version_is_continued(path, photos):
    path.write_text(row_text(path=json.dumps(photos[0]), made_by=json.dumps(MADE_BY)))
    assert [row["path"] for row in write(path, photos)] == photos
    with Journal(path, MADE_BY) as journal:
        assert journal.location(journal.rows[0]) == Path(photos[0])


@pytest.mark.parametrize(
    "extra",
    [
        {"photo": "3"},
        {"photo": '{"bytes": "x"}'},
        {"photo": "null"},
        {"folder": '"../../.."'},
    ],
)
def test_strange_identities_of_photos_are_only_other_photos(path, photos, extra):
    row = row_text(path=json.dumps(photos[0]), made_by=json.dumps(MADE_BY), **extra)
    path.write_text(row)
    with Journal(path, MADE_BY) as journal:
        assert len(journal.rows) == 1
        assert isinstance(photos[0] in journal, bool)


def test_rows_that_are_removed_leave_with_replaced_ones(path, photos):
    write(path, photos)
    Path(photos[1]).write_bytes(b"another")
    with Journal(path, MADE_BY) as journal:
        journal.append([row(photos[1])])
        journal.remove([journal.row(photos[0])])
        assert [row["path"] for row in journal.rows] == photos[1:]
        journal.append([row("d.jpg")])
    assert path.read_text().count("\n") == 3
    assert [row["path"] for row in write(path, [])] == [*photos[1:], "d.jpg"]


@pytest.mark.parametrize(
    "content",
    [
        "my notes",
        "a,b\n1,2\n",
        '{"a": 1}\n',
        "[]\nx",
        "3\n",
        "[" * 100_000 + "]" * 100_000 + "\n",
        '{"path": ' * 100_000 + "1" + "}" * 100_000 + "\n",
        row_text(extra="[" * 100_000 + "]" * 100_000),
        row_text(score="9" * 5000),
        row_text(score="1" + "0" * 400),
        row_text(score="NaN"),
        row_text(log_prob="true"),
        row_text(log_prob='"-1.5"'),
        row_text(made_by='["c"]'),
        row_text(made_by="null"),
        row_text(caption="{}"),
        row_text(path='"\\ud800"'),
    ],
    ids=lambda content: content[:60],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(path, content):
    path.write_text(content)
    with refused(CaptionError, "name another file") as caught:
        Journal(path, MADE_BY)
    assert len(str(caught.value)) < 1000
    assert path.read_text() == content


@given(
    st.dictionaries(
        st.sampled_from([*FIELDS, "more"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_any_row_is_read_or_refused(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("row") / "rows.jsonl"
    path.write_text(row_text(**{key: json.dumps(x) for key, x in values.items()}))
    try:
        with Journal(path, MADE_BY) as journal:
            (row,) = journal.rows
            (path.with_suffix(".csv")).write_bytes(csv_of(journal.rows))
    except CaptionError:
        return
    assert all(isinstance(row[key], str) for key in ("path", "caption", "made_by"))


@pytest.mark.parametrize("values", [{"path": "a\0/b.jpg"}, {"folder": "a\0"}], ids=str)
def test_a_folder_that_no_photo_has_is_refused_and_the_file_unlocked(path, values):
    write(path, ["a.jpg"])
    found = json.loads(path.read_text()) | values
    path.write_text(json.dumps(found) + "\n")
    for _ in range(2):  # the lock is released
        with refused(CaptionError, "JSON Lines of this program.* Received: the path"):
            Journal(path, MADE_BY)
    assert list(path.parent.iterdir()) == [path]


# Characters that some format uses, and bytes that are not UTF-8.
FILE_NAMES = st.text(
    st.sampled_from("\r\n\t\"',;<>&= \x85\u2028\x1b\udcff\udce9é花\\")
    | st.characters(),
    min_size=1,
    max_size=20,
).filter(lambda name: is_file_name(name))


@given(st.lists(FILE_NAMES, min_size=1, max_size=5, unique=True))
def test_every_file_name_comes_back_from_every_format(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("names") / "rows.jsonl"
    table = path.with_suffix(".csv")
    for _ in range(2):  # the second run reads the files of the first one
        with Journal(path, MADE_BY) as journal:
            require_replaceable(table, journal.rows)
            journal.append(row(name) for name in found if name not in journal)
            table.write_bytes(csv_of(journal.rows))
        assert [row["path"] for row in journal.rows] == found
        with table.open(newline="", **ENCODING) as file:
            assert [row["path"] for row in csv.DictReader(file)] == found
        failures = [Failure(Path(name), f"{name}: lost") for name in found]
        write_gallery(path.with_suffix(".html"), journal.rows, failures)
        assert path.with_suffix(".html").stat().st_size


def test_a_second_writer_is_refused(path):
    with (
        Journal(path, MADE_BY),
        pytest.raises(CaptionError, match="another process is writing it"),
    ):
        Journal(path, MADE_BY)
    assert write(path, []) == []


def test_captions_of_another_model_are_not_mixed_in(path):
    write(path, NAMES)
    with pytest.raises(CaptionError, match="by model.safeten.* .*, and not by other"):
        write(path, [], "other")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_no_other_kind_of_file_is_opened(path, kind, ending):
    path = path.with_suffix(ending)
    make = {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),  # reading it would block
        "device": lambda: path.symlink_to("/dev/zero"),  # and this would not end
    }
    make[kind]()
    read = partial(Journal, path, MADE_BY)
    if ending == ".csv":
        read = partial(require_replaceable, path, [])
    with pytest.raises(CaptionError, match="name another file"):
        read()


def append_all(journal, names):
    photos = map(row, names)
    while three := list(itertools.islice(photos, 3)):
        journal.append(three)


def test_a_full_disk_keeps_whole_rows_and_the_run_continues(path):
    whole = path.with_name("whole.jsonl")
    wanted = [f"{k}.jpg" for k in range(60)]
    write(whole, wanted)
    for size in (0, 1, 500, 1200, 3001):
        message = f"^{path}: cannot be written: File too large; free space and [^\n]*$"
        with Journal(path, MADE_BY) as journal, files_of_at_most(size):
            rest = wanted[len(journal.rows) :]
            with pytest.raises(CaptionError, match=message):
                append_all(journal, rest)
        content = path.read_bytes()
        assert len(content) <= size < len(content) + 3 * 200
        assert whole.read_bytes().startswith(content)
        assert content[-1:] in (b"", b"\n")
    assert write(path, wanted) == write(whole, [])


@pytest.mark.parametrize("rows", [[], NAMES[:2]])
@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n",
        "my notes",
        "",
        f"{','.join(FIELDS)}\nx.jpg,a,-1.0,-1.0,m\n",
        f"{','.join(FIELDS)}\nx.jpg,a\n",
        'path,"' + "x" * 200_000,
    ],
    ids=lambda content: content[:20],
)
def test_a_table_with_other_lines_is_not_replaced(path, rows, content):
    table = path.with_suffix(".csv")
    table.write_text(content)
    with pytest.raises(CaptionError, match="not in rows.jsonl.*; name another file"):
        require_replaceable(table, write(path, rows))
    assert table.read_text() == content


TAGGED = {"confidence": 0.718, "tags": [{"name": "dog", "confidence": 0.9}]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A red circle.", "The moon."),
        (",a red circle,", ",the moon,"),
        (",unsure,", ",likely,"),
        (",unsure,", ",checked by Ann,"),
        (",0.718,", ",1,"),
        (",0.718,", ",,"),
        (",dog,", ',"dog, moon",'),
        (f',"{MADE_BY}"', ',"Ann"'),
        ("a b.jpg", "moon.jpg"),
        ("a b.jpg", "other/a b.jpg"),
        (",-2.5,", ",-2.4,"),
        (f',"{MADE_BY}",\n', f',"{MADE_BY}",not a circle\n'),
        (f',"{MADE_BY}",\n', f',"{MADE_BY}",,my note\n'),
        (f',"{MADE_BY}",\n', f',"{MADE_BY}"\n'),
        ("cut.jpg,,", "cut.jpg,The moon.,"),
    ],
)
def test_a_value_that_a_person_changed_in_a_table_is_not_replaced(path, old, new):
    table = path.with_suffix(".csv")
    rows = [row | TAGGED for row in write(path, NAMES)]
    content = csv_of(rows, [Failure(Path("cut.jpg"), "cut.jpg: it ends early")])
    table.write_bytes(content)
    require_replaceable(table, rows)
    assert content.count(old.encode())
    table.write_bytes(content.replace(old.encode(), new.encode(), 1))
    with pytest.raises(CaptionError, match="not in rows.jsonl"):
        require_replaceable(table, rows)


@pytest.mark.parametrize("text", ["A red circle.", "show-attend-tell"])
def test_a_value_that_a_person_changed_for_exiftool_is_not_replaced(path, text):
    table = path.with_suffix(".csv")
    rows = write(path, NAMES)
    content = exiftool_table(rows)
    for start in (content.find(text.encode()), content.rfind(text.encode())):
        table.write_bytes(content[:start] + b"x" + content[start:])
        with pytest.raises(CaptionError, match="not in rows.jsonl"):
            require_replaceable(table, rows)


def test_a_table_that_a_spreadsheet_saved_without_a_change_is_replaced(path):
    table = path.with_suffix(".csv")
    rows = [row | {"confidence": 0.7181234567891234} for row in write(path, NAMES)]
    for row in rows:
        row["score"] = -1.0
    table.write_bytes(csv_of(rows))
    with table.open(newline="", **ENCODING) as file:
        lines = list(csv.reader(file))
    with table.open("w", newline="", **ENCODING) as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        for line in lines:
            short = {"0.7181234567891234": "0.7181234568", "-1.0": "-1"}
            writer.writerow([short.get(value, value) for value in line])
    require_replaceable(table, rows)


def test_a_table_of_the_same_lines_is_replaced(path):
    table = path.with_suffix(".csv")
    rows = write(path, NAMES)
    failure = Failure(Path("a.jpg"), "a.jpg: no photo")
    for count in (0, 2, 5):
        table.write_bytes(csv_of(rows[:count], [failure]))
        require_replaceable(table, rows)
    low = [{**row, "confidence": 0.1} for row in rows]
    for least in (0.05, 0.3):
        table.write_bytes(exiftool_table(low, least))
        require_replaceable(table, low)
    with table.open("w", newline="", **ENCODING) as file:  # in other columns
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    require_replaceable(table, rows)
    table.unlink()
    require_replaceable(table, rows)
