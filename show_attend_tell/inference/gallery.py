"""A page of photos with their captions, ready to be pasted as alternative texts."""

import html
import os
import string
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote_from_bytes

from show_attend_tell.inference.result import Failure


def write_page(
    path: str | Path, rows: Sequence[Mapping], failures: Iterable[Failure] = ()
) -> None:
    """Write one HTML file, all or nothing; photos stay where they are.

    Args:
        path: the page. Photos are named relative to its folder.
        rows: with ``path``, ``caption`` and ``log_prob``.
        failures: photos without a caption, listed below.
    """
    path = Path(path)
    template = files(__package__).joinpath("templates", "captions.html")
    skipped = "".join(f"<li>{html.escape(_shown(f.reason))}</li>" for f in failures)
    page = string.Template(template.read_text(encoding="utf-8")).substitute(
        count=len(rows),
        cards="".join(_card(row, path.parent) for row in rows),
        skipped=f"<h2>Skipped</h2><ul class=skipped>{skipped}</ul>" if skipped else "",
    )
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def image_tag(photo: str, caption: str) -> str:
    """Return ``<img src=... alt=...>``; ``photo`` is a path with forward slashes."""
    source = html.escape(quote_from_bytes(os.fsencode(photo), safe="/"))
    return f'<img src="{source}" alt="{html.escape(sentence(caption))}">'


def sentence(caption: str) -> str:
    """Return a caption as people write: a capital at the beginning, a stop at the end.

    Full stops that stand apart, as tokenizers leave them, are taken off first.
    """
    text = caption.rstrip(" .")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _shown(text: str) -> str:
    """Return a text that can be written, whatever bytes a path holds."""
    return os.fsencode(text).decode("utf-8", "replace")


def _card(row: Mapping, folder: Path) -> str:
    photo = os.path.relpath(row["path"], folder).replace(os.sep, "/")
    tag = image_tag(photo, row["caption"])
    name = html.escape(_shown(row["path"]))
    lazy = tag.replace("<img ", '<img loading="lazy" decoding="async" ')
    return (
        f"<figure>{lazy}<figcaption><p>{html.escape(sentence(row['caption']))}</p>"
        f"<small>{name}<br>log p {row['log_prob']:.2f}</small>"
        f"<div><button type=button data-copy='text'>Copy text</button>"
        f"<button type=button data-copy='tag'>Copy &lt;img&gt;</button></div>"
        f"<code hidden>{html.escape(tag)}</code></figcaption></figure>\n"
    )
