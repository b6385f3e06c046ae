"""What the captioner's task accepts, and the names that plug-ins may not claim."""

import json
from typing import get_args, get_type_hints

import click
import pytest
from tiny_pipeline import make_captioner
from zip_members import zipped

from show_attend_tell.cli.captioning import CAPTIONING, task_of_model
from show_attend_tell.cli.evaluate import evaluate
from show_attend_tell.cli.main import cli
from show_attend_tell.config.settings import (
    DataSettings,
    EncoderSettings,
    Experiment,
)
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.runtime.plugins import CORE_NAMES


def test_what_the_captioner_accepts_are_verbs_and_their_options():
    assert CAPTIONING.commands <= cli.commands.keys()
    for verb, accepted in CAPTIONING.accepts.items():
        options = {name for p in cli.commands[verb].params for name in p.opts}
        for use in accepted:
            assert use.split(" ")[0] in options, use


def flags_of_eval():
    options = (p for p in evaluate.params if isinstance(p, click.Option))
    return {flag for option in options for flag in option.opts}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("task", {Experiment.task}),
        ("model class", CAPTIONING.models),
        ("source", set(get_args(get_type_hints(DataSettings)["source"]))),
        ("command", cli.commands.keys()),
        ("option of eval", flags_of_eval()),
    ],
)
def test_the_names_of_the_core_are_reserved(kind, names):
    assert set(CORE_NAMES[kind]) == set(names)


def test_the_task_of_the_captioner_is_the_task_of_its_experiments():
    assert CAPTIONING.name == Experiment.task
    assert CAPTIONING.settings() is Experiment


def test_other_files_are_left_to_the_loader_of_captioners(tmp_path):
    encoder = EncoderSettings("SceneNet", "annotations", "none", 32, "crop")
    make_captioner(Encoder(encoder)).save(tmp_path / "captioner.safetensors")
    (tmp_path / "text.safetensors").write_text("none")
    archive = zipped({"config.json": json.dumps(["Captioner"])})
    (tmp_path / "list.safetensors").write_bytes(archive)
    for name in ("captioner", "text", "list", "absent"):
        assert task_of_model(tmp_path / f"{name}.safetensors") is CAPTIONING, name
