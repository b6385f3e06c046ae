"""Serve ``POST /review``: captions that a person approved in, a file out.

The file is a table, or a ZIP archive of XMP sidecars. An edited caption is written as
the words of a person, which ``caption --write-metadata`` keeps.
"""

import codecs
import io
import stat
import time
import unicodedata
import zipfile
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Literal

import pydantic
from fastapi import FastAPI
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from show_attend_tell.inference.batch import made_by
from show_attend_tell.inference.photo_words import sidecar_of
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.result import confidence_word
from show_attend_tell.inference.table import write_csv
from show_attend_tell.inference.xmp import XmpPacket
from show_attend_tell.runtime.errors import quote

MAX_CAPTIONS = 20_000  # of one request
_COLUMNS = ("path", "caption", "confidence", "confidence_word", "edited", "tags")
_CONTROL = ("Cc", "Zl", "Zp")  # control codes, separators of lines and paragraphs
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that ZIP can store
_MEDIA = {"csv": "text/csv; charset=utf-8", "xmp": "application/zip"}

# made_by of the captions of each model, without tags and with tags.
Authors = Mapping[tuple[str, bool], str]


def _require_inside(path: str) -> str:
    """Return a path that stays inside the folder where an archive is unpacked."""
    parts = PurePosixPath(path).parts
    # A drive, a root or a backslash would lead out of the folder on Windows.
    outside = PureWindowsPath(path).anchor or "\\" in path or ".." in parts
    # Not str.isprintable, which refuses all spaces but one, and joined emoji too.
    has_control = any(unicodedata.category(c) in _CONTROL for c in path)
    if not parts or outside or has_control:
        raise ValueError(
            "must be a relative path without '..', backslashes or control characters"
        )
    return path


class ApprovedCaption(pydantic.BaseModel, extra="forbid"):
    """A caption that a person approved."""

    path: Annotated[
        str,
        pydantic.Field(max_length=4096),
        pydantic.AfterValidator(_require_inside),
    ] = pydantic.Field(description="Of the photo, relative to the folder.")
    sentence: str = pydantic.Field(max_length=5000)
    confidence: float | None = pydantic.Field(None, ge=0, le=1)
    model: str = pydantic.Field(description="One of /about.")
    edited: bool = pydantic.Field(description="Whether a person changed the words.")
    tags: list[Annotated[str, pydantic.Field(max_length=100)]] = pydantic.Field(
        [], max_length=100, description="Keywords of the photo."
    )


class Review(pydantic.BaseModel, extra="forbid"):
    """Approved captions, and the form of the file to return."""

    form: Literal["csv", "xmp"]
    captions: list[ApprovedCaption] = pydantic.Field(max_length=MAX_CAPTIONS)


def add_review(app: FastAPI, pipelines: Mapping[str, CaptioningPipeline]) -> None:
    """Add the service to an application."""

    # Not async: FastAPI runs it in a thread, as hashing and packing take a while.
    @app.post("/review", response_class=Response)
    def review(review: Review):
        """Return approved captions as a table, or as XMP sidecars in an archive."""
        _require_distinct(review.captions)
        authors = {}
        for one in review.captions:
            name = one.model
            author = name, bool(one.tags)
            if one.edited or author in authors:
                continue
            if name not in pipelines:
                raise HTTPException(
                    422, f"`model` must be one of {list(pipelines)}. Received: {name!r}"
                )
            # The author that the command line would write.
            request = CaptionRequest(tags=bool(one.tags))
            authors[author] = made_by(pipelines[name], request)
        if review.form == "csv":
            content = _table(review.captions)
        else:
            content = _archive(review.captions, authors)
        return Response(content, media_type=_MEDIA[review.form])


def _require_distinct(captions: list[ApprovedCaption]) -> None:
    """Raise an HTTPException if a photo has two captions."""
    seen = set()
    for one in captions:
        # In this form ./a.jpg and a.jpg are one path.
        path = PurePosixPath(one.path)
        if path in seen:
            raise HTTPException(
                422,
                f"`path` must differ for each caption. Received: {quote(one.path)} "
                "twice; send one caption for each photo",
            )
        seen.add(path)


def _table(captions: list[ApprovedCaption]) -> bytes:
    """Return captions as CSV, which Excel reads as UTF-8 by its byte order mark."""
    lines = []
    for one in captions:
        # The confidence is the model's, about words that are gone.
        confidence = None if one.edited else one.confidence
        word = confidence_word(confidence)
        tags = ", ".join(one.tags)
        values = (one.path, one.sentence, confidence, word, one.edited, tags)
        lines.append(dict(zip(_COLUMNS, values, strict=True)))
    return codecs.BOM_UTF8 + write_csv(_COLUMNS, lines)


def _archive(captions: list[ApprovedCaption], authors: Authors) -> bytes:
    """Return a ZIP archive of the captions' sidecars."""
    now = max(time.localtime()[:6], _FIRST_TIME)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for one in captions:
            packet = XmpPacket()
            if one.edited:
                # Without an author these are the words of a person.
                packet.set_caption(one.sentence)
            else:
                author = authors[one.model, bool(one.tags)]
                packet.set_caption(one.sentence, author, one.confidence)
            packet.set_tags(one.tags)
            entry = zipfile.ZipInfo(str(sidecar_of(PurePosixPath(one.path))), now)
            # Without these an entry is stored as it is, for its owner alone.
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, packet.to_bytes())
    return content.getvalue()
