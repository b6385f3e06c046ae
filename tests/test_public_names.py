"""The public names of ``import show_attend_tell as sat``."""

import inspect

import pytest
from new_process import python

import show_attend_tell as sat
from show_attend_tell.runtime import errors

PUBLIC = [
    "Caption",
    "Captioner",
    "CaptioningPipeline",
    "DecodingSettings",
    "Encoder",
    "Experiment",
    "Failure",
    "FeatureReader",
    "ShowAttendTellError",
    "Vocabulary",
    "load",
]


def test_the_public_names_are_exactly_these():
    assert sat.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(sat))
    assert [getattr(sat, name).__name__ for name in PUBLIC] == PUBLIC
    assert all(getattr(sat, name).__doc__ for name in PUBLIC)
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        sat.absent  # noqa: B018


def test_one_class_catches_every_error_of_the_package():
    members = inspect.getmembers(errors, inspect.isclass)
    classes = [one for _, one in members if one.__module__ == errors.__name__]
    assert len(classes) > 10
    assert all(issubclass(one, sat.ShowAttendTellError) for one in classes)


CODE = """
import sys
import show_attend_tell as sat
dir(sat), sat.__version__, sat.ShowAttendTellError
print(sorted({"tensorflow", "keras", "numpy"} & set(sys.modules)))
"""


def test_importing_the_package_loads_neither_tensorflow_nor_keras():
    done = python("-c", CODE)
    assert (done.stdout, done.stderr) == ("[]\n", "")
