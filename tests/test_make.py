"""What the targets of the Makefile install, and the options of their stages."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch):
    """Let `make test ARGS=...` not hand its variables to the make of a test."""
    monkeypatch.delenv("MAKEFLAGS", raising=False)
    monkeypatch.delenv("ARGS", raising=False)


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("demo", ["train"]),
        ("train", ["train"]),
        ("reproduce", ["train"]),
        ("test", ["train", "test"]),
        ("check", ["train", "test"]),
        ("test-slow", ["train", "test"]),
    ],
)
def test_only_tests_and_checks_install_what_they_need(tmp_path, target, extras):
    for name in ("Makefile", "setup.cfg", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    printed = subprocess.run(
        ["make", "--dry-run", target],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    ).stdout
    installed = re.findall(r"install\.py -e '\.\[(\w+)\]'", printed)
    assert installed == extras


@pytest.mark.parametrize("finished", [True, False])
def test_a_finished_environment_is_updated_and_another_made_anew(tmp_path, finished):
    for name in ("Makefile", "setup.cfg", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    log = tmp_path / "log"
    for name in (".venv/bin/python", "bin/python3"):
        python = tmp_path / name
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n')
        python.chmod(0o755)
    stamp = tmp_path / ".venv" / "installed"
    if finished:
        stamp.touch()
        os.utime(stamp, (0, 0))  # older than setup.cfg
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run(
        ["make", ".venv/installed"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
    )
    calls = log.read_text().splitlines()
    assert calls[-1] == ".venv/bin/python .ci/install.py -e .[train]"
    assert ("bin/python3 -m venv --clear .venv" in calls) != finished
    assert stamp.stat().st_mtime > 0


def test_the_compiler_for_tpus_is_the_one_that_jax_names(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    log = tmp_path / "log"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / ".venv" / "tpu" / "libtpu").mkdir(parents=True)
    installed = []
    for compiler in ("libtpu==1.*", "libtpu==1.*", "libtpu==2.*"):
        python.write_text(
            f'#!/bin/sh\necho "$*" >> {log}\n[ "$1" = -c ] && echo "{compiler}" || :\n'
        )
        python.chmod(0o755)
        log.unlink(missing_ok=True)
        subprocess.run(
            ["make", "-o", ".venv/installed-for-tests", "test-tpu"],
            check=True,
            cwd=tmp_path,
        )
        calls = log.read_text().splitlines()
        installed.append([call for call in calls if call.endswith(compiler)])
        assert calls[-1].rstrip() == "-m benchmarks.tpu"
    assert list(map(len, installed)) == [1, 0, 1]


def stages(*arguments: str) -> dict[str, str]:
    """Return the options of each stage that make would run."""
    printed = subprocess.run(
        ["make", "--dry-run", "-o", ".venv/installed", "EXPERIMENT=x", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    calls = [
        line.partition(" -m show_attend_tell ")[2] for line in printed.splitlines()
    ]
    verbs = [call.partition(" --experiment 'x' ") for call in calls if call]
    return {verb: " ".join(options.split()) for verb, _, options in verbs}


def test_a_limit_reaches_every_stage_also_implied_ones():
    assert stages("train", "eval", "DATA=/d", "LIMIT=400") == {
        "prepare": "--data '/d' --limit '400'",
        "features": "--limit '400'",
        "train": "--limit '400'",
        "eval": "--limit '400'",
    }


def test_settings_reach_implied_stages_and_resume_only_training():
    arguments = "--resume --set training.epochs=2 --limit 40"
    assert stages("train", "eval", "DATA=/d", f"ARGS={arguments}") == {
        "prepare": "--data '/d' --set=training.epochs=2 --limit=40",
        "features": "--set=training.epochs=2 --limit=40",
        "train": arguments,
        "eval": "--set training.epochs=2 --limit 40",
    }


def test_quoted_options_reach_the_named_target_alone():
    found = stages("train", "DATA=/d", "ARGS=--set 'data.also={}'")
    assert found["train"] == "--set 'data.also={}'"
    assert found["features"] == ""
