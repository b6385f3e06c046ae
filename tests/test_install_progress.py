"""The moving line of an installation, from the output of pip."""

import importlib.util
from pathlib import Path

import pytest
from new_process import python

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "install.py"


@pytest.fixture
def progress():
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Progress()


def test_the_line_names_packages_and_the_present_download(progress):
    assert progress.line(0.4) == "   0 s, 0 packages, starting pip"
    progress.read("Obtaining file:///home/me/show_attend_tell\n")
    progress.read("Collecting tensorflow>=2.19 (from show-attend-tell==0.2.0)\n")
    assert progress.line(3) == "   3 s, 2 packages, resolving tensorflow"
    progress.read("  Using cached tensorflow-2.21.0-cp311-linux.whl.metadata (4 kB)\n")
    assert progress.line(4) == "   4 s, 2 packages, resolving tensorflow"
    progress.read("  Downloading tensorflow-2.21.0-cp311-linux.whl (573.2 MB)\n")
    assert "downloading tensorflow, 573.2 MB" in progress.line(9)
    progress.read("Collecting tensorflow>=2.19 (from x)\n")
    progress.read("Installing collected packages: a, b, c\n")
    assert progress.line(70) == (
        "  70 s, 2 packages, unpacking 3 packages, the longest part"
    )


def test_a_failure_of_pip_is_shown_and_returned(tmp_path):
    absent = ("--no-index", "no-such-package-anywhere")
    done = python(SCRIPT, *absent, timeout=120, cwd=tmp_path)
    assert done.returncode == 1
    assert "No matching distribution found for no-such-package-anywhere" in done.stderr
    assert done.stdout.endswith(" s, 0 packages, starting pip\n")
