"""The lowest versions of setup.cfg are installed, and a selection of tests passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SELECTION = (
    *("runtime", "reference/test_model_file.py", "data/test_preprocessing.py"),
    "deployment/server/test_uploads.py",
)


@pytest.mark.network
@pytest.mark.timeout(1800)
def test_the_lowest_versions_pass_a_selection(tmp_path):
    python = tmp_path / "bin" / "python"
    steps = (
        [sys.executable, "-m", "uv", "venv", "--python", sys.executable, tmp_path],
        [sys.executable, "-m", "uv", "pip", "install", "--python", python]
        + ["--resolution", "lowest-direct", f"{ROOT}[train]"]
        + ["pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100"],
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-W", "default", *(ROOT / "tests" / name for name in SELECTION)],
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for step in steps:
        done = subprocess.run(
            list(map(str, step)),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
