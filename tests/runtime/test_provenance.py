"""The provenance of a result: versions, cores and git revision."""

import json
import subprocess
from pathlib import Path

import pytest

from show_attend_tell.runtime import provenance
from show_attend_tell.runtime.provenance import collect_provenance, git_revision


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
    monkeypatch.setattr(provenance, "__file__", str(file))
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
    monkeypatch.setattr(provenance, "__file__", str(installed))
    assert git_revision() is None


def test_a_machine_without_git_has_no_revision(monkeypatch):
    def no_git(*arguments, **settings):
        raise OSError("no such program")

    monkeypatch.setattr(subprocess, "run", no_git)
    assert git_revision() is None
