"""The table of tasks names verbs, options and classes that exist."""

import json

import pytest
from tiny_digits import tiny_draw, tiny_ram
from tiny_pipeline import make_captioner
from tiny_reader import random_reader
from zip_members import zipped

from show_attend_tell.cli.main import cli
from show_attend_tell.cli.tasks import TASKS, name_of_model
from show_attend_tell.config.experiments import shipped_experiments
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.siblings.models import CLASSES


def test_what_a_task_accepts_are_verbs_and_their_options():
    uses = frozenset().union(*(task.accepts for task in TASKS.values()))
    for use in uses:
        verb, *option = use.split(" ")
        options = {name for p in cli.commands[verb].params for name in p.opts}
        assert not option or option[0] in options, use


def test_every_shipped_experiment_has_a_task_of_the_table():
    tasks = {
        line.split('"')[1]
        for file in shipped_experiments().values()
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("task = ")
    }
    assert tasks | {"caption"} == TASKS.keys()


@pytest.mark.parametrize("task", CLASSES)
def test_classes_of_the_table_are_the_classes_that_are_loaded(task):
    assert TASKS[task].classes == {model.__name__ for model in CLASSES[task]}


@pytest.mark.parametrize(
    ("name", "make"),
    [("classify", tiny_ram), ("generate", tiny_draw), ("read", random_reader)],
)
def test_a_model_file_names_its_task(tmp_path, name, make):
    make().save(tmp_path / "model.keras")
    assert name_of_model(tmp_path / "model.keras") == name


def test_other_files_are_left_to_the_loader_of_captioners(tmp_path):
    encoder = EncoderSettings("SceneNet", "annotations", "none", 32, "crop")
    make_captioner(Encoder(encoder)).save(tmp_path / "captioner.keras")
    (tmp_path / "text.keras").write_text("none")
    archive = zipped({"config.json": json.dumps(["Draw"])})
    (tmp_path / "list.keras").write_bytes(archive)
    for name in ("captioner", "text", "list", "absent"):
        assert name_of_model(tmp_path / f"{name}.keras") == "caption", name
