"""The public names of ``import show_attend_tell as sat``."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from new_process import python

import show_attend_tell as sat
from show_attend_tell.runtime import errors

ROOT = Path(__file__).resolve().parents[1]
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
    "caption",
    "caption_experiment",
    "evaluate",
    "load",
    "train",
]
ERRORS = {
    errors.CaptionError,
    errors.ConfigError,
    errors.DataError,
    errors.EvaluationError,
    errors.ModelFileError,
    errors.PhotoError,
    errors.SetupError,
    errors.TrainingError,
}


def test_the_public_names_are_exactly_these():
    assert sorted(sat.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(sat))
    assert [getattr(sat, name).__name__ for name in PUBLIC] == PUBLIC
    assert all(getattr(sat, name).__doc__ for name in PUBLIC)
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        sat.absent  # noqa: B018


def test_one_class_catches_every_error_of_the_package():
    members = inspect.getmembers(errors, inspect.isclass)
    classes = {one for _, one in members if one.__module__ == errors.__name__}
    assert classes - {sat.ShowAttendTellError} == ERRORS
    assert {one.__base__ for one in ERRORS} == {sat.ShowAttendTellError}


def test_type_checkers_see_the_same_names_in_the_same_modules():
    block = next(
        node
        for node in ast.parse(inspect.getsource(sat)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    homes = {name.name: line.module for line in block.body for name in line.names}
    assert sorted(homes) == PUBLIC
    for name, module in homes.items():
        assert getattr(importlib.import_module(module), name) is getattr(sat, name)


SCRIPT = """\
import show_attend_tell as sat

sat.load().caption("x.jpg", beems=3)
sat.load().captoin("x.jpg")
caption = sat.load().caption("x.jpg", beam=3, region=(0, 0, 10, 10))
print(caption.sentense)
n: int = caption.sentence
s: str = caption.sentence
sat.caption("x.jpg", method="sample", samples=2).alternatives[0].log_prob.is_integer()
sat.train(sat.caption_experiment("scenes"))
"""


@pytest.mark.slow
def test_mypy_finds_the_four_mistakes_of_a_script_and_no_fifth(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, "utf-8")
    options = ("--follow-imports=silent", "--no-error-summary", "--hide-error-context")
    done = python("-m", "mypy", *options, script, cwd=ROOT)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = [line.partition(".py:")[2].split(":")[0] for line in errors]
    assert found == ["3", "4", "6", "7"], done.stdout + done.stderr


CODE = """
import sys
import show_attend_tell as sat
dir(sat), sat.__version__, sat.ShowAttendTellError
print(sorted({"tensorflow", "keras", "numpy"} & set(sys.modules)))
"""


def test_importing_the_package_loads_neither_tensorflow_nor_keras():
    done = python("-c", CODE)
    assert (done.stdout, done.stderr) == ("[]\n", "")
