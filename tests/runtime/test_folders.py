"""The walk of folders: what is left alone, for every caller of it."""

import ntpath
import zipfile

import pytest
from PIL import Image
from system_folders import OWN, SYSTEM

from data_prep.data_folder import DataFolder
from show_attend_tell.inference.photos import find_photos
from show_attend_tell.runtime import folders
from show_attend_tell.runtime.folders import is_left_alone, walk_folders


@pytest.fixture
def folder(tmp_path):
    """A folder with a photo in each system folder, and in each folder of a person."""
    for name in [*SYSTEM, *OWN]:
        path = tmp_path / name / "inside" / f"{name}.jpg".replace("/", "")
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(path)
    return tmp_path


def test_photos_of_systems_are_left_alone_by_captions_and_data_sets(folder):
    found = {path.name for path in find_photos([folder])}
    assert found == {f"{name}.jpg" for name in OWN}
    data = DataFolder(folder, folder / "prepared")
    assert data.photos.keys() == found
    assert not len(data.problems)


def test_photos_of_systems_are_left_alone_in_archives(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("packed")
    with zipfile.ZipFile(place / "photos.zip", "w") as archive:
        for path in folder.rglob("*.jpg"):
            archive.write(path, path.relative_to(folder))
    data = DataFolder(place, place / "prepared")
    assert data.photos.keys() == {f"{name}.jpg" for name in OWN}


def test_a_system_folder_that_is_named_is_walked(folder):
    (photo,) = find_photos([folder / "@eaDir"])
    assert photo.name == "@eaDir.jpg"


def test_the_names_that_are_left_alone_are_few():
    assert all(map(is_left_alone, SYSTEM))
    assert not any(map(is_left_alone, OWN))


def test_a_link_to_another_drive_of_windows_is_followed(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "drive").mkdir()
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "drive")

    def commonpath(paths):
        return ntpath.commonpath(
            [f"{k}:{path}" for k, path in zip("cd", paths, strict=True)]
        )

    monkeypatch.setattr(folders.os.path, "commonpath", commonpath)
    found = [listing.folder for listing in walk_folders(tmp_path / "photos")]
    assert found == [str(tmp_path / "photos"), str(tmp_path / "photos" / "link")]


def test_a_walk_stops_at_its_depth_and_before_folders_left_out(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "left out").mkdir()
    found = [
        listing.folder for listing in walk_folders(tmp_path, 2, [tmp_path / "left out"])
    ]
    names = ["", "a", "a/b"]
    assert found == [str(tmp_path / name) for name in names]
