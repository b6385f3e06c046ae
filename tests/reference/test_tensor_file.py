"""Files of tensors: arrays and JSON come back, false headers allocate nothing."""

import json
import sys
import tracemalloc

import numpy as np
import pytest
from hostile_models import Canaries
from hostile_tensors import headers, other_files
from tensor_files import joined, split

from show_attend_tell.reference.tensor_file import (
    class_of,
    current_path,
    open_tensors,
    write_tensors,
)

ABOUT = {"class": "Thing", "text": "a\nü \U0001f411", "numbers": [1, 2.5, 1e-300]}
KINDS = ["f4", "f2", "i1", "i4", "i8", "u2", "u4", "?"]


def read(path, *names):
    with open_tensors(path, "Thing") as file:
        return file.about, {name: file.read(name) for name in names or file.names}


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (300,), (3, 3, 4, 5)])
def test_arrays_and_json_come_back(rng, tmp_path, dtype, shape):
    values = (100 * rng.standard_normal(shape)).astype(dtype)
    arrays = {"a": values, "b/c.d": values.T, "e": np.float32(2)}
    path = tmp_path / "new" / "x.safetensors"
    write_tensors(path, ABOUT, arrays)
    about, found = read(path)
    assert {key: about[key] for key in ABOUT} == ABOUT
    assert found.keys() == arrays.keys()
    for name, expected in arrays.items():
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)
    before = path.read_bytes()
    write_tensors(path, dict(reversed(ABOUT.items())), dict(reversed(arrays.items())))
    assert path.read_bytes() == before


@pytest.fixture
def good(tmp_path, rng):
    path = tmp_path / "good.safetensors"
    arrays = {"a": rng.standard_normal((30, 40)).astype("f4"), "b": np.zeros(5, "i1")}
    write_tensors(path, ABOUT, arrays)
    return path


def test_false_headers_are_refused_without_allocation(good, tmp_path):
    canaries = Canaries(tmp_path / "mark", good, "")
    cases = [*headers(good.read_bytes()), *list(other_files(canaries))[1:]]
    path = tmp_path / "bad.safetensors"
    for what, content in cases:
        if what == "another type":  # of as many bytes, which settings refuse
            continue
        path.write_bytes(content)
        size = len(content)
        del content
        tracemalloc.start()
        with pytest.raises((OSError, ValueError)) as caught:
            read(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "\n" not in str(caught.value), what
        assert len(str(caught.value)) < 400, what
        assert peak < 30_000_000 + 3 * min(size, 20_000_000), what
    assert not canaries.mark.exists()


def test_a_flipped_bit_in_an_array_is_found_when_it_is_read(good):
    header, data = split(good.read_bytes())
    start, _ = header["a"]["data_offsets"]
    changed = bytearray(data)
    changed[start + 9] ^= 4
    good.write_bytes(joined(header, bytes(changed)))
    read(good, "b")
    with pytest.raises(ValueError, match="`a` is damaged: its checksum differs"):
        read(good, "a")


def test_a_changed_setting_is_found_by_its_checksum(good):
    header, data = split(good.read_bytes())
    text = header["__metadata__"]["show_attend_tell"]
    header["__metadata__"]["show_attend_tell"] = text.replace("2.5", "2.6")
    good.write_bytes(joined(header, data))
    with pytest.raises(ValueError, match="settings are damaged"):
        read(good)


def test_settings_that_are_read_but_nested_too_deeply_to_write_are_refused(good):
    header, data = split(good.read_bytes())
    text = header["__metadata__"]["show_attend_tell"].removesuffix("}")
    for depth in range(sys.getrecursionlimit() - 100, sys.getrecursionlimit()):
        nested = "[" * depth + "]" * depth
        header["__metadata__"]["show_attend_tell"] = f'{text}, "new": {nested}}}'
        good.write_bytes(joined(header, data))
        with pytest.raises(ValueError, match=r"at most 100 levels|nested too deeply"):
            read(good)
        assert class_of(good) == ""


def test_the_class_of_a_file_is_known_and_another_is_refused(good, tmp_path):
    assert class_of(good) == "Thing"
    with (
        pytest.raises(ValueError, match="must hold a Captioner. Received: Thing"),
        open_tensors(good, "Captioner"),
    ):
        pass
    for content in (b"", b"PK", json.dumps(ABOUT).encode(), bytes(100)):
        (tmp_path / "x").write_bytes(content)
        assert class_of(tmp_path / "x") == ""
    assert class_of(tmp_path) == ""
    assert class_of(tmp_path / "absent") == ""


def test_a_full_disk_is_an_os_error_and_leaves_the_file(good, monkeypatch):
    before = good.read_bytes()

    def fail(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_tensors(good, ABOUT, {})
    assert caught.value.filename == str(good)
    monkeypatch.undo()
    assert good.read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.keras", "model.safetensors"),
        ("net.weights.h5", "net.safetensors"),
        ("model.weights.h5", "model.safetensors"),
        ("model.reranker.npz", "model.reranker.safetensors"),
        ("a.b.keras", "a.b.safetensors"),
    ],
)
def test_the_new_name_of_an_old_file(tmp_path, old, new):
    assert current_path(tmp_path / old) == tmp_path / new
