"""The core does not know the plug-ins of the package: no import, no name of theirs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from show_attend_tell.runtime import plugins

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "show_attend_tell" / "siblings"
CORE = [
    path
    for folder in ("show_attend_tell", "data_prep")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".js", ".css", ".html")
    and not path.is_relative_to(PLUGINS)
]
# English words, and a class of Pillow, with which the core means something else.
ORDINARY_IDENTIFIERS = {"Draw", "draw", "generate", "read", "reading", "words"}
ORDINARY_STRINGS = {"read", "words"}
ORDINARY_IN_TEXT = ORDINARY_IDENTIFIERS | {"digits"}


def names_of_plugins() -> set[str]:
    """Return the names of tasks, sources, model classes, commands and tabs."""
    owned = {name for plugin in plugins.installed() for _, name in plugin.names()}
    return owned | {"siblings"}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield the names of a file, those of its imports too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
        for field in ("id", "attr", "name", "arg", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield from value.split(".")


def strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a file except docstrings."""
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node.value


def test_the_core_has_no_name_of_a_plugin():
    names = names_of_plugins()
    for path in CORE:
        text = path.read_text(encoding="utf-8")
        assert not names & set(re.findall(r"[\w-]+", text)) - ORDINARY_IN_TEXT, path
        if path.suffix == ".py":
            tree = ast.parse(text)
            assert not names & set(identifiers(tree)) - ORDINARY_IDENTIFIERS, path
            assert not names & set(strings(tree)) - ORDINARY_STRINGS, path
