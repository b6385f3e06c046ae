"""Test the search of a data folder, and safe and resumable unpacking."""

import functools
import os
import stat
import zipfile

import pytest
from data_prep_files import JPEG, make_file, make_zip
from refusals import refused

from data_prep import data_folder, disk
from data_prep.data_folder import DataFolder, read_text
from data_prep.preparation import Problem
from show_attend_tell.runtime.errors import DataError


def search(folder):
    return DataFolder(folder, folder / "work")


def unpack(folder, progress=False):
    """Unpack all photos; return the names of damaged entries."""
    data = search(folder)
    damaged = data.unpack(data.photos.values(), progress)
    assert len(data.problems.names(Problem.DAMAGED_ENTRY)) == len(damaged)
    return sorted(path.name for path in damaged)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("../evil.jpg", 0), ("a/../../evil.jpg", 0), ("/evil.jpg", 0)),
        *(("..\\evil.jpg", 0), ("C:\\evil.jpg", 0)),
        ("link.jpg", stat.S_IFLNK | 0o777),
    ],
)
def test_links_and_entries_that_point_outside_are_ignored(tmp_path, name, mode):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    make_zip(tmp_path / "data" / "photos.zip", {entry: JPEG, "in/good.jpg": JPEG})
    data = search(tmp_path / "data")
    data.unpack(data.photos.values())
    assert [path.name for path in tmp_path.rglob("*.jpg")] == ["good.jpg"]
    assert data.problems.names(Problem.UNSAFE_ENTRY) == [f"photos.zip: {name!r}"]


def test_folders_in_archives_may_be_separated_by_backslashes(tmp_path):
    entries = {"Photos\\": b"", "Photos\\a.jpg": JPEG, "Photos\\sub\\b.txt": "text"}
    entries |= {"__MACOSX\\a.jpg": b"junk", "@eaDir\\c.jpg": b"thumbnail"}
    make_zip(tmp_path / "photos.zip", entries)
    data = search(tmp_path)
    assert data.photos == {"a.jpg": tmp_path / "work" / "photos" / "a.jpg"}
    assert data.text("b.txt").text == "text"
    assert data.unpack(data.photos.values()) == set()
    assert data.photos["a.jpg"].read_bytes() == JPEG
    assert len(data.problems) == 0


def test_data_sets_that_are_prepared_inside_the_folder_are_left_out(tmp_path):
    make_zip(tmp_path / "photos.zip", {"a.jpg": JPEG})
    prepared = tmp_path / "prepared"
    for name in ("mine", "mine-first-5"):
        make_file(prepared / name / "manifest.jsonl")
        make_file(prepared / name / "vocabulary.json")
        make_file(prepared / name / "photos" / "a.jpg")
    make_file(prepared / "downloads" / "b.jpg")
    data = DataFolder(tmp_path, prepared / "mine")
    assert data.photos == {
        "a.jpg": prepared / "mine" / "photos" / "a.jpg",
        "b.jpg": prepared / "downloads" / "b.jpg",
    }
    assert data.text_names("*.json*") == []


def test_utf_8_names_without_the_flag_are_read_as_utf_8(tmp_path):
    make_zip(tmp_path / "photos.zip", {"café.jpg": JPEG, "abc.jpg": JPEG})
    content = (tmp_path / "photos.zip").read_bytes()
    assert content.count(b"\x00\x08\x08\x00") == 2  # UTF-8 and deflate, of one entry
    content = content.replace(b"\x00\x08\x08\x00", b"\x00\x00\x08\x00")
    (tmp_path / "photos.zip").write_bytes(content)
    data = search(tmp_path)
    assert set(data.photos) == {"café.jpg", "abc.jpg"}
    data.unpack(data.photos.values())
    assert data.photos["café.jpg"].read_bytes() == JPEG


