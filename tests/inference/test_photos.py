"""Photos in folders: names, links, loops, entries that cannot be read."""

import os
import struct
from pathlib import Path

import pytest
from child_process import special_entries
from pictures import image_bytes
from PIL import Image, TiffImagePlugin, TiffTags, features
from refusals import refused

from show_attend_tell.data import preprocessing
from show_attend_tell.data.preprocessing import load_photo
from show_attend_tell.inference.photos import Failure, find_photos, to_input
from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import PhotoError


def photo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)
    return path


def names(root):
    return [p.relative_to(root).as_posix() for p in find_photos([root])]


def test_folders_are_scanned_in_order_and_only_for_photos(folder):
    assert names(folder) == [
        "a.png",
        "b.JPG",
        "broken.jpeg",
        "d.Gif",
        "nested/a.tif",
        "nested/deeper/c.webp",
    ]


def test_a_file_that_is_named_is_yielded_whatever_its_suffix(folder):
    path = folder / "notes.txt"
    assert list(find_photos([str(path), path])) == [path, path]


def test_links_to_photos_and_to_folders_outside_are_followed_once(tmp_path):
    real = photo(tmp_path / "outside" / "été à la mer" / "花 見.jpg")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.jpg").symlink_to(real)
    for name in ("one", "two"):
        (folder / name).symlink_to(tmp_path / "outside", target_is_directory=True)
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    for root in (folder, tmp_path / "link"):
        assert names(root) == ["link.jpg", "one/été à la mer/花 見.jpg"]


def test_links_in_a_loop_end_and_no_photo_comes_twice(tmp_path):
    folder = tmp_path / "folder"
    photo(folder / "inside" / "a.jpg")
    photo(tmp_path / "above.jpg")
    for name, target in (("self", folder), ("up", tmp_path), ("in", folder / "inside")):
        (folder / name).symlink_to(target, target_is_directory=True)
    outside = tmp_path / "outside"
    photo(outside / "b.jpg")
    (outside / "back").symlink_to(folder, target_is_directory=True)
    (folder / "out").symlink_to(outside, target_is_directory=True)
    assert names(folder) == ["inside/a.jpg", "out/b.jpg"]


NO_PHOTO = "a named pipe, socket or device is no photo; name a regular file"
IO_ERROR = "Input/output error"
LINKS = {
    "linked to itself": "Too many levels of symbolic links",
    "linked to nothing": "No such file or directory",
    "linked to a name of 300 letters": "File name too long",
    "linked to a path through a file": "Not a directory",
}
FILES = {
    "FIFO named": NO_PHOTO,
    "socket named": NO_PHOTO,
    "link to a FIFO named": NO_PHOTO,
    "linked to -dev-zero": NO_PHOTO,
    "linked to -dev-tty": NO_PHOTO,
    "linked to -proc-self-mem": f"cannot be read as a photo: {OSError(5, IO_ERROR)}",
}


# Pillow does not close a file whose first bytes cannot be read, as of /proc/self/mem.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(120)
def test_entries_that_are_no_photos_are_failures_among_photos(run, tmp_path):
    folder = tmp_path / "photos"
    whole = [photo(folder / name) for name in ("a.png", "z.png")]
    for suffix in (".jpg", ""):
        for number, (what, _) in enumerate(special_entries("", whole[0])):
            entry = f"{what[1:].strip()}{suffix}".replace("/", "-")
            entries = list(special_entries(entry, whole[0]))
            (tmp_path / "fifo").unlink(missing_ok=True)
            entries[number][1](folder)
    code, lines, err = run(folder)
    assert code == 1
    assert [line.partition(": ")[0] for line in lines] == list(map(str, whole))
    *refusals, last = (line.removeprefix(f"{folder}/") for line in err.splitlines())
    expected = {
        f"{what}{end}: {r}" for what, r in LINKS.items() for end in ("", ".jpg")
    }
    assert set(refusals) == expected | {f"{w}.jpg: {r}" for w, r in FILES.items()}
    assert last == f"{len(refusals)} photos not captioned"
    named = [folder / f"{what}.jpg" for what, why in FILES.items() if why == NO_PHOTO]
    expected = [Failure(path, f"{path}: {NO_PHOTO}") for path in named]
    assert list(find_photos([whole[0], *named])) == [whole[0], *expected]


