"""Serve the web page and ``POST /caption``: a photo in, JSON out."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import jinja2
import pydantic
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from show_attend_tell import __version__
from show_attend_tell.deployment.server import uploads
from show_attend_tell.deployment.server.captions import (
    add_captions,
    max_beam,
    model_info,
)
from show_attend_tell.deployment.server.fields import require_known_fields
from show_attend_tell.deployment.server.middleware import Guard, refusal
from show_attend_tell.deployment.server.photo_programs import add_photo_programs
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.review import add_review
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.result import CONFIDENCE_WORDS
from show_attend_tell.runtime.errors import ShowAttendTellError, one_line, quote
from show_attend_tell.runtime.plugins import Tab

_STATIC = files(__package__) / "static"
_PAGE = files(__package__) / "page.html"
_LOGGER = logging.getLogger(__name__)
_READ = ["GET", "HEAD"]
_PAGE_PATHS = {"/", "/about"}  # of services that are added after the tabs
_FORM_BYTES = 100_000  # bytes of a request besides the photo


class Refusal(pydantic.BaseModel):
    """The reason for having no caption, in one line."""

    error: str


# OpenAPI's descriptions of responses that are errors.
_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": Refusal, "description": text}
    for code, text in {
        400: "The request is malformed.",
        403: "The request comes from a page of another server.",
        408: "The request did not arrive in time.",
        413: "The photo has too many bytes or pixels.",
        415: "Not a photo, or a damaged one.",
        422: "An option is out of range.",
        503: "The queue is full (Retry-After: seconds), or the server is stopping.",
    }.items()
}


def create_app(
    pipelines: Mapping[str, CaptioningPipeline],
    examples: Sequence[tuple[str, bytes, str]] = (),
    queue_limit: int = 32,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"),
    tabs: Sequence[Tab] = (),
) -> FastAPI:
    """Build the application.

    Args:
        pipelines: models by the name that the page shows; the first is the default.
        examples: (title, bytes of a JPEG, note) of each picture that the page offers.
        queue_limit: requests that may run or wait together; others are refused.
        hosts: accepted values of the header Host, without a port; ``*`` accepts all.
            Others are refused, so that a page of another site cannot reach the server
            through another name.
        tabs: further tabs of the page, with their services. Where packages of a tab are
            missing, page and services name them.
    """
    queue = RequestQueue(queue_limit)
    app = FastAPI(
        title="Show, Attend and Tell",
        version=__version__,
        summary="A photo in, its caption and the attention of each word out.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        responses=_REFUSALS,
        dependencies=[Depends(require_known_fields)],
    )
    in_base64 = uploads.MEGABYTES * 4_000_000 // 3  # bytes of the largest photo
    # Outside of the application, so that it sees a body before anything reads it.
    app.add_middleware(
        Guard,
        hosts=hosts,
        max_bytes=in_base64 + _FORM_BYTES,
        message=uploads.size_message(),
    )
    _add_error_handlers(app)
    # Before the tabs, which may not take their paths.
    add_captions(app, pipelines, queue)
    add_review(app, pipelines)
    add_photo_programs(app, pipelines, queue)
    pages = _add_tabs(app, tabs, queue)
    missing = [tab for tab in tabs if tab.missing()]
    _add_page(app, pipelines, examples, pages, missing)
    return app


def _add_page(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    examples: Sequence[tuple[str, bytes, str]],
    pages: Mapping[Tab, str],
    missing: Sequence[Tab],
) -> None:
    # Once: the page is the same for every request.
    html = _render(pages, missing)

    @app.api_route("/", methods=_READ, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html)

    @app.head("/about", include_in_schema=False)
    @app.get("/about", summary="Models, examples and limits.")
    async def about() -> dict:
        return {
            "version": __version__,
            "models": [
                model_info(name, pipeline) for name, pipeline in pipelines.items()
            ],
            "max_beam": max_beam(pipelines),
            "examples": [{"title": title, "note": note} for title, _, note in examples],
            "confidence_words": CONFIDENCE_WORDS,
            "megabytes": uploads.MEGABYTES,
            "megapixels": uploads.MEGAPIXELS,
            "tabs": [tab.name for tab in pages],
        }

    @app.api_route("/examples/{number}", methods=_READ, include_in_schema=False)
    async def example(number: int) -> Response:
        if not 0 <= number < len(examples):
            raise HTTPException(404, "no such example")
        _, jpeg, _ = examples[number]
        return Response(jpeg, media_type="image/jpeg")

    for tab in pages:  # before /static, which has every other file
        files_of_tab = StaticFiles(directory=str(tab.folder))
        app.mount(f"/static/{tab.name}", files_of_tab, name=f"static of {tab.name}")
    app.mount("/static", StaticFiles(directory=str(_STATIC)), name="static")


def _add_tabs(app: FastAPI, tabs: Sequence[Tab], queue: RequestQueue) -> dict[Tab, str]:
    """Add the services of tabs; return the HTML of each tab.

    A tab that cannot be opened is left out with a warning of one line.
    """
    pages = {}
    taken = _paths(app.routes) | _PAGE_PATHS
    for tab in tabs:
        try:
            # Made in any case: its paths are what a tab without packages refuses by
            # name.
            router = tab.router(queue)
            paths = _paths(router.routes)
            clash = sorted(paths & taken)
            if clash:
                raise ValueError(
                    f"the service {clash[0]!r} is taken; choose another path"
                )
            if tab.missing():
                taken |= paths
                _refuse_services(app, tab, router)
                continue
            html = (tab.folder / "tab.html").read_text(encoding="utf-8")
            app.include_router(router)
        except Exception as error:  # of a stranger's code
            reason = one_line(error)
            _LOGGER.warning("the tab %r is left out: %s", tab.name, reason)
            continue
        taken |= paths
        pages[tab] = html
    return pages


def _paths(routes: Iterable[object]) -> set[str]:
    return {route.path for route in routes if isinstance(route, APIRoute)}


def _refuse_services(app: FastAPI, tab: Tab, router: APIRouter) -> None:
    """Add the services of a tab that cannot run; each names the packages it needs."""
    needed = f"the tab {tab.title} needs {', '.join(tab.missing())}"
    remedy = f"run {tab.remedy}, " if tab.remedy else "install it, "

    async def refuse() -> None:
        raise HTTPException(404, f"{needed}; {remedy}then start the server again")

    for route in router.routes:
        if isinstance(route, APIRoute):
            app.add_api_route(
                route.path,
                refuse,
                methods=list(route.methods or ()),
                include_in_schema=False,
            )


def _render(pages: Mapping[Tab, str], missing: Sequence[Tab]) -> str:
    """Return the page with the elements of further tabs."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    template = environment.from_string(_PAGE.read_text(encoding="utf-8"))
    return template.render(tabs=list(pages.items()), missing=missing)


def _add_error_handlers(app: FastAPI) -> None:
    """Respond to every expected error with :func:`middleware.refusal`."""

    @app.exception_handler(ShowAttendTellError)  # of a model that is absent or damaged
    async def on_error(request: Request, error: ShowAttendTellError) -> JSONResponse:
        return refusal(request, 500, str(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return refusal(request, error.status_code, error.detail, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        first = error.errors()[0]
        # The first part is body, query or path.
        name = ".".join(str(part) for part in first["loc"][1:]) or "body"
        is_missing = first["type"] == "missing"
        # The framework's own message would show the names of its classes.
        if name == "photo":  # of every service that takes a file
            received = "nothing" if is_missing else "text"
            message = (
                f"`photo` must be a file of a form. Received: {received}; send it as "
                "-F photo=@FILE of curl does"
            )
        elif is_missing:
            message = f"`{name}` is missing; add it"
        else:
            message = f"`{name}`: {first['msg']}. Received: {quote(first['input'])}"
        return refusal(request, 422, message)
