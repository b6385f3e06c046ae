"""The idx files of MNIST: read, prepared, and refused where damaged."""

import functools
import gzip
import struct

import numpy as np
import pytest
from made_up_digits import digits, experiment, idx, write_idx
from refusals import refusal

from data_prep.prepare import prepare
from show_attend_tell.config.experiments import limit_experiment
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.digits.data import Digits, read_digits
from show_attend_tell.siblings.digits.mnist import read_idx, read_mnist


def assert_same(one, other):
    np.testing.assert_array_equal(one.images, other.images)
    np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("form", ["idx", "gz", "npz"])
def test_both_splits_are_read_from_every_form(tmp_path, form):
    train, test = digits(30), digits(12, seed=1)
    if form == "npz":  # of Keras
        arrays = {"x_train": train.images, "y_train": train.labels}
        arrays |= {"x_test": test.images, "y_test": test.labels}
        np.savez(tmp_path / "mnist.npz", **arrays)
    else:
        write_idx(tmp_path, "train", train, form == "gz")
        assert set(read_mnist(tmp_path)) == {"train"}
        write_idx(tmp_path, "t10k", test, form == "gz")
    found = read_mnist(tmp_path)
    assert_same(found["train"], train)
    assert_same(found["test"], test)


def test_digits_are_prepared_with_counts_of_each_split(tmp_path):
    write_idx(tmp_path, "train", digits(30), True)
    work = tmp_path / "work"
    report = prepare(experiment(), tmp_path, work)
    assert report.lines()[:2] == ["train: 14 digits", "val: 16 digits"]
    train = Digits(*(values[:29] for values in digits(30)))
    assert_same(read_digits(work / "made-up", "train", 1), train)
    with pytest.raises(DataError):
        read_digits(work / "made-up", "test", 1)
    write_idx(tmp_path, "t10k", digits(12))
    assert "test: 12 digits" in prepare(experiment(), tmp_path, work).lines()
    assert len(read_digits(work / "made-up", "test", 1).images) == 12


def test_a_limit_keeps_the_first_digits_of_each_split(tmp_path):
    whole = digits(30)
    write_idx(tmp_path, "train", whole)
    write_idx(tmp_path, "t10k", digits(12))
    chosen = limit_experiment(experiment(), 4)
    assert (chosen.data.name, chosen.data.validation) == ("made-up-first-4", 4)
    report = prepare(chosen, tmp_path, tmp_path / "work", limit=4)
    assert report.lines()[:3] == ["train: 4 digits", "val: 4 digits", "test: 4 digits"]
    folder = tmp_path / "work" / "made-up-first-4"
    assert_same(read_digits(folder, "train", 4), Digits(*(x[:4] for x in whole)))
    assert_same(read_digits(folder, "val", 4), Digits(*(x[-4:] for x in whole)))
    assert len(read_digits(folder, "test", 4).labels) == 4


error_of = functools.partial(refusal, DataError)


def test_absent_files_are_named(tmp_path):
    assert "no such folder" in error_of(read_mnist, tmp_path / "absent")
    assert "no file train-images-idx3-ubyte" in error_of(read_mnist, tmp_path)
    write_idx(tmp_path, "train", digits(30))
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    assert "no file train-labels-idx1-ubyte" in error_of(read_mnist, tmp_path)


def test_too_few_digits_are_refused_before_anything_is_written(tmp_path):
    write_idx(tmp_path, "train", digits(16))
    work = tmp_path / "work"
    message = error_of(prepare, experiment(), tmp_path, work)
    assert "less than the 16 training digits" in message
    assert [path.name for path in work.rglob("*.npz")] == []


WHOLE = idx(digits(3).images)
DAMAGED = {
    "empty": b"",
    "cut in its header": WHOLE[:9],
    "cut": WHOLE[:-5],
    "longer": WHOLE + b"0",
    "of floats": WHOLE[:2] + b"\x0d" + WHOLE[3:],
    "of another size": struct.pack(">HBB3I", 0, 8, 3, 3, 20, 28) + WHOLE[16:],
    "of too many digits": struct.pack(">HBB3I", 0, 8, 3, 2**31, 28, 28) + WHOLE[16:],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("compress", [False, True])
def test_a_damaged_file_is_refused_by_one_line(tmp_path, content, compress):
    path = tmp_path / ("images.gz" if compress else "images")
    path.write_bytes(gzip.compress(content) if compress else content)
    assert str(path) in error_of(read_idx, path)


@pytest.mark.parametrize("content", [WHOLE, gzip.compress(WHOLE)[:-30]])
def test_a_file_that_is_not_gzip_is_refused(tmp_path, content):
    (tmp_path / "images.gz").write_bytes(content)
    message = error_of(read_idx, tmp_path / "images.gz")
    assert "cannot be read" in message


def test_labels_beyond_nine_or_of_another_number_are_refused(tmp_path):
    own = digits(20)
    for labels in (own.labels + 5, own.labels[:19]):
        write_idx(tmp_path, "train", own._replace(labels=labels))
        assert "labels (N,), integers from 0 to 9" in error_of(read_mnist, tmp_path)


@pytest.mark.parametrize("kind", [np.int8, np.float32, "U1", object])
def test_labels_of_an_archive_are_integers_from_0(tmp_path, kind):
    own = digits(20)
    labels = own.labels.astype(kind)
    if kind == np.int8:
        labels[3] = -1
    np.savez(
        tmp_path / "mnist.npz",
        **{"x_train": own.images, "y_train": labels},
        **{"x_test": own.images, "y_test": own.labels},
    )
    assert error_of(read_mnist, tmp_path).startswith(str(tmp_path / "mnist.npz"))
