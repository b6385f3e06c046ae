"""Check the words of docstrings, comments, messages, test names and documents.

The rule, after Google's developer documentation style guide: text uses the verbs of
programming and the nouns of the field. No metaphors, and no words that read as if they
were translated. `REPLACEMENTS` is the one list of such words, with what to write.
Code in backticks or code blocks, and text in quotation marks, is not checked.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Pattern (case is ignored, words only) -> what to write instead.
REPLACEMENTS = {
    r"teller": "captioner or pipeline",
    r"wish(es)?": "request, option or settings",
    r"clerk": "worker",
    r"desk": "request queue",
    r"go(es|ing)? on": "continue or resume",
    r"went on": "continued",
    r"all or nothing": "atomically",
    r"at once": "immediately or together",
    r"in one go": "together",
    r"(?<!expected, )likeliest": "most likely or argmax",
    r"(lies|lie|lay) (in|at|on|beside|there|below|under|inside|outside)": "is in or at",
    r"stands? (in(?! for)|at|beside|there)": "is in or at",
    r"who (finds|comes|wants|asks)": "name the person or program",
    r"what (came|comes|was left)": "name the thing",
    r"odd(?! numbers?\b)": "malformed or unusual",
    r"(?<!attend and )(?<!attend-)(tells?|told)": "print, return, report or describe",
    r"(says?|said|speaks?)": "state, print or record",
    r"mend(s|ed|ing)?": "fix or repair",
    r"in passing": "say when, or leave it out",
    r"behind the (last|end|words?|length|caption)": "after",
    r"chances": "noise, random numbers or probabilities",
    r"born": "created",
    r"counts? for nothing": "is ignored",
    r"passed over": "ignored or skipped",
    r"were there": "already present",
    r"thr(ow|ows|own|ew) away": "delete or discard",
    r"comes? on top": "is added",
    r"given up": "stopped or killed",
    r"(a|the) house": "package or project",
    r"(known|other|unknown) worlds?": "in distribution, or out-of-distribution set",
}
_FORBIDDEN = {
    re.compile(rf"\b(?:{pattern})(?!\w)"): advice
    for pattern, advice in REPLACEMENTS.items()
}
_QUOTED = re.compile(r"``.*?``|`[^`]*`|\"[^\"\n]*\"|“[^”]*”|'[\w-]+'", re.DOTALL)
_SKIPPED = set(".venv .git .pytest_cache .hypothesis build prepared runs".split())

Passage = tuple[int, str]  # line number and text


def text_files() -> list[Path]:
    """Return the files whose words are checked."""
    found = [ROOT / "Makefile", ROOT / "setup.cfg", ROOT / "pyproject.toml"]
    for pattern in ("*.py", "*.md", "experiments/*.toml", "*.ipynb"):
        found += ROOT.rglob(pattern)
    return sorted(p for p in found if not _SKIPPED & set(p.relative_to(ROOT).parts))


def passages(path: Path) -> Iterator[Passage]:
    """Yield the passages of a file that a person reads."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_passages(text, "tests" in path.parts)
    elif path.suffix == ".md":
        yield from markdown_passages(text)
    elif path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(text)["cells"], start=1):
            kind, source = cell["cell_type"], "".join(cell["source"])
            read = markdown_passages if kind == "markdown" else python_passages
            yield from ((number, passage) for _, passage in read(source))
    else:
        for number, line in enumerate(text.splitlines(), start=1):
            yield number, line.partition("#")[2]


def python_passages(text: str, in_tests: bool = False) -> Iterator[Passage]:
    """Yield comments, docstrings, names of tests and, outside of tests, other texts."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node):
            yield node.body[0].lineno, ast.get_docstring(node)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        if isinstance(node, ast.Constant) and " " in str(node.value) and not in_tests:
            yield node.lineno, str(node.value)


def markdown_passages(text: str) -> Iterator[Passage]:
    """Yield the paragraphs outside of code blocks."""
    fenced, start, lines = False, 1, []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.lstrip().startswith("```"):
            fenced, line = not fenced, ""
        if fenced or line.startswith("    ") or not line.strip():
            yield start, "\n".join(lines)
            lines = []
        elif not lines:
            start, lines = number, [line]
        else:
            lines.append(line)


def findings(path: Path) -> list[str]:
    """Return a line for each forbidden word of a file."""
    found = []
    for number, passage in dict.fromkeys(passages(path)):
        prose = " ".join(_QUOTED.sub(" ", passage).lower().split())
        for pattern, advice in _FORBIDDEN.items():
            for match in pattern.finditer(prose):
                context = prose[max(match.start() - 30, 0) : match.end() + 30]
                found.append(f"line {number}: ...{context}...: write {advice}")
    return found


@pytest.mark.parametrize("path", text_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_words_are_those_of_programming_and_of_the_field(path):
    assert not findings(path)


def test_forbidden_words_are_found_wherever_a_person_reads(tmp_path):
    python = tmp_path / "one.py"
    python.write_text(
        '"""Return it at\nonce."""\n'
        "# Who finds it full waits.\n"
        "def test_odd_lines_pass(x):\n"
        '    """Return `likeliest`, "at once" and \'desk\'."""\n'
        '    raise ValueError(f"{x}: all or nothing")\n'
        'click.option("--x", help="Mend it.")\n'
    )
    found = findings(python)
    lines = sorted(line.partition(":")[0] for line in found)
    assert lines == [f"line {number}" for number in (1, 3, 4, 6, 7)]
    document = tmp_path / "two.md"
    document.write_text("It goes\non.\n\n    at once\n\n```\nat once\n```\n`odd x`\n")
    assert len(findings(document)) == 1
