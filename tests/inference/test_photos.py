"""Photos in folders: names, links, loops, entries that cannot be read."""

import os
from pathlib import Path

import pytest
from child_process import special_entries
from PIL import Image, features

from show_attend_tell.data import preprocessing
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.inference.result import Caption, Failure


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
