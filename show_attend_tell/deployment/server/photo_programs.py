"""Serve captions in the protocols of Ollama, OpenAI and PhotoPrism's vision service.

A request brings one photo and gets one sentence, or its tags where it asks for JSON,
see :mod:`labels`. Prompts, earlier messages, options of sampling and unknown fields are
ignored; a request for tools is refused. A stream is one piece: a line of JSON (Ollama),
or one event with all words (OpenAI).

https://docs.ollama.com/api, https://platform.openai.com/docs/api-reference,
https://docs.photoprism.app/developer-guide/vision/service
"""

import base64
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import anyio
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, ValidationError
from starlette.exceptions import HTTPException

from show_attend_tell import __version__
from show_attend_tell.deployment.server.labels import JsonForm, json_form, labels_of
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import open_upload
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.result import Caption
from show_attend_tell.runtime.errors import ShowAttendTellError, one_line, quote

_OWNER = "show-attend-tell"
_READ = ["GET", "HEAD"]
_NEVER = "2318-01-01T00:00:00Z"  # when Ollama unloads a model that stays in memory


class _Query(BaseModel):
    tools: list | None = None
    functions: list | None = None  # tools of earlier versions


class _OllamaMessage(BaseModel):
    images: list[str] | None = None  # in base64


class OllamaQuery(_OllamaMessage, _Query):
    """A request to Ollama; as there, unknown fields are ignored."""

    model: str = Field(validation_alias=AliasChoices("model", "name"))
    messages: list[_OllamaMessage] | None = None
    prompt: object = None
    stream: bool | None = None
    format: object = None

    @property
    def is_warm_up(self) -> bool:
        """Whether it only asks to load the model: it has neither words nor a photo."""
        return not (self.prompt or self.messages or self.images)

    @property
    def photos(self) -> list[list[str]]:
        """The photos of each message."""
        return [message.images or [] for message in (*(self.messages or []), self)]

    @property
    def form(self) -> JsonForm | None:
        """The JSON that is asked for, None for a sentence.

        Raises:
            HTTPException: see :func:`labels.json_form`.
        """
        if not self.format:
            return None
        return json_form("format", None if self.format == "json" else self.format)


def _address(value: object) -> object:
    """Return the address of a photo: chat completions put it into an object."""
    return value.get("url") if isinstance(value, dict) else value


class _Part(BaseModel):
    image_url: Annotated[str | None, BeforeValidator(_address)] = None


class _OpenAIMessage(BaseModel):
    content: str | list[_Part] | None = None


class _Schema(BaseModel):
    content: object = Field(None, validation_alias="schema")


class _Format(_Schema):
    type: str = "text"
    json_schema: _Schema | None = None  # of chat completions

    def form(self, name: str) -> JsonForm | None:
        """Return the JSON that is asked for, None for text.

        Args:
            name: of the field, for messages.

        Raises:
            HTTPException: see :func:`labels.json_form`.
        """
        if self.type == "text":
            return None
        if self.type == "json_object":
            return json_form(name)
        schema = self.json_schema.content if self.json_schema else self.content
        return json_form(name, schema or {})


class _Text(BaseModel):
    format: _Format | None = None


class OpenAIQuery(_Query):
    """A request to OpenAI: `messages` of chat completions, `input` of responses.

    Programs send fields of other servers, such as `top_k`, and fields that are new.
    """

    model: str
    messages: str | list[_OpenAIMessage] = Field(
        validation_alias=AliasChoices("messages", "input")
    )
    stream: bool | None = None
    n: Literal[1] | None = None
    response_format: _Format | None = None
    text: _Text | None = None

    @property
    def photos(self) -> list[list[str]]:
        """The photos of each message."""
        contents = [] if isinstance(self.messages, str) else self.messages
        parts = [m.content if isinstance(m.content, list) else [] for m in contents]
        return [[part.image_url for part in each if part.image_url] for each in parts]

    @property
    def form(self) -> JsonForm | None:
        """The JSON that is asked for, see :attr:`OllamaQuery.form`."""
        if self.response_format:
            return self.response_format.form("response_format")
        if self.text and self.text.format:
            return self.text.format.form("text.format")
        return None


