"""The manifest: round trip, relative paths and malformed rows."""

import hashlib
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.data import manifest
from show_attend_tell.data.manifest import Photo, read_manifest, write_manifest
from show_attend_tell.runtime.errors import DataError

TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


def a_photo(**changes):
    values = {"id": "a.jpg", "path": "photos/a.jpg", "split": "train"}
    return Photo(**{**values, "captions": ["A dog runs ."], **changes})


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(TEXT, TEXT, st.lists(TEXT, max_size=3)),
        unique_by=lambda row: row[0],
        max_size=4,
    )
)
def test_writing_and_reading_gives_the_same_photos(tmp_path, rows):
    objects = [{"name": "red circle", "box": [1, 2, 3.5, 4]}]
    photos = [
        Photo(key, tmp_path / "x.jpg", split, tuple(captions), objects=objects)
        for key, split, captions in rows
    ]
    write_manifest(tmp_path / "manifest.jsonl", photos)
    assert read_manifest(tmp_path / "manifest.jsonl") == photos


def test_photos_below_the_manifest_are_moved_with_it_and_others_are_not(tmp_path):
    paths = [tmp_path / "set" / "photos" / "a.jpg", tmp_path / "other" / "b.jpg"]
    photos = [a_photo(id=path.name, path=path) for path in paths]
    write_manifest(tmp_path / "set" / "manifest.jsonl", photos)
    moved = (tmp_path / "set").rename(tmp_path / "moved")
    found = [photo.path for photo in read_manifest(moved / "manifest.jsonl")]
    assert found == [moved / "photos" / "a.jpg", paths[1]]


def test_a_byte_order_mark_of_an_edited_manifest_is_ignored(tmp_path):
    path = tmp_path / "manifest.jsonl"
    write_manifest(path, [a_photo(path=tmp_path / "a.jpg")])
    before = read_manifest(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    path.with_name("manifest.jsonl.sha256").unlink()
    assert read_manifest(path) == before


def test_an_earlier_manifest_survives_a_failed_write(tmp_path):
    file = tmp_path / "manifest.jsonl"
    write_manifest(file, [a_photo()])
    before = file.read_bytes()
    with pytest.raises(DataError, match=r"the id 'a\.jpg' occurs twice"):
        write_manifest(file, [a_photo(), a_photo()])
    assert file.read_bytes() == before


START = '{"id": "a", "path": "a", "split": "b", "captions": '
MALFORMED = [
    ("{", "line 1: not JSON"),
    *((line, "must be a JSON object") for line in ("[]", "null", "3", '"a"', "[1]")),
    ('{"id": "a"}', "must have the key `path`"),
    ('{"id": "", "path": "a", "split": "b", "captions": []}', "`id` must be"),
    ('{"id": "\\ud800", "path": "a", "split": "b", "captions": []}', "`id` must be"),
    (START + '"c"}', "`captions` must"),
    (START + '[""]}', "`captions` must"),
    (START + '["\\udfff"]}', "`captions` must"),
    (START + '[], "size": 1}', "the key 'size' is unknown"),
    (START + f'[], "{"k" * 10**5}": 1}}', "is unknown"),
    (START + '[], "objects": [{"name": "c", "box": [3, 0, 1, 1]}]}', "x0 < x1"),
    (START + '[], "objects": [{"name": "c", "box": [NaN, 0, 1, 1]}]}', "x0 < x1"),
    (START + f'[], "objects": [{{"name": "c", "box": [{"9" * 5000}]}}]}}', "line 1: "),
    *((line, "line 1: ") for line in ("[" * 10**5, "9" * 5000, '{"a":' * 10**5)),
]


@pytest.mark.parametrize(("line", "message"), MALFORMED)
def test_a_malformed_row_is_named_in_one_short_line(tmp_path, line, message):
    file = tmp_path / "manifest.jsonl"
    file.write_text(line + "\n")
    with refused(DataError) as caught:
        read_manifest(file)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(file))


def test_a_manifest_that_differs_from_its_digest_is_refused(tmp_path):
    file = tmp_path / "manifest.jsonl"
    write_manifest(file, [a_photo()])
    digest = tmp_path / "manifest.jsonl.sha256"
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest.read_text() == f"{expected}  manifest.jsonl\n"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"dog", b"cat"))
    with refused(DataError, "differs from its digest"):
        read_manifest(file)
    digest.unlink()  # to have an edited manifest read
    assert read_manifest(file)[0].captions == ("A cat runs .",)
    for content in (b"", b"\xff", b"0" * 64):
        digest.write_bytes(content)
        with pytest.raises(DataError, match="differs from its digest"):
            read_manifest(file)
    write_manifest(file, [a_photo()])
    assert read_manifest(file)[0].captions == ("A dog runs .",)


def test_a_killed_writer_leaves_no_digest_of_another_manifest(tmp_path, monkeypatch):
    file = tmp_path / "manifest.jsonl"
    write_manifest(file, [a_photo()])
    kill = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(manifest, "atomic_write", kill)
    with pytest.raises(KeyboardInterrupt):
        write_manifest(file, [a_photo(captions=["A cat ."])])
    assert read_manifest(file)[0].captions == ("A cat .",)
