"""The verb ``demo``: models, their names and addresses."""

import asyncio
import re
from types import SimpleNamespace

import pytest
from shell import exit_code
from tiny_pipeline import make_captioner, make_encoder

from show_attend_tell.cli.deployment import _names
from show_attend_tell.models import pretrained


@pytest.fixture
def served(monkeypatch):
    """Replace the server; returns the list of the served applications."""
    apps = []

    def server_of(app):
        apps.append(app)
        return SimpleNamespace(run=lambda sockets: None)

    monkeypatch.setattr("show_attend_tell.deployment.server.serve.server_of", server_of)
    return apps


def test_the_shipped_models_are_served_on_this_machine(
    served, tmp_path, monkeypatch, capsys
):
    make_captioner(make_encoder()).save(tmp_path / "flickr8k.safetensors")
    for name in pretrained.PACKAGED:
        monkeypatch.setitem(pretrained.PRESETS, name, tmp_path / "flickr8k.safetensors")
    assert exit_code("demo", "--port", "0") == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+ - stop with Ctrl-C\n", printed)
    assert len(served) == 1
    named = {getattr(one, "path", ""): one for one in served[0].routes}
    names = [one["name"] for one in asyncio.run(named["/about"].endpoint())["models"]]
    assert names == ["Transformer", "LSTM"]
    paths = set(served[0].openapi()["paths"])
    assert {"/caption", "/about"} <= paths


def test_a_missing_model_is_one_line(served, tmp_path, capsys):
    assert exit_code("demo", tmp_path / "absent.safetensors", "--port", "0") == 1
    assert "absent.safetensors: no such model" in capsys.readouterr().err
    assert served == []


def test_models_of_the_same_file_name_get_distinct_names():
    assert _names(["a/soft.safetensors", "b/hard.safetensors"]) == ["soft", "hard"]
    assert _names(["a/model.safetensors", "b/model.safetensors"]) == ["a", "b"]
    paths = ["a/m.safetensors", "b/a/m.safetensors"]
    assert _names(paths) == paths