class PhotoPrismQuery(_Query):
    """A request to PhotoPrism's vision service, whose photos are data URIs."""

    id: str | None = None
    model: str | None = None
    images: list[str] | None = None

    @property
    def photos(self) -> list[list[str]]:
        """The photos of the only message."""
        return [self.images or []]


Query = TypeVar("Query", OllamaQuery, OpenAIQuery, PhotoPrismQuery)


class _Answer(NamedTuple):
    """A caption, and the values that all protocols return with it."""

    model: str
    text: str
    words: int
    seconds: float
    stream: bool | None


def add_photo_programs(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    queue: RequestQueue,
) -> None:
    """Add the protocols of Ollama, of OpenAI and of PhotoPrism to an application.

    :func:`middleware.refusal` turns errors into the protocol's own.
    """
    # Once, as it reads the model files.
    described = {name: _tag(name, pipelines[name]) for name in pipelines}

    async def answer(request: Request, query: OllamaQuery | OpenAIQuery) -> _Answer:
        start = time.monotonic()
        name = _find(pipelines, query.model)
        # What can be refused is refused before the request takes a place in the queue.
        form = query.form
        if form is not None:
            _require_tags(name, pipelines[name])
        photo = _only_photo(query)
        caption = await _unless_left(
            request, queue, _caption, pipelines[name], photo, form is not None
        )
        return _Answer(
            model=query.model,
            text=caption.sentence if form is None else form.fill(caption),
            words=len(caption.words),
            seconds=time.monotonic() - start,
            stream=query.stream,
        )

    async def ollama_answer(request: Request, place: Callable[[str], dict]) -> Response:
        query = await _read(request, OllamaQuery)
        if query.is_warm_up:
            _find(pipelines, query.model)
            found = _Answer(query.model, "", 0, 0.0, query.stream)
            return _line(found, place(""), reason="load")
        found = await answer(request, query)
        return _line(found, place(found.text))

    @app.post("/api/generate", include_in_schema=False)
    async def generate(request: Request) -> Response:
        return await ollama_answer(request, lambda text: {"response": text})

    @app.post("/api/chat", include_in_schema=False)
    async def chat(request: Request) -> Response:
        return await ollama_answer(
            request, lambda text: {"message": {"role": "assistant", "content": text}}
        )

    @app.api_route("/api/version", methods=_READ, include_in_schema=False)
    async def version() -> dict:
        return {"version": __version__}

    @app.api_route("/api/tags", methods=_READ, include_in_schema=False)
    async def tags() -> dict:
        return {"models": [*described.values()]}

    @app.get("/api/ps", include_in_schema=False)
    async def running() -> dict:
        # All models are in memory, and stay there.
        more = {"expires_at": _NEVER, "size_vram": 0}
        return {"models": [one | more for one in described.values()]}

    @app.post("/api/show", include_in_schema=False)
    async def show(request: Request) -> dict:
        query = await _read(request, OllamaQuery)
        return described[_find(pipelines, query.model)]

    @app.post("/v1/chat/completions", include_in_schema=False)
    async def completions(request: Request) -> Response:
        return _completion(await answer(request, await _read(request, OpenAIQuery)))

    @app.post("/v1/responses", include_in_schema=False)
    async def responses(request: Request) -> Response:
        return _response(await answer(request, await _read(request, OpenAIQuery)))

    async def vision(request: Request, kind: str, name: str | None) -> dict:
        query = await _read(request, PhotoPrismQuery)
        asked = name or query.model or next(iter(pipelines))
        pipeline = pipelines[_find(pipelines, asked)]
        if kind == "labels":
            _require_tags(asked, pipeline)
        photo = _only_photo(query)
        caption = await _unless_left(
            request, queue, _caption, pipeline, photo, kind == "labels"
        )
        result: dict[str, Any] = {"labels": labels_of(caption)}
        if kind == "caption":
            result = {
                "caption": {
                    "text": caption.sentence,
                    "confidence": caption.confidence or 0.0,
                }
            }
        return {
            "id": query.id or str(uuid.uuid4()),
            "code": 200,
            "model": {"type": kind, "name": asked, "version": "latest"},
            "result": result,
        }

    # PhotoPrism puts the model and its version into the path, or leaves them out.
    for kind in ("labels", "caption"):
        for path in ("", "/{name}", "/{name}/{version}"):
            app.post(f"/api/v1/vision/{kind}{path}", include_in_schema=False)(
                _vision_service(vision, kind)
            )

    @app.get("/v1/models", include_in_schema=False)
    async def models() -> dict:
        return {"object": "list", "data": [_model(name) for name in pipelines]}

    @app.get("/v1/models/{name}", include_in_schema=False)
    async def model(name: str) -> dict:
        return _model(_find(pipelines, name))


