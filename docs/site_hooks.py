"""Add the documents outside of docs/ to the site, and correct links, roles and math.

Links are written for readers of the repository, such as ``../experiments/README.md``;
the site has the same documents at the same paths below its own root.
"""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = (
    "experiments/README.md",
    "experiments/labels/README.md",
    "benchmarks/README.md",
    "SECURITY.md",
    "show_attend_tell/models/weights/MODEL_CARD.md",
    "show_attend_tell/siblings/digits/weights/MODEL_CARD.md",
    "show_attend_tell/siblings/words/weights/MODEL_CARD.md",
)
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)")
# The roles of docstrings, :func:`name`, after Markdown.
_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data):<code>~?([^<]*)</code>")
_MATH = re.compile(r"(\$\$?)(?! )([^$]+?)(?<! )\1")
_NO_HEADER = re.compile(r"<th([^>]*)></th>")
_CODE = re.compile(r"(<(pre|script|style|code|iframe)\b.*?</\2>)", re.DOTALL)


def on_files(files, config):
    """Add the documents outside of docs/."""
    for path in OUTSIDE:
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown, page, config, files):
    """Correct relative links between docs/ and the documents outside of it.

    The report has no table of contents beside it: its first table links to all claims.
    """
    source = page.file.src_uri
    if source == "reproduction.md":
        page.meta["hide"] = ["toc"]
    home = posixpath.dirname(source if source in OUTSIDE else f"docs/{source}")

    def corrected(match):
        target = posixpath.normpath(posixpath.join(home, match[0]))
        target = target.removeprefix("docs/")
        return posixpath.relpath(target, posixpath.dirname(source) or ".")

    return _LINK.sub(corrected, markdown)


def on_page_content(content, page, config, files):
    """Turn roles into code, and the equations of notebooks into MathML.

    An empty header cell of a table becomes a cell, which screen readers ignore.
    """
    content = _ROLE.sub(r"<code>\1</code>", content)
    content = _NO_HEADER.sub(r"<td\1></td>", content)
    if not page.file.src_uri.endswith(".ipynb"):
        return content
    parts = _CODE.split(content)  # text, code, the code's tag, text ...
    texts = [_MATH.sub(_math, text) for text in parts[::3]]
    return "".join(map("".join, zip(texts, [*parts[1::3], ""], strict=True)))


def on_post_page(output, page, config):
    """Name the dialog of the search for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_post_template(output, template_name, config):
    """Name it in the page for absent pages too."""
    return on_post_page(output, template_name, config)


def _math(match):
    display = "block" if match[1] == "$$" else "inline"
    return convert(html.unescape(match[2]), display=display)
