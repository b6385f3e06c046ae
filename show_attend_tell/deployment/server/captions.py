"""Serve ``POST /caption``: a photo in, its caption and attention out."""

import dataclasses
import inspect
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, get_type_hints

from fastapi import FastAPI, File, Form, UploadFile
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from show_attend_tell.config.captioner import DecodingSettings, static_settings
from show_attend_tell.data.preprocessing import seen_region
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.runtime.errors import CaptionError, UploadError

MAX_BEAM = 10  # unless a model's own beam is wider
SAMPLES = 5  # captions sampled for a photo: the caption and its alternatives


class AlternativeAnswer(BaseModel):
    """An alternative caption of the photo."""

    text: str
    sentence: str
    log_prob: float
    score: float


class Answer(BaseModel):
    """A caption with all its details; T words."""

    text: str = Field(description="The words with spaces between.")
    sentence: str = Field(description="The text, to be read by people.")
    words: list[str]
    log_prob: float = Field(description="log p(caption) in nats.")
    score: float = Field(
        description="log_prob normalised by length, and what a reranker adds."
    )
    word_log_probs: list[float] = Field(description="log p of each word in nats.")
    end_log_prob: float | None = Field(
        description="log p of the end word; null if the caption was cut."
    )
    attention: list[list[list[float]]] = Field(
        description="T maps (rows, columns) over `seen`; each sums to 1."
    )
    locations: list[int] | None = Field(
        None, description="The location of each word, row by row; null if averaged."
    )
    confidence: float | None = Field(
        None,
        description="Probability that the caption is right; null for a region, and "
        "without a calibration.",
    )
    confidence_word: str | None = Field(
        None, description="likely, unsure or probably wrong."
    )
    beta: list[float] = Field(description="T gates.")
    region: list[float] | None = Field(
        None, description="Region of the caption, as fractions of `seen`."
    )
    alternatives: list[AlternativeAnswer] = Field(description="Best first.")
    seen: list[float] = Field(
        description="Region that the network sees: x0, y0, x1, y1 as fractions."
    )
    photo: str = Field(description="File name of the upload.")
    model: str
    settings: dict = Field(description="Decoding settings of the caption.")
    seconds: float = Field(description="Duration in seconds, without the queue.")


def max_beam(pipelines: Mapping[str, CaptioningPipeline]) -> int:
    """Return the widest beam that a request may ask for."""
    return max(MAX_BEAM, *(_beam_of(p.decoding()) for p in pipelines.values()))


def _beam_of(decoding: DecodingSettings) -> int:
    """Return the width of the beam search that equals these settings."""
    return 1 if decoding.method == "greedy" else decoding.beam


def _form_fields(widest_beam: int) -> list[inspect.Parameter]:
    """Return the fields of the form that a CaptionRequest declares."""
    kinds, parameters = get_type_hints(CaptionRequest), []
    for field in dataclasses.fields(CaptionRequest):
        option = field.metadata.get("option")
        if option is None or option.form is None:
            continue
        kind = kinds[field.name] if option.parse is None else str | None
        limits = {"le": widest_beam} if field.name == "beam" else {}
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=Annotated[kind, Form(**option.form, **limits)],
            )
        )
    return parameters


def _request_of(pipeline: CaptioningPipeline, values: Mapping) -> CaptionRequest:
    """Return the request of a form's values.

    An empty text is none. A seed is dropped where nothing is sampled.

    Raises:
        HTTPException: a text cannot be parsed, or the model selects no locations or
            has no attention for a region.
    """
    parsed = dict(values)
    for field in dataclasses.fields(CaptionRequest):
        option = field.metadata.get("option")
        if option is not None and option.parse is not None and field.name in parsed:
            text = parsed[field.name]
            try:
                parsed[field.name] = option.parse(text) if text else None
            except CaptionError as error:
                raise HTTPException(422, str(error)) from None
    request = CaptionRequest(**parsed, samples=SAMPLES)
    decoding = pipeline.decoding(dataclasses.replace(request, seed=None))
    generator = pipeline.engine.generator
    if decoding.locations != "expected" and not generator.selects_locations:
        raise HTTPException(
            422,
            "`locations` must be 'expected' with this model. Received: "
            f"{decoding.locations!r}; name another `model`",
        )
    if request.region is not None and not generator.attends:
        raise HTTPException(
            422, "`region` needs a model with attention; name another `model`"
        )
    return request if is_sampled(decoding) else dataclasses.replace(request, seed=None)


