"""The web page and its one service: ``POST /caption``, a photo in, JSON out."""

import time
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Literal

import pydantic
from fastapi import FastAPI, File, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from show_attend_tell import __version__
from show_attend_tell.deployment.server.middleware import Guard
from show_attend_tell.deployment.server.request_queue import Desk
from show_attend_tell.deployment.server.uploads import Limits, open_upload, too_large
from show_attend_tell.inference.teller import MOST_BEAMS, Teller, Wish
from show_attend_tell.runtime.errors import BusyError, UploadError

_PAGE = files(__package__) / "static"
_FORM_ROOM = 100_000  # bytes of a request beside the photo itself


@dataclass(frozen=True)
class Example:
    """A picture that visitors may take: its name and its JPEG bytes."""

    name: str
    jpeg: bytes


class Other(pydantic.BaseModel):
    """Another caption of the photo."""

    text: str
    log_prob: float
    score: float


class Answer(pydantic.BaseModel):
    """A caption with all its details; T words."""

    text: str = pydantic.Field(description="The words with spaces between.")
    words: list[str]
    log_prob: float = pydantic.Field(description="log p(caption) in nats.")
    score: float = pydantic.Field(description="log_prob normalised by length.")
    word_log_probs: list[float] = pydantic.Field(description="Of each word, in nats.")
    end_log_prob: float | None = pydantic.Field(
        description="Of the end; null where the caption was cut."
    )
    attention: list[list[list[float]]] = pydantic.Field(
        description="T maps (rows, columns) over `seen`; each sums to 1."
    )
    locations: list[int] | None = pydantic.Field(
        None, description="The one place of each word, row by row; null if averaged."
    )
    beta: list[float] = pydantic.Field(description="T gates.")
    alternatives: list[Other] = pydantic.Field(description="Best first.")
    seen: list[float] = pydantic.Field(
        description="What the network saw: x0, y0, x1, y1 in fractions of the photo."
    )
    photo: str = pydantic.Field(description="The name that was sent.")
    model: str
    settings: dict = pydantic.Field(description="How the caption was written.")
    seconds: float = pydantic.Field(description="Spent on this photo, without waiting.")


class Refusal(pydantic.BaseModel):
    """Why there is no caption, in one line."""

    error: str


_REFUSALS = {
    400: "The request cannot be read.",
    413: "The photo has too many bytes or pixels.",
    415: "Not a photo, or a damaged one.",
    422: "An option is out of its range.",
    503: "The queue is full; the header Retry-After tells when to try again.",
}


def create_app(
    tellers: Sequence[Teller],
    examples: Sequence[Example] = (),
    places: int = 32,
    limits: Limits | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"),
) -> FastAPI:
    """Build the application.

    Args:
        tellers: the models, the first one is chosen at first; names are distinct.
        examples: pictures that the page offers.
        places: requests served or waiting at once; more are told to come again.
        limits: of uploads.
        hosts: names under which it answers; others are refused, so that no page of
            another site can reach it through a name of its own.
    """
    limits, desk = limits or Limits(), Desk(places)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        yield
        desk.close()

    app = FastAPI(
        title="Show, Attend and Tell",
        version=__version__,
        summary="A photo in, its caption and attention per word out.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(Guard, most=limits.bytes + _FORM_ROOM, message=too_large(limits))
    _add_refusals(app)
    _add_page(app, tellers, examples, limits)
    _add_service(app, {teller.name: teller for teller in tellers}, desk, limits)
    return app


def _add_service(
    app: FastAPI, tellers: Mapping[str, Teller], desk: Desk, limits: Limits
) -> None:
    first = next(iter(tellers))

    def tell(content: bytes, teller: Teller, wish: Wish) -> dict:
        start = time.monotonic()
        caption, seen = teller.tell(open_upload(content, limits), wish)
        values = caption.to_dict() | {"seen": seen, "model": teller.name}
        return values | {"seconds": round(time.monotonic() - start, 3)}

    @app.post(
        "/caption",
        response_model=Answer,
        responses={
            code: {"model": Refusal, "description": text}
            for code, text in _REFUSALS.items()
        },
    )
    async def caption(
        photo: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, ...")],
        model: Annotated[str, Form(description="One of /about.")] = first,
        method: Annotated[Literal["beam", "sample"], Form()] = "beam",
        beam: Annotated[int | None, Form(ge=1, le=MOST_BEAMS)] = None,
        temperature: Annotated[float, Form(ge=0.1, le=3)] = 1.0,
        seed: Annotated[int, Form(ge=0, lt=2**31)] = 0,
        locations: Annotated[
            Literal["expected", "likeliest", "sampled"] | None,
            Form(description="Soft attention, or one place for each word."),
        ] = None,
    ):
        """Write the caption of a photo, with attention for each word."""
        if model not in tellers:
            raise HTTPException(
                422, f"`model` must be one of {list(tellers)}. Received: {model!r}"
            )
        teller = tellers[model]
        wish = Wish(method, beam, temperature, seed, locations)
        looked = locations or teller.locations
        settings = {"method": method, "locations": looked}
        if method == "beam":
            settings["beam"] = beam or teller.beam
        else:
            settings["temperature"] = temperature
        if method == "sample" or looked == "sampled":
            settings["seed"] = seed
        values = await desk.run(tell, await photo.read(), teller, wish)
        return values | {"photo": photo.filename or "photo", "settings": settings}


def _add_page(app, tellers, examples, limits) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(str(_PAGE / "index.html"))

    @app.get("/about", summary="Models, examples and limits.")
    async def about() -> dict:
        return {
            "version": __version__,
            "models": [
                {
                    "name": teller.name,
                    "attention": teller.attention,
                    "beam": teller.beam,
                    "locations": teller.locations,
                }
                for teller in tellers
            ],
            "most_beams": MOST_BEAMS,
            "examples": [example.name for example in examples],
            "megabytes": limits.megabytes,
            "megapixels": limits.megapixels,
        }

    @app.get("/examples/{number}", include_in_schema=False)
    async def example(number: int) -> Response:
        if not 0 <= number < len(examples):
            raise HTTPException(404, "no such example")
        return Response(examples[number].jpeg, media_type="image/jpeg")

    app.mount("/static", StaticFiles(directory=str(_PAGE)), name="static")


def _add_refusals(app: FastAPI) -> None:
    """Turn every error that was foreseen into one line of JSON."""

    @app.exception_handler(UploadError)
    async def upload(request: Request, error: UploadError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status)

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> JSONResponse:
        wait = {"Retry-After": str(error.seconds)}
        return JSONResponse({"error": str(error)}, 503, wait)

    @app.exception_handler(HTTPException)
    async def known(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return JSONResponse({"error": f"`{name}`: {first['msg']}"}, 422)