async def _read(request: Request, kind: type[Query]) -> Query:
    """Return a request's body, whatever its Content-Type, as curl's may be a form.

    Raises:
        HTTPException: it is malformed, or asks for tools.
    """
    try:
        query = kind.model_validate_json(await request.body())
    except ValidationError as error:
        # Without the input, which may be a whole photo in base64.
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "body"
        raise HTTPException(400, f"`{place}`: {one_line(fault['msg'])}") from None
    if query.tools or query.functions:
        raise HTTPException(
            400,
            "`tools` must be absent: this model writes a sentence or labels; ask "
            "another model to call tools",
        )
    return query


def _vision_service(vision: Callable, kind: str) -> Callable:
    """Return the service of PhotoPrism's protocol for labels or captions."""

    async def service(request: Request, name: str | None = None) -> dict:
        return await vision(request, kind, name)

    return service


def _require_tags(name: str, pipeline: CaptioningPipeline) -> None:
    """Raise an HTTPException if a model's tags are not calibrated."""
    if not pipeline.has_tags:
        raise HTTPException(
            400,
            f"labels need a model with calibrated tags. Received: {quote(name)}; run "
            "`show-attend-tell calibrate` for it, or ask another model",
        )


def _find(pipelines: Mapping[str, CaptioningPipeline], asked: str) -> str:
    """Return the name of a model; capitals and Ollama's tag `latest` do not matter.

    Raises:
        HTTPException: there is no such model.
    """
    bare = asked.removesuffix(":latest")
    # The exact name first: two models may differ in capitals alone.
    for form in (str, str.lower):
        for name in pipelines:
            if form(name) == form(bare):
                return name
    known = f"`model` must be one of {list(pipelines)}"
    raise HTTPException(404, f"model {quote(asked)} not found; {known}")


def _only_photo(query: OllamaQuery | OpenAIQuery | PhotoPrismQuery) -> str:
    """Return the photo of the last message with photos, in base64 or as a data URI.

    Raises:
        HTTPException: there is none, or more than one.
    """
    # Earlier messages of a chat bring their photos along.
    photos = next(filter(None, reversed(query.photos)), [])
    if len(photos) != 1:
        received = f"Received: {len(photos)}; send a request for each photo"
        raise HTTPException(400, f"the message must have one photo. {received}")
    return photos[0]


async def _unless_left(request: Request, queue: RequestQueue, *call):
    """Return the result of a call in the queue; a client that left gives up its place.

    Raises:
        ShowAttendTellError: see :meth:`RequestQueue.run` and the call.
        HTTPException: the client has left, or see the same two.
    """
    # nginx' status for a client that closed the connection, which only the log shows.
    result: object = HTTPException(499, "the client left")

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        # Cancels the wait in the queue; a caption that is being computed runs to its
        # end.
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        try:
            result = await queue.run(*call)
        except (ShowAttendTellError, HTTPException) as error:  # a group would wrap it
            result = error
        # Stops the watch.
        group.cancel_scope.cancel()
    if isinstance(result, Exception):
        raise result
    return result


def _caption(pipeline: CaptioningPipeline, photo: str, tags: bool) -> Caption:
    """Return the caption of a photo in base64, with tags if they are asked for.

    Raises:
        HTTPException: it is no base64, or see :func:`uploads.open_upload`.
    """
    try:
        # Without line breaks, which some encoders insert; `validate` refuses what else
        # is not base64.
        text = "".join(photo.rpartition(";base64,")[2].split())
        content = base64.b64decode(text, validate=True)
    except ValueError:
        raise HTTPException(
            415,
            "the photo must be base64, or a data URI with base64. Received: "
            f"{quote(photo, 30)}; this server fetches nothing",
        ) from None
    return pipeline.caption(open_upload(content), tags=tags)


