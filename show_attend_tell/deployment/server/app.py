"""Serve the web page and ``POST /caption``: a photo in, JSON out."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
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
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.preprocessing import Box, seen_region
from show_attend_tell.data.region import parse_region
from show_attend_tell.deployment.server.digits import DigitModels, add_digits
from show_attend_tell.deployment.server.middleware import Guard
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import (
    Limits,
    open_upload,
    size_message,
)
from show_attend_tell.deployment.server.variants import Variants
from show_attend_tell.deployment.server.words import WordReader, add_words
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.sampled_captions import is_sampled
from show_attend_tell.runtime.errors import BusyError, CaptionError, UploadError

MAX_BEAM = 10  # unless a model's own beam is wider
SAMPLES = 5  # captions sampled for a photo: the caption and its alternatives

_STATIC = files(__package__) / "static"
_FORM_BYTES = 100_000  # bytes of a request besides the photo


@dataclass(frozen=True)
class Example:
    """An example picture on the page: its name and its JPEG bytes."""

    name: str
    jpeg: bytes


class AlternativeAnswer(pydantic.BaseModel):
    """An alternative caption of the photo."""

    text: str
    sentence: str
    log_prob: float
    score: float


class Answer(pydantic.BaseModel):
    """A caption with all its details; T words."""

    text: str = pydantic.Field(description="The words with spaces between.")
    sentence: str = pydantic.Field(description="The text, to be read by people.")
    words: list[str]
    log_prob: float = pydantic.Field(description="log p(caption) in nats.")
    score: float = pydantic.Field(
        description="log_prob normalised by length, and what a reranker adds."
    )
    word_log_probs: list[float] = pydantic.Field(
        description="log p of each word in nats."
    )
    end_log_prob: float | None = pydantic.Field(
        description="log p of the end word; null if the caption was cut."
    )
    attention: list[list[list[float]]] = pydantic.Field(
        description="T maps (rows, columns) over `seen`; each sums to 1."
    )
    locations: list[int] | None = pydantic.Field(
        None, description="The location of each word, row by row; null if averaged."
    )
    confidence: float | None = pydantic.Field(
        None, description="0 to 1, see the model card; null if not calibrated."
    )
    low_confidence: bool = pydantic.Field(description="Whether to doubt the caption.")
    beta: list[float] = pydantic.Field(description="T gates.")
    region: list[float] | None = pydantic.Field(
        None,
        description="Region of the caption, as fractions of `seen`.",
    )
    alternatives: list[AlternativeAnswer] = pydantic.Field(description="Best first.")
    seen: list[float] = pydantic.Field(
        description="Region that the network sees: x0, y0, x1, y1 as fractions."
    )
    photo: str = pydantic.Field(description="File name of the upload.")
    model: str
    settings: dict = pydantic.Field(description="Decoding settings of the caption.")
    seconds: float = pydantic.Field(
        description="Duration in seconds, without the queue."
    )


class Refusal(pydantic.BaseModel):
    """The reason for having no caption, in one line."""

    error: str


_REFUSALS = {
    400: "The request is malformed.",
    403: "The request comes from a page of another server.",
    408: "The request did not arrive in time.",
    413: "The photo has too many bytes or pixels.",
    415: "Not a photo, or a damaged one.",
    422: "An option is out of range.",
    503: "The queue is full (Retry-After: seconds), or the server is stopping.",
}


def create_app(
    pipelines: Mapping[str, CaptioningPipeline],
    examples: Sequence[Example] = (),
    queue_limit: int = 32,
    limits: Limits | None = None,
    hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"),
    digits: DigitModels | None = None,
    reader: WordReader | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        pipelines: models by the name that the page shows; the first is the default.
        examples: pictures that the page offers.
        queue_limit: requests that may run or wait together; others are refused.
        limits: limits of uploads.
        hosts: accepted values of the header Host. Others are refused, so that a page
            of another site cannot reach the server through a name of its own.
        digits: models of the tab of digits; without them the page has no such tab.
        reader: model of the tab of words; likewise.
    """
    limits, queue = limits or Limits(), RequestQueue(queue_limit)
    app = FastAPI(
        title="Show, Attend and Tell",
        version=__version__,
        summary="A photo in, its caption and the attention of each word out.",
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.queue = queue
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    app.add_middleware(
        Guard, max_bytes=limits.bytes + _FORM_BYTES, message=size_message(limits)
    )
    _add_refusals(app)
    tabs = {"digits": digits is not None, "words": reader is not None}
    _add_page(app, pipelines, examples, limits, tabs)
    _add_service(app, pipelines, queue, limits)
    if digits is not None:
        add_digits(app, digits, queue, limits, _responses())
    if reader is not None:
        add_words(app, reader, queue, limits, _responses())
    return app


def _responses() -> dict:
    """Return OpenAPI's descriptions of responses that are errors."""
    return {
        code: {"model": Refusal, "description": text}
        for code, text in _REFUSALS.items()
    }


def _max_beam(pipelines: Mapping[str, CaptioningPipeline]) -> int:
    """Return the widest beam that a request may ask for."""
    return max(MAX_BEAM, *(_beam_of(p.decoding()) for p in pipelines.values()))


def _beam_of(decoding: DecodingSettings) -> int:
    """Return the width of the beam search that equals these settings."""
    return 1 if decoding.method == "greedy" else decoding.beam


def _add_service(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    queue: RequestQueue,
    limits: Limits,
) -> None:
    first, variants = next(iter(pipelines)), Variants(SAMPLES)

    @app.post(
        "/caption",
        response_model=Answer,
        responses=_responses(),
    )
    async def caption(
        photo: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, ...")],
        model: Annotated[str, Form(description="One of /about.")] = first,
        method: Annotated[
            Literal["beam", "sample"] | None,
            Form(description="By default, as all that follow, the model's own."),
        ] = None,
        beam: Annotated[int | None, Form(ge=1, le=_max_beam(pipelines))] = None,
        temperature: Annotated[float | None, Form(ge=0.1, le=3)] = None,
        seed: Annotated[
            int | None,
            Form(ge=0, lt=2**31, description="Ignored where nothing is sampled."),
        ] = None,
        locations: Annotated[
            Literal["expected", "likeliest", "sampled"] | None,
            Form(description="Soft attention, or one location for each word."),
        ] = None,
        region: Annotated[
            str | None,
            Form(
                max_length=200,
                description="x0,y0,x1,y1 in pixels of the upright photo; the caption "
                "is written from there.",
            ),
        ] = None,
    ):
        """Generate the caption of a photo, with the attention of each word."""
        if model not in pipelines:
            raise HTTPException(
                422, f"`model` must be one of {list(pipelines)}. Received: {model!r}"
            )
        decoding = pipelines[model].decoding(
            method=method, beam=beam, temperature=temperature, locations=locations
        )
        _require_locations(pipelines[model], decoding)
        if seed is not None:
            decoding = dataclasses.replace(decoding, seed=seed)
        box = _parsed_region(region)
        pipeline, content = pipelines[model], await photo.read()
        values = await queue.run(
            *(_caption_upload, pipeline, content, limits, decoding, box),
            prepare=variants.compilation(pipeline, decoding, box is not None),
        )
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        return values | {"model": model, "photo": name, "settings": _used(decoding)}


def _selects_locations(pipeline: CaptioningPipeline) -> bool:
    """Return whether a model's words can be generated from one location each."""
    return pipeline.generator.selects_locations


def _require_locations(
    pipeline: CaptioningPipeline, decoding: DecodingSettings
) -> None:
    if decoding.locations != "expected" and not _selects_locations(pipeline):
        raise HTTPException(
            422,
            "`locations` must be 'expected' with a Transformer. Received: "
            f"{decoding.locations!r}; name another `model`",
        )


def _parsed_region(region: str | None) -> Box | None:
    """Return the region of a request; an empty field is none."""
    try:
        return parse_region(region) if region else None
    except CaptionError as error:
        raise HTTPException(422, str(error)) from None


def _caption_upload(
    pipeline: CaptioningPipeline,
    content: bytes,
    limits: Limits,
    decoding: DecodingSettings,
    box: Box | None,
) -> dict:
    """Return the values for JSON of an uploaded photo's caption."""
    start = time.monotonic()
    image = open_upload(content, limits)
    try:
        caption = pipeline.caption_image(image, decoding, SAMPLES, region=box)
    except CaptionError as error:  # of a region that is not inside the photo
        raise UploadError(422, str(error)) from None
    settings = pipeline.encoder.settings
    region = seen_region(image.size, settings.image_size, settings.resize)
    sizes = (*image.size, *image.size)
    return caption.to_dict() | {
        "seen": [round(x / size, 6) for x, size in zip(region, sizes, strict=True)],
        "low_confidence": caption.is_doubtful,
        "seconds": round(time.monotonic() - start, 3),
    }


def _used(decoding: DecodingSettings) -> dict:
    """Return the settings that this caption depends on."""
    used = {"method": decoding.method, "locations": decoding.locations}
    if decoding.method == "sample":
        used["temperature"] = decoding.temperature
    else:
        used |= {"method": "beam", "beam": _beam_of(decoding)}
    if is_sampled(decoding):
        used["seed"] = decoding.seed
    return used


def _model_info(name: str, pipeline: CaptioningPipeline) -> dict:
    """Return what the page shows of a model, and the model's own settings."""
    decoding = pipeline.decoding()
    return {
        "name": name,
        "attention": pipeline.captioner.settings.attention,
        "method": "sample" if decoding.method == "sample" else "beam",
        "beam": _beam_of(decoding),
        "temperature": decoding.temperature,
        "locations": decoding.locations,
        "selects_locations": _selects_locations(pipeline),
        "seed": decoding.seed,
    }


def _add_page(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    examples: Sequence[Example],
    limits: Limits,
    tabs: Mapping[str, bool],
) -> None:
    @app.head("/", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(str(_STATIC / "index.html"))

    @app.head("/about", include_in_schema=False)
    @app.get("/about", summary="Models, examples and limits.")
    async def about() -> dict:
        return {
            "version": __version__,
            "models": [_model_info(*one) for one in pipelines.items()],
            "max_beam": _max_beam(pipelines),
            "examples": [example.name for example in examples],
            "megabytes": limits.megabytes,
            "megapixels": limits.megapixels,
            **tabs,
        }

    @app.head("/examples/{number}", include_in_schema=False)
    @app.get("/examples/{number}", include_in_schema=False)
    async def example(number: int) -> Response:
        if not 0 <= number < len(examples):
            raise HTTPException(404, "no such example")
        return Response(examples[number].jpeg, media_type="image/jpeg")

    app.mount("/static", StaticFiles(directory=str(_STATIC)), name="static")


def _add_refusals(app: FastAPI) -> None:
    """Return every expected error as one line of JSON."""

    @app.exception_handler(UploadError)
    async def on_upload_error(request: Request, error: UploadError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, error.status)

    @app.exception_handler(BusyError)
    async def on_busy_error(request: Request, error: BusyError) -> JSONResponse:
        wait = {"Retry-After": str(error.seconds)}
        return JSONResponse({"error": str(error)}, 503, wait)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid_request(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return JSONResponse({"error": f"`{name}`: {first['msg']}"}, 422)
