"""Docstrings and comments refer to modules, functions and files that exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("show_attend_tell", "data_prep")
REFERENCE = re.compile(r":(?:mod|func|class|meth|data|attr):`~?!?([\w.]+)`")
FILE = re.compile(
    r"``((?:tests|docs|data_prep|show_attend_tell|experiments)/[\w./]+)``"
)


def source_files() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_in(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements define, and ``Class.member``."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.If | ast.Try | ast.With):
            names |= names_in(node.body) | names_in(getattr(node, "orelse", []))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{member}" for member in members_of(node)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def members_of(node: ast.ClassDef) -> set[str]:
    """Return the methods and attributes of a class."""
    attributes = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return names_in(node.body) | attributes


INHERITED = {"from_config"}  # of Keras' classes


@cache
def sources() -> dict[str, str]:
    """Return the text of each module by its name."""
    return {module_name(path): path.read_text("utf-8") for path in source_files()}


@cache
def names_of_modules() -> dict[str, set[str]]:
    """Return the names that each module defines."""
    return {name: names_in(ast.parse(text).body) for name, text in sources().items()}


def exists(reference: str, module: str) -> bool:
    """Return whether a reference in a module names something of ours."""
    modules = names_of_modules()
    own = modules[module]
    members = {name.rpartition(".")[2] for name in own}
    if reference in own | members | INHERITED:
        return True
    if any(reference in names for names in modules.values()):
        return True
    parts = reference.split(".")
    if parts[0] in own and parts[0] not in modules:  # an imported library
        return True
    for cut in range(len(parts), 0, -1):
        head, tail = ".".join(parts[:cut]), ".".join(parts[cut:])
        for name in (head, *(f"{package}.{head}" for package in PACKAGES)):
            # A module may be named from a folder above it on.
            for known, defined in modules.items():
                if known == name or known.endswith(f".{head}"):
                    if not tail or tail in defined:
                        return True
    return False


def test_every_reference_in_the_source_names_something_that_exists():
    stale = [
        f"{module}: {reference}"
        for module, text in sources().items()
        for reference in REFERENCE.findall(text)
        if not exists(reference, module)
    ]
    assert not stale


def test_every_file_that_the_source_names_exists():
    stale = [
        f"{module}: {file}"
        for module, text in sources().items()
        for file in FILE.findall(text)
        if not (ROOT / file).exists()
    ]
    assert not stale