def with_method(path, method, flag=0):
    """Change the method and the flags of all entries, which were deflated."""
    content = path.read_bytes()
    old = (0).to_bytes(2, "little") + (8).to_bytes(2, "little")
    new = flag.to_bytes(2, "little") + method.to_bytes(2, "little")
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    ("method", "flag", "fault"),
    [
        (9, 0, r"uses Deflate64 \(method 9\)"),
        (98, 0, r"uses Ppmd \(method 98\)"),
        (77, 0, r"uses Unknown \(method 77\)"),
        (8, 1, "is encrypted"),
    ],
)
def test_an_archive_that_cannot_be_read_is_one_line_with_the_remedy(
    tmp_path, method, flag, fault
):
    path = make_zip(tmp_path / "photos.zip", {"a.jpg": JPEG * 9, "b.txt": "text " * 9})
    with_method(path, method, flag)
    data = search(tmp_path)  # it may be of no use here
    remedy = "which cannot be read here; unpack the archive yourself"
    with refused(DataError, f"photos.zip: a.jpg {fault}, {remedy}"):
        data.unpack(data.photos.values())
    with refused(DataError, f"photos.zip: b.txt {fault}, {remedy}"):
        data.text("b.txt")
    assert not (tmp_path / "work").exists()
    assert data.unpack([]) == set()


def test_unpacked_photos_are_preferred_to_packed_ones(tmp_path):
    make_zip(tmp_path / "photos.zip", {"a.jpg": JPEG, "b.jpg": JPEG})
    make_file(tmp_path / "deep" / "er" / "a.jpg")
    assert search(tmp_path).photos == {
        "a.jpg": tmp_path / "deep" / "er" / "a.jpg",
        "b.jpg": tmp_path / "work" / "photos" / "b.jpg",
    }


def test_a_photo_in_two_folders_is_recorded(tmp_path):
    for place in ("one", "two", "three/four"):
        make_file(tmp_path / place / "a.jpg")
    data = search(tmp_path)
    assert data.found_twice == {"a.jpg"}
    assert data.photos["a.jpg"] == tmp_path / "one" / "a.jpg"


def test_a_text_that_is_not_read_for_another_of_its_name_is_noted(tmp_path):
    for place in ("one", "two"):
        make_file(tmp_path / place / "a.txt", place)
    make_zip(tmp_path / "texts.zip", {"a.txt": "packed", "b.txt": "b"})
    data = search(tmp_path)
    assert data.problems.notes == []
    assert [data.text("a.txt").text for _ in range(2)] == ["one", "one"]
    assert data.text("b.txt").text == "b"
    first, second = (tmp_path / place / "a.txt" for place in ("one", "two"))
    assert data.problems.notes == [
        f"two files of the name a.txt: {first} is read, {second} is not"
    ]


def test_hidden_files_and_prepared_photos_are_ignored(tmp_path):
    for name in (".git/a.jpg", "__MACOSX/b.jpg", "work/c.jpg", ".d.jpg"):
        make_file(tmp_path / name)
    assert search(tmp_path).photos == {}


def test_a_damaged_archive_and_an_absent_folder_are_one_line(tmp_path):
    make_file(tmp_path / "photos.zip", b"PK\x03\x04 half of it")
    with refused(DataError, r"photos\.zip: cannot be read"):
        search(tmp_path)
    with refused(DataError, "no such folder"):
        search(tmp_path / "absent")


def test_unpacking_again_writes_only_missing_photos(tmp_path, capsys):
    contents = {f"{number}.jpg": JPEG + bytes([number]) for number in range(4)}
    make_zip(tmp_path / "photos.zip", contents)
    target = tmp_path / "work" / "photos"
    unpack(tmp_path, progress=True)
    assert "unpacking photos.zip: 100%" in capsys.readouterr().err
    before = (target / "0.jpg").stat().st_mtime_ns
    (target / "1.jpg").unlink()
    make_file(target / "2.jpg", b"cut")
    make_file(target / ".writing-2.jpg", b"left by a killed run")
    unpack(tmp_path, progress=True)
    assert " 2/2 " in capsys.readouterr().err
    assert (target / "0.jpg").stat().st_mtime_ns == before
    assert {name: (target / name).read_bytes() for name in contents} == contents


def test_an_unpacked_photo_of_the_same_size_and_another_content_is_replaced(tmp_path):
    target = tmp_path / "work" / "photos" / "a.jpg"
    for content in (JPEG + b"1", JPEG + b"2"):
        make_zip(tmp_path / "photos.zip", {"a.jpg": content})
        unpack(tmp_path)
        assert target.read_bytes() == content


def change_content(archive):
    archive[archive.index(JPEG)] ^= 0xFF  # it is stored as it is


