"""Notebooks run without saved output; links, figure and headers are complete."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_valid_and_hold_no_output(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_notebooks_run_to_their_end(path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=500, kernel_name="python3").execute()
    shown = [
        kind
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        for kind in output.get("data", {})
    ]
    assert {"image/png", "text/html"} <= set(shown)


DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_of_documents_exist(path):
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    relative = [target for target in targets if "://" not in target]
    assert [one for one in relative if not (path.parent / one).exists()] == []


def test_the_readme_shows_a_figure_and_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/images/attention.png" in "".join(text.splitlines()[:12])
    assert (ROOT / "docs/images/attention.png").stat().st_size < 300_000
    assert len(text.splitlines()) < 200


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_headers_of_experiments_have_command_time_and_score(path):
    header = path.read_text(encoding="utf-8").partition("\n[")[0]
    for field in ("command", "time", "score"):
        assert re.search(rf"^#   {field} +\w", header, re.MULTILINE), field
    assert "make demo" in header or f"EXPERIMENT={path.stem}" in header
    table = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert f"`{path.stem}`" in table
