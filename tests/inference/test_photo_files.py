"""Photos in folders: names, links, loops."""

import os

import pytest
from PIL import Image

from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import Failure


def photo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)
    return path


def names(root):
    return [p.relative_to(root).as_posix() for p in find_photos([root])]


def test_spaces_and_other_alphabets_are_names_like_others(tmp_path):
    wanted = ["a b.jpg", "été à la mer.jpg", "写真/花 見.png"]
    for name in wanted:
        photo(tmp_path / name)
    assert names(tmp_path) == wanted


def test_links_to_photos_count_and_broken_ones_are_kept_to_be_listed(tmp_path):
    real = photo(tmp_path / "outside" / "real.jpg")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.jpg").symlink_to(real)
    (folder / "torn.jpg").symlink_to(tmp_path / "absent.jpg")
    assert names(folder) == ["link.jpg", "torn.jpg"]


def test_links_to_folders_outside_are_followed_once(tmp_path):
    photo(tmp_path / "outside" / "deep" / "real.jpg")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).symlink_to(tmp_path / "outside", target_is_directory=True)
    assert names(folder) == ["one/deep/real.jpg"]


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


def test_a_folder_named_through_a_link_is_walked(tmp_path):
    photo(tmp_path / "real" / "a.jpg")
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    assert names(tmp_path / "link") == ["a.jpg"]


def test_a_folder_without_photos_is_a_failure(tmp_path):
    (only,) = find_photos([tmp_path])
    assert only == Failure(tmp_path, f"{tmp_path}: no photo in this folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every folder")
def test_a_folder_that_cannot_be_read_is_a_failure(tmp_path):
    tmp_path.chmod(0)
    (only,) = find_photos([tmp_path])
    tmp_path.chmod(0o700)
    assert only.reason == f"{tmp_path}: Permission denied"
