"""Mistakes of the package are tracebacks; only faults of a file are one line."""

import struct
import zipfile

import numpy as np
import pytest
from made_up_features import write
from pictures import image_bytes
from PIL import Image
from refusals import refused

from data_prep import data_folder
from show_attend_tell.conversion.convert import convert
from show_attend_tell.data import features, manifest, preprocessing, vocabulary
from show_attend_tell.data.photo_faults import pillow_faults
from show_attend_tell.deployment.server import uploads
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.untrusted import ZIP_FAULTS, as_value_error, reading

MISTAKES = (AttributeError, TypeError, KeyError, IndexError, NameError, AssertionError)


@pytest.mark.parametrize("error", MISTAKES)
def test_reading_lets_a_mistake_pass(error):
    with pytest.raises(error), reading("a.json", DataError, "write it again"):
        raise error("ours")


@pytest.mark.parametrize("error", [OSError, ValueError, UnicodeError])
def test_reading_names_the_file_for_a_fault_of_it(error):
    line = r"^a\.json: cannot be read \(theirs\); write it again$"
    with refused(DataError, line), reading("a.json", DataError, "write it again"):
        raise error("theirs")


@pytest.mark.parametrize("error", ZIP_FAULTS)
def test_faults_of_a_library_become_a_value_error_with_their_cause(error):
    with pytest.raises(ValueError, match="theirs") as caught:
        with as_value_error(*ZIP_FAULTS):
            raise error("theirs")
    assert isinstance(caught.value.__cause__, error)


@pytest.mark.parametrize("error", [*MISTAKES, EOFError, SyntaxError, struct.error])
def test_faults_of_pillow_become_a_value_error_with_their_cause(error):
    with pytest.raises(ValueError, match="theirs") as caught, pillow_faults():
        raise error("theirs")
    assert isinstance(caught.value.__cause__, error)


def _feature_file(folder):
    write(folder / "features.h5")
    features.FeatureReader(folder / "features.h5").close()


def _manifest(folder):
    (folder / "manifest.jsonl").write_text(
        '{"id": "a", "path": "a.jpg", "split": "train", "captions": ["a dog"]}\n'
    )
    manifest.read_manifest(folder / "manifest.jsonl")


def _vocabulary(folder):
    vocabulary.Vocabulary.build([["a", "dog"]], 10, 1).save(folder / "v.json")
    vocabulary.Vocabulary.load(folder / "v.json")


def _photo(folder):
    Image.fromarray(np.full((8, 8), 300, np.uint16)).save(folder / "grey.png")
    preprocessing.load_photo(folder / "grey.png")


def _upload(folder):
    uploads.open_upload(image_bytes(Image.new("RGB", (8, 8))))


def _archive(folder):
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("a.txt", "a dog")
    data_folder.DataFolder(folder, folder / "prepared").text("a.txt")


def _old_model(folder):
    with zipfile.ZipFile(folder / "model.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    convert(folder / "model.keras")


READERS = [
    (_feature_file, features, "index_digest"),
    (_manifest, manifest, "_fault"),
    (_vocabulary, vocabulary, "_digest"),
    (_photo, preprocessing, "_to_eight_bits"),
    (_upload, uploads, "_require_size"),
    (_archive, data_folder, "read_member"),
]


@pytest.mark.parametrize(("read", "module", "name"), READERS)
@pytest.mark.parametrize("error", [AttributeError, TypeError, IndexError])
def test_a_mistake_in_a_reader_is_a_traceback(
    tmp_path, monkeypatch, read, module, name, error
):
    def mistaken(*arguments, **options):
        raise error("ours")

    monkeypatch.setattr(module, name, mistaken)
    with pytest.raises(error, match="ours"):
        read(tmp_path)


@pytest.mark.parametrize("error", [AttributeError, TypeError, KeyError])
def test_a_mistake_of_convert_is_a_traceback(tmp_path, monkeypatch, error):
    def mistaken(*arguments, **options):
        raise error("ours")

    monkeypatch.setattr("show_attend_tell.conversion.keras_files.parse_json", mistaken)
    with pytest.raises(error, match="ours"):
        _old_model(tmp_path)