def add_captions(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    queue: RequestQueue,
    limits: Limits,
    refusals: dict,
) -> None:
    """Add the service to an application.

    Args:
        app: the application.
        pipelines: models by name; the first is the default.
        queue: the queue of all requests to models.
        limits: limits of uploads.
        refusals: OpenAPI's descriptions of responses that are errors.
    """
    first, traced = next(iter(pipelines)), set()

    def trace(search: tuple, pipeline: CaptioningPipeline, request: CaptionRequest):
        """Trace a search before its first request, so that others do not wait."""
        if search not in traced:  # another request may have waited for the same
            pipeline.compile(request)
            traced.add(search)

    async def caption(
        photo: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, ...")],
        model: Annotated[str, Form(description="One of /about.")] = first,
        **values,
    ):
        """Generate the caption of a photo, with the attention of each word."""
        if model not in pipelines:
            raise HTTPException(
                422, f"`model` must be one of {list(pipelines)}. Received: {model!r}"
            )
        pipeline, content = pipelines[model], await photo.read()
        request = _request_of(pipeline, values)
        settings = pipeline.decoding(request)
        search = (model, static_settings(settings), request.region is not None)
        prepare = (
            None if search in traced else partial(trace, search, pipeline, request)
        )
        answer = await queue.run(
            *(_caption_upload, pipeline, content, limits, request), prepare=prepare
        )
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        used = _used(settings)
        return answer | {"model": model, "photo": name, "settings": used}

    # FastAPI reads the form's fields from the signature.
    *named, _ = inspect.signature(caption).parameters.values()
    fields = _form_fields(max_beam(pipelines))
    caption.__signature__ = inspect.Signature([*named, *fields])
    app.post("/caption", response_model=Answer, responses=refusals)(caption)


def _caption_upload(
    pipeline: CaptioningPipeline,
    content: bytes,
    limits: Limits,
    request: CaptionRequest,
) -> dict:
    """Return the values for JSON of an uploaded photo's caption."""
    start = time.monotonic()
    image = open_upload(content, limits)
    try:
        caption = pipeline.caption_image(image, request)
    except CaptionError as error:  # of a region that is not inside the photo
        raise UploadError(422, str(error)) from None
    region = seen_region(image.size, pipeline.engine.side, pipeline.engine.resize)
    sizes = (*image.size, *image.size)
    return caption.to_dict() | {
        "seen": [round(x / size, 6) for x, size in zip(region, sizes, strict=True)],
        "seconds": round(time.monotonic() - start, 3),
    }


def _used(decoding: DecodingSettings) -> dict:
    """Return the settings that this caption depends on."""
    used = {"method": "beam", "beam": _beam_of(decoding)}
    if decoding.method == "sample":
        used = {"method": "sample", "temperature": decoding.temperature}
    used["locations"] = decoding.locations
    return used | ({"seed": decoding.seed} if is_sampled(decoding) else {})


def model_info(name: str, pipeline: CaptioningPipeline) -> dict:
    """Describe a model, with its decoding settings, for the page."""
    decoding = pipeline.decoding()
    return {
        "name": name,
        "attention": pipeline.engine.generator.members[0].settings.attention,
        "method": "sample" if decoding.method == "sample" else "beam",
        "beam": _beam_of(decoding),
        "temperature": decoding.temperature,
        "locations": decoding.locations,
        "selects_locations": pipeline.engine.generator.selects_locations,
        "seed": decoding.seed,
    }