def change_field(offset, value):
    def change(archive):
        at = archive.index(b"PK\x01\x02") + offset
        archive[at : at + 2] = value.to_bytes(2, "little")

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bad.jpg", change_content),
        ("bad.jpg", change_field(10, 99)),  # of an unknown kind
        ("bad.jpg", change_field(8, 1)),
        ("bad.jpg", change_field(8, 0x20)),
        ("n" * 300 + ".jpg", lambda archive: None),
    ],
)
def test_a_damaged_entry_is_a_problem_and_the_others_are_unpacked(
    tmp_path, name, change
):
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr(name, JPEG)
        archive.writestr("good.jpg", JPEG)
    data = bytearray((tmp_path / "photos.zip").read_bytes())
    change(data)
    (tmp_path / "photos.zip").write_bytes(data)
    assert unpack(tmp_path) == [name]
    assert [path.name for path in tmp_path.glob("work/photos/*")] == ["good.jpg"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    make_zip(tmp_path / "photos.zip", {"a.jpg": JPEG})
    make_file(tmp_path / "work" / "photos", b"a file, not a folder")
    with pytest.raises(DataError, match="cannot be unpacked into"):
        unpack(tmp_path)


def test_a_full_disk_is_one_line_before_anything_is_written(tmp_path, monkeypatch):
    make_zip(tmp_path / "photos.zip", {"a.jpg": b"0" * 2000})
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 1500)
    with pytest.raises(DataError, match=r"need 2\.00kB of .*1\.50kB free"):
        unpack(tmp_path)
    assert not (tmp_path / "work").exists()


def test_links_are_followed_once_and_not_back(tmp_path):
    data, disk = tmp_path / "data", tmp_path / "disk"
    make_file(disk / "a.jpg")
    (disk / "loop").symlink_to(".")
    data.mkdir()
    for number in range(12):
        (data / f"here{number}").symlink_to(".")
        (disk / f"up{number}").symlink_to("../data")
    for name in ("one", "two"):
        (data / name).symlink_to(disk)
    (data / "b.jpg").symlink_to(disk / "a.jpg")
    found = search(data)
    assert found.photo_files == [data / "b.jpg", data / "one" / "a.jpg"]
    assert found.found_twice == set()


@pytest.mark.usefixtures("closed")
def test_an_unreadable_folder_is_a_problem(tmp_path):
    make_file(tmp_path / "good" / "a.jpg")
    make_file(tmp_path / "closed" / "b.jpg")
    data = search(tmp_path)
    assert data.photo_files == [tmp_path / "good" / "a.jpg"]
    closed = f"{tmp_path / 'closed'}: Permission denied"
    assert data.problems.names(Problem.UNREADABLE_FOLDER) == [closed]


@pytest.mark.timeout(20)
def test_pipes_devices_and_links_to_them_or_to_nothing_are_problems(tmp_path):
    make_file(tmp_path / "a.jpg")
    for name in ("b.jpg", "c.zip", "d.txt"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "e.zip").symlink_to("/dev/zero")
    (tmp_path / "f.txt").symlink_to("c.zip")
    for name, target in (("g.jpg", "a.jpg/x"), ("h.jpg", "h.jpg"), ("i", "absent")):
        (tmp_path / name).symlink_to(target)
    data = search(tmp_path)
    assert data.photo_files == [tmp_path / "a.jpg"]
    assert data.text("d.txt", "f.txt") is None
    broken = [str(tmp_path / name) for name in ("g.jpg", "h.jpg", "i")]
    assert data.problems.names(Problem.BROKEN_LINK) == broken
    special = [str(tmp_path / n) for n in ("b.jpg", "c.zip", "d.txt", "e.zip", "f.txt")]
    assert data.problems.names(Problem.SPECIAL_FILE) == special
    with pytest.raises(DataError, match=r"d\.txt: cannot be read \(not a regular file"):
        read_text(tmp_path / "d.txt")


def test_texts_that_are_too_large_are_refused_before_they_are_read(
    tmp_path, monkeypatch
):
    make_zip(tmp_path / "texts.zip", {"packed.txt": "x" * 101})
    make_file(tmp_path / "plain.txt", "x" * 101)
    data = search(tmp_path)
    assert len(data.text("packed.txt").text) == 101
    limited = functools.partial(data_folder.read_text_bytes, limit=100)
    monkeypatch.setattr(data_folder, "read_text_bytes", limited)
    monkeypatch.setattr(data_folder, "MAX_TEXT_BYTES", 100)
    for name in ("packed.txt", "plain.txt"):
        with refused(DataError, "101 bytes, more than 100|at most 100 bytes"):
            data.text(name)
