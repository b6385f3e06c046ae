"""Notebooks hold their outputs; links, site, figure and headers are complete."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from chromium import accessibility_faults, browser, shown_as
from new_process import python
from static_site import serving

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
assert NOTEBOOKS


@pytest.fixture(scope="module")
def nbformat():
    """The module, without a grammar of addresses whose import takes four seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        import nbformat
    return nbformat


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """Return the kinds of a cell's outputs, pictures of any encoding being one."""
    found = [
        kind.partition("/")[0] if kind.startswith("image/") else kind
        for output in cell.outputs
        for kind in output.get("data", {output.get("name"): ""})
    ]
    return set(found) - {"stderr"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_the_outputs_of_one_run_in_order(path, nbformat):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1))
    for cell in cells:
        if "print(" in cell.source:
            assert "stdout" in kinds(cell), cell.source
    shown = set().union(*map(kinds, cells))
    assert {"image", "text/html", "stdout"} <= shown
    assert "stderr" not in {o.get("name") for cell in cells for o in cell.outputs}
    assert "error" not in {o.output_type for cell in cells for o in cell.outputs}
    assert path.stat().st_size < 500_000


@pytest.mark.slow
@pytest.mark.timeout(1800)  # longer than the limits of `run`, which name the cell
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_notebooks_run_to_their_end_with_outputs_of_the_stored_kinds(
    path, nbformat, monkeypatch
):
    pytest.importorskip("nbclient")
    run = runpy.run_path(str(ROOT / "docs" / "execute_notebook.py"))["run"]
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored = [kinds(cell) for cell in code_cells(nbformat.read(path, as_version=4))]
    cells = code_cells(run(path))
    for cell, kept in zip(cells, stored, strict=True):
        assert kept <= kinds(cell), cell.source
        assert bool(kept) == bool(kinds(cell)), cell.source


DOCUMENTS = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *(ROOT / name / "README.md" for name in ("experiments", "benchmarks")),
]
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.toml"))


def relative_links(path: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    return [target for target in targets if "://" not in target]


# The plug-ins of the package and their tests, which a copy may lack as a whole.
PLUGINS = (ROOT / "show_attend_tell" / "siblings", ROOT / "tests" / "siblings")


def is_broken(path: Path) -> bool:
    """Return whether a path that a document names is absent."""
    lacks_plugins = not any(folder.exists() for folder in PLUGINS)
    path = path.resolve()
    ignored = lacks_plugins and any(path.is_relative_to(folder) for folder in PLUGINS)
    return not path.exists() and not ignored


def test_relative_links_of_documents_exist():
    links = [(path, link) for path in DOCUMENTS for link in relative_links(path)]
    assert [(p, link) for p, link in links if is_broken(p.parent / link)] == []


def test_the_readme_begins_with_a_figure():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "docs/images/sheep-attention.jpg" in "".join(text.splitlines()[:12])
    assert (ROOT / "docs/images/sheep-attention.jpg").stat().st_size < 300_000


def test_the_paths_of_the_readme_and_the_tests_that_security_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| in `show_attend_tell/` |")
    paths = re.findall(r"`([\w./]+(?:\.py|/))`", table.partition("\n## ")[0])
    assert len(paths) > 10
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    paths = [ROOT / "show_attend_tell" / path for path in paths]
    paths += [ROOT / "tests" / n for n in re.findall(r"`([\w/]+/test_\w+\.py)", text)]
    assert [path for path in paths if is_broken(path)] == []


def test_the_map_of_contributing_has_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| room of `show_attend_tell/` |")
    named = set(
        re.findall(r"^\| `(\w+)/` \|", table.partition("\n\n")[0], re.MULTILINE)
    )
    rooms = {path.parent for path in ROOT.glob("show_attend_tell/*/__init__.py")}
    assert named == {room.name for room in rooms} | {"siblings"}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_headers_of_experiments_have_command_time_and_score(path):
    header = path.read_text(encoding="utf-8").partition("\n[")[0]
    for field in ("command", "time", "score"):
        assert re.search(rf"^#   {field} +\w", header, re.MULTILINE), field
    assert "make demo" in header or f"EXPERIMENT={path.stem}" in header
    table = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    assert f"`{path.stem}`" in table


def test_the_site_has_every_page_once_and_its_docstrings_exist():
    _, _, navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")
    pages = re.findall(r"^ +- [^:\n]+: (\S+)$", navigation, re.MULTILINE)
    assert len(pages) == len(set(pages))
    inside = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    inside |= {path.name for path in NOTEBOOKS}
    assert inside <= set(pages)
    for page in set(pages) - inside:
        assert not is_broken(ROOT / page), page
    for path in (ROOT / "docs" / "api").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", path.read_text("utf-8"), re.MULTILINE):
            assert documented(name), name


def documented(name: str) -> bool:
    """Return whether a module, or a name in a module, is in the source code."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").exists():
        return True
    member, path = path.name, path.parent
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return re.search(rf"\b{member}\b", file.read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; the build gives no warning."""
    for package in ("material", "mkdocs_jupyter", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package, reason="needs the packages of '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = python("-m", "mkdocs", "build", "--strict", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    assert (site / "experiments" / "index.html").exists()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|img|link rel="stylesheet")[^>]*"https?:', text)
        assert ":func:" not in text
    notebook = (site / f"{NOTEBOOKS[0].stem}.html").read_text(encoding="utf-8")
    assert notebook.count("<math") > 30


# Formulas of TeX that no program turned into MathML; "$1" in code is none.
RAW_TEX = re.compile(r"\$[^$\n]*[\\_^][^$\n]*\$|\\(frac|alpha|beta|sum|text)\b")
PROSE = (
    "const body = document.body.cloneNode(true);"
    "body.querySelectorAll('pre, code, script, style, math').forEach(x => x.remove());"
    "return body.textContent"
)


@pytest.mark.slow
def test_every_page_of_the_site_shows_its_frames_and_formulas_without_faults(site):
    faults = []
    with browser(offline=False) as driver, serving(site) as address:
        for page in sorted(site.rglob("*.html")):
            name = str(page.relative_to(site))
            shown_as(driver)
            driver.get(f"{address}/{name}")
            faults += [f"{name}: {line}" for line in faults_of_page(driver)]
            for number, frame in enumerate(driver.find_elements("tag name", "iframe")):
                driver.switch_to.frame(frame)
                lines = [*faults_of_frame(driver), *faults_of_page(driver, True)]
                faults += [f"{name}, frame {number}: {line}" for line in lines]
                driver.switch_to.default_content()
    assert not faults, "\n".join(faults)


def faults_of_page(driver, is_frame=False):
    """Yield a line for each fault of a page or a frame that a reader would meet."""
    for entry in driver.get_log("browser"):
        yield f"console: {entry['message']}"
    if found := RAW_TEX.search(driver.execute_script(PROSE)):
        yield f"raw TeX: {found[0]}"
    broken = (
        "return [...document.images].filter(i => i.complete && !i.naturalWidth)"
        ".map(i => i.src.slice(0, 80))"
    )
    yield from (f"broken image: {src}" for src in driver.execute_script(broken))
    yield from accessibility_faults(driver, is_frame)


def faults_of_frame(driver):
    """Yield a line if a frame shows no photo or no words."""
    for what in ("img", ".words button"):
        found = driver.find_elements("css selector", what)
        if not any(element.is_displayed() for element in found):
            yield f"no {what}"