def test_a_named_path_that_cannot_exist_is_not_scanned(tmp_path):
    paths = [tmp_path / ("x" * 300), tmp_path / "loop"]
    paths[1].symlink_to("loop")
    assert list(find_photos(paths)) == paths


@pytest.mark.parametrize("suffix", [".heic", ".HEIF", ".Heic"])
def test_photos_of_unsupported_formats_are_listed(tmp_path, suffix, monkeypatch):
    whole, path = photo(tmp_path / "a.jpg"), tmp_path / f"b{suffix}"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    monkeypatch.setattr(preprocessing, "PHOTO_SUFFIXES", frozenset([".jpg"]))
    reason = (
        f"{path}: HEIC cannot be read; run pip install 'show-attend-tell[heic]', or "
        "convert it to JPEG"
    )
    assert list(find_photos([tmp_path])) == [whole, Failure(path, reason)]


def test_an_open_photo_of_an_unsupported_format_gets_the_same_remedy(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(preprocessing, "PHOTO_SUFFIXES", frozenset([".jpg"]))
    path = tmp_path / "b.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    with path.open("rb") as file:
        photo = to_input(file)
    with refused(PhotoError, r"b\.heic: HEIC cannot be read; run pip install"):
        photo.load()


def tiff(**tags) -> bytes:
    """Return a TIFF with tags, named by their numbers: ``_254=1``."""
    directory = TiffImagePlugin.ImageFileDirectory_v2()
    for name, value in tags.items():
        number = int(name[1:])
        directory.tagtype[number] = TYPES.get(number, TiffTags.LONG)
        directory[number] = value
    return image_bytes(Image.new("RGB", (8, 8), "red"), "TIFF", tiffinfo=directory)


def canon(content: bytes) -> bytes:
    """Return a TIFF in the form of a CR2: its directory comes after a longer header."""
    (start,) = struct.unpack("<I", content[4:8])
    (count,) = struct.unpack("<H", content[start : start + 2])
    directory = content[start : start + 2 + 12 * count + 4]
    content += bytes(len(content) % 2)
    head = content[:4] + struct.pack("<I", len(content)) + b"CR\2\0"
    return head + content[12:] + directory


TYPES = {50706: TiffTags.BYTE}
PLAIN_TIFF = tiff()
RAW = {
    "a DNG": tiff(_50706=b"\1\4\0\0"),
    "a thumbnail before other pictures": tiff(_254=1, _330=8),
    "a CR2": canon(PLAIN_TIFF),
}


@pytest.mark.parametrize("name", ["a.dng", "a.tif", "a.CR2", "a", "2.5.2019"])
@pytest.mark.parametrize("content", [PLAIN_TIFF, RAW["a DNG"]], ids=["TIFF", "raw"])
def test_a_photo_gets_one_answer_alone_and_in_a_folder(
    tmp_path, pipeline, name, content
):
    path = tmp_path / name
    path.write_bytes(content)
    (alone,) = pipeline.caption_photos([path])
    inside = list(pipeline.caption_photos([tmp_path]))
    if content is PLAIN_TIFF:
        (found,) = inside
        assert isinstance(alone, Caption)
        assert (found.path, found.text) == (path, alone.text)
    elif name in ("a", "2.5.2019"):
        reason = f"{tmp_path}: no photo in this folder"
        assert inside == [Failure(tmp_path, reason)]
        assert alone.reason == f"{path}: raw photos cannot be read; export it as JPEG"
    else:
        assert inside == [alone]
        assert alone.reason == f"{path}: raw photos cannot be read; export it as JPEG"


@pytest.mark.parametrize("content", RAW.values(), ids=RAW)
def test_raw_photos_are_known_by_their_content(tmp_path, content):
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    with refused(PhotoError, "raw photos cannot be read; export it as JPEG"):
        load_photo(path)


def test_files_without_a_suffix_are_photos_by_their_content(tmp_path):
    photo(tmp_path / "a.jpg").rename(tmp_path / "IMG_0001")
    photo(tmp_path / "a.jpg").rename(tmp_path / "2019.12.24")
    photo(tmp_path / "a.jpg").rename(tmp_path / "a.jpg_original")  # a backup
    photo(tmp_path / "a.jpg").rename(tmp_path / "a.heic")
    (tmp_path / "Makefile").write_text("all:")
    (tmp_path / "empty").touch()
    assert names(tmp_path) == ["2019.12.24", "IMG_0001", "a.heic"]


def test_a_raw_photo_beside_a_jpeg_is_ignored_and_a_tiff_of_its_name_is_not(tmp_path):
    photo(tmp_path / "a.jpg")
    photo(tmp_path / "b.jpg")
    (tmp_path / "a.dng").write_bytes(RAW["a DNG"])
    (tmp_path / "b.dng").write_bytes(PLAIN_TIFF)
    assert names(tmp_path) == ["a.jpg", "b.dng", "b.jpg"]


@pytest.mark.parametrize("name", ["-dash.jpg", "--out.jpg", "--json=.jpg", "-1.jpg"])
def test_the_name_of_a_photo_is_never_an_option(tmp_path, monkeypatch, run, name):
    monkeypatch.chdir(tmp_path)
    photo(tmp_path / name)
    photo(tmp_path / "b.jpg")
    code, lines, err = run(name, "b.jpg")
    if name == "--json=.jpg":  # of an option of ours, whatever files there are
        assert (code, lines) == (2, [])
        return
    assert (code, err) == (0, "")
    assert [line.partition(": ")[0] for line in lines] == [name, "b.jpg"]
    code, _, err = run("--absent.jpg", "b.jpg")
    assert (code, "No such option" in err) == (2, True)


def test_avif_is_captioned_or_listed(tmp_path, pipeline):
    path = tmp_path / "a.avif"
    if features.check("avif"):
        photo(path)
    else:
        path.write_bytes(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf")
    (result,) = pipeline.caption_photos([tmp_path])
    assert result.path == path
    assert isinstance(result, Caption) == features.check("avif")


@pytest.mark.parametrize(("depth", "name"), [(1200, "d"), (30, "d" * 200)])
def test_folders_nested_deeply_are_scanned_or_listed(
    tmp_path, monkeypatch, depth, name
):
    monkeypatch.chdir(tmp_path)
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    photo(Path("z.jpg"))
    try:
        first, last = find_photos([photo(tmp_path / "a.jpg").parent])
    finally:  # the functions that remove a folder call themselves for each level
        os.unlink("z.jpg")
        for _ in range(depth):
            os.chdir("..")
            os.rmdir(name)
    assert first == tmp_path / "a.jpg"
    if len(name) == 1:
        assert last == tmp_path.joinpath(*[name] * depth, "z.jpg")
    else:  # longer than a path may be
        assert last.reason.endswith(": File name too long")


def test_a_folder_without_photos_is_a_failure(tmp_path):
    (only,) = find_photos([tmp_path])
    assert only == Failure(tmp_path, f"{tmp_path}: no photo in this folder")


@pytest.mark.usefixtures("closed")
def test_folders_that_cannot_be_read_are_failures(tmp_path):
    photo(tmp_path / "open" / "a.jpg")
    (tmp_path / "closed").mkdir()
    found = list(find_photos([tmp_path, tmp_path / "closed"]))
    failure = Failure(tmp_path / "closed", f"{tmp_path / 'closed'}: Permission denied")
    assert sorted(found, key=str) == sorted(
        [failure, tmp_path / "open" / "a.jpg", failure], key=str
    )
