"""The description of the machine: versions, cores, git revision, instructions."""

import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from show_attend_tell.runtime import machine
from show_attend_tell.runtime.machine import collect_provenance, git_revision


def git(folder: Path, *arguments: str) -> str:
    user = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(folder), *user, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A repository with the package's source at ``package/runtime/source.py``."""
    file = tmp_path / "package" / "runtime" / "source.py"
    file.parent.mkdir(parents=True)
    file.write_text("a = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    monkeypatch.setattr(machine, "__file__", str(file))
    return file


def test_provenance_names_versions_cores_and_revision():
    found = collect_provenance()
    assert {"python", "tensorflow", "keras", "numpy"} <= found["versions"].keys()
    assert found["cores"] >= 1
    assert found["revision"] == git_revision()
    json.dumps(found)


def test_the_revision_is_the_commit_with_a_plus_for_changes(source):
    commit = git(source.parent, "rev-parse", "HEAD")
    assert git_revision() == commit[:12]
    (source.parents[2] / "other.txt").write_text("untracked")
    assert git_revision() == commit[:12]
    (source.parents[1] / "other.py").write_text("untracked")
    assert git_revision() == commit[:12]
    source.write_text("a = 2\n")
    assert git_revision() == commit[:12] + "+"


def test_an_untracked_source_has_no_revision(source, monkeypatch):
    installed = source.with_name("installed.py")
    installed.write_text("")
    monkeypatch.setattr(machine, "__file__", str(installed))
    assert git_revision() is None


def test_a_machine_without_git_has_no_revision(monkeypatch):
    def no_git(*arguments, **settings):
        raise OSError("no such program")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert git_revision() is None


TWO = """processor\t: 0
model name\t: A
flags\t\t: fpu avx512f {}

processor\t: 1
flags\t\t: fpu
"""


def test_photos_are_encoded_in_the_faster_precision(monkeypatch, tmp_path):
    from show_attend_tell.models.encoder import network

    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_CPUINFO", file)
    monkeypatch.setattr(network, "accelerators", lambda: [])
    for content in (None, "processor\t: 0\nFeatures\t: fp asimd\n"):
        if content is not None:
            file.write_text(content)
        assert machine.instruction_sets() is None
        assert network.fastest_precision() == "float32"
    file.write_text(TWO.format("avx512_bf16"))
    assert machine.instruction_sets() == {"fpu", "avx512f", "avx512_bf16"}
    assert network.fastest_precision() == "float32"
    file.write_text(TWO.format("avx512_bf16 amx_bf16"))
    assert network.fastest_precision() == "bfloat16"
    file.unlink()
    monkeypatch.setattr(network, "accelerators", lambda: ["GPU"])
    assert network.fastest_precision() == "bfloat16"


def test_the_versions_are_those_of_the_installed_backends(monkeypatch):
    def absent(name):
        if name == "tensorflow":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(machine.metadata, "version", absent)
    versions = collect_provenance()["versions"]
    assert "tensorflow" not in versions
    assert versions["jax"] == versions["keras"] == "1.0"