def _line(answer: _Answer, content: dict, reason: str = "stop") -> Response:
    """Return Ollama's response: one line, which is also its stream."""
    body = content | {
        "model": answer.model,
        "created_at": datetime.now(UTC).isoformat(),
        "done": True,
        "done_reason": reason,
        "total_duration": round(answer.seconds * 1e9),
        "prompt_eval_count": 0,
        "eval_count": answer.words,
    }
    # Ollama streams unless it is told not to.
    kind = "json" if answer.stream is False else "x-ndjson"
    return Response(json.dumps(body) + "\n", media_type=f"application/{kind}")


def _tag(name: str, pipeline: CaptioningPipeline) -> dict:
    """Return Ollama's description of a model."""
    digest = hashlib.sha256()
    size = 0
    changed = 0.0
    for file in pipeline.files:  # several of an ensemble
        content = file.read_bytes()
        digest.update(content)
        size += len(content)
        changed = max(changed, file.stat().st_mtime)
    return {
        **dict.fromkeys(("name", "model"), f"{name}:latest"),
        "modified_at": datetime.fromtimestamp(changed, UTC).isoformat(),
        "size": size,
        "digest": digest.hexdigest(),
        "capabilities": ["completion", "vision"],
        "model_info": {"general.architecture": _OWNER, "general.basename": name},
        "details": {"format": "safetensors", "family": _OWNER, "families": [_OWNER]},
    }


def _model(name: str) -> dict:
    """Return OpenAI's description of a model."""
    return {"id": name, "object": "model", "created": 0, "owned_by": _OWNER}


def _completion(answer: _Answer) -> Response:
    """Return OpenAI's chat completion, or its stream."""
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    part = {"delta" if answer.stream else "message": message}
    body = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": f"chat.completion{'.chunk' if answer.stream else ''}",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "logprobs": None, "finish_reason": "stop", **part}],
        "usage": {
            "prompt_tokens": 0,
            "completion_tokens": answer.words,
            "total_tokens": answer.words,
        },
    }
    if not answer.stream:
        return Response(json.dumps(body), media_type="application/json")
    return _events(f"data: {json.dumps(body)}", "data: [DONE]")


def _response(answer: _Answer) -> Response:
    """Return OpenAI's response, or its stream: one event has all words."""
    place = {"item_id": f"msg_{uuid.uuid4().hex}", "output_index": 0}
    text = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    item = {"type": "message", "role": "assistant", "id": place["item_id"]}
    absent = "error", "incomplete_details", "instructions", "temperature", "top_p"
    body: dict[str, Any] = {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "model": answer.model,
        "metadata": {},
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        **dict.fromkeys(absent),
    }
    content = [text | {"text": answer.text}]
    ended = body | {
        "status": "completed",
        "output": [item | {"status": "completed", "content": content}],
        "usage": {
            "input_tokens": 0,
            "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 0},
            "output_tokens": answer.words,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.words,
        },
    }
    if not answer.stream:
        return Response(json.dumps(ended), media_type="application/json")
    begun = body | {"status": "in_progress", "output": []}
    empty = item | {"status": "in_progress", "content": []}
    delta = {"content_index": 0, "delta": answer.text, "logprobs": []}
    steps: dict[str, dict[str, Any]] = {
        "created": {"response": begun},
        "output_item.added": {"output_index": 0, "item": empty},
        "content_part.added": {**place, "content_index": 0, "part": text},
        "output_text.delta": {**place, **delta},
        "completed": {"response": ended},
    }
    events = [
        {"type": f"response.{name}", "sequence_number": number, **step}
        for number, (name, step) in enumerate(steps.items())
    ]
    return _events(*(f"event: {e['type']}\ndata: {json.dumps(e)}" for e in events))


def _events(*events: str) -> Response:
    """Return server-sent events."""
    text = "".join(f"{event}\n\n" for event in events)
    return Response(text, media_type="text/event-stream")
