"""Serve ``POST /caption``: a photo in, its caption and attention out."""

import dataclasses
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from fastapi import FastAPI, File, Form, UploadFile
from starlette.exceptions import HTTPException

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.preprocessing import seen_region
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.deployment.server.uploads import open_upload
from show_attend_tell.inference.photo_words import words_in_photo
from show_attend_tell.inference.photos import NamedPhoto
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.runtime.errors import CaptionError

_SERVED_BEAM = 10  # the widest, unless a model's own is wider
SAMPLES = 5  # captions sampled for a photo: the caption and its alternatives


def max_beam(pipelines: Mapping[str, CaptioningPipeline]) -> int:
    """Return the widest beam that a request may ask for."""
    return max(_SERVED_BEAM, *(_beam_of(p.decoding()) for p in pipelines.values()))


def _beam_of(decoding: DecodingSettings) -> int:
    """Return the width of the beam search that equals these settings."""
    return 1 if decoding.method == "greedy" else decoding.beam


def _decoding_of(
    pipeline: CaptioningPipeline, request: CaptionRequest
) -> DecodingSettings:
    """Return the decoding settings of a request; a seed without effect is ignored.

    Raises:
        HTTPException: the model selects no locations, or has no attention for a region;
            or there is a temperature, and no words are sampled.
    """
    # Without the seed, which `decoding` refuses where nothing is sampled.
    try:
        decoding = pipeline.decoding(dataclasses.replace(request, seed=None))
    except CaptionError as error:  # of a temperature
        raise HTTPException(422, str(error)) from None
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
    if request.seed is not None and is_sampled(decoding):
        return dataclasses.replace(decoding, seed=request.seed)
    return decoding


def add_captions(
    app: FastAPI,
    pipelines: Mapping[str, CaptioningPipeline],
    queue: RequestQueue,
) -> None:
    """Add the service to an application."""
    first = next(iter(pipelines))
    widest = max_beam(pipelines)

    @app.post("/caption")
    async def caption(
        photo: Annotated[UploadFile, File(description="JPEG, PNG, WebP, GIF, ...")],
        model: Annotated[str, Form(description="One of /about.")] = first,
        method: Annotated[
            Literal["beam", "sample"] | None,
            Form(description="By default, as all that follow, the model's own."),
        ] = None,
        beam: Annotated[int | None, Form(ge=1, le=widest)] = None,
        temperature: Annotated[float | None, Form(ge=0.1, le=3)] = None,
        locations: Annotated[
            Literal["expected", "likeliest", "sampled"] | None,
            Form(description="Soft attention, or one location for each word."),
        ] = None,
        seed: Annotated[
            int | None,
            Form(ge=0, lt=2**31, description="Ignored where nothing is sampled."),
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
        """Generate the caption of a photo, with the attention of each word.

        The answer has `sentence`, `text` and its T `words`; in nats `log_prob`, the T
        `word_log_probs` and `end_log_prob`, null if the caption was cut; and `score`,
        which ranks the `alternatives`, best first. `attention` has T maps (rows,
        columns), each of sum 1, over `seen`, the part of the photo that the network
        sees: x0, y0, x1, y1 as fractions. `beta` has T gates, `locations` the place
        of each word, row by row, or null if places are averaged. `region` is a
        fraction of `seen`, and `region_words` the number of words written from it.
        `described` has words that a person wrote into the photo. `confidence` is the
        probability that the caption is right, and `confidence_word` its word; null for
        a region or without a calibration. `tags` are nouns that describe the photo,
        each with its `confidence`, the most probable first; null also for sampled
        words.
        `settings` are those of the decoding, `seconds` the duration without the queue.
        """
        if model not in pipelines:
            raise HTTPException(
                422, f"`model` must be one of {list(pipelines)}. Received: {model!r}"
            )
        pipeline = pipelines[model]
        try:
            request = CaptionRequest(
                method=method,
                beam=beam,
                temperature=temperature,
                locations=locations,
                seed=seed,
                # An empty field of a form is no region.
                region=region or None,
            )
        except CaptionError as error:  # of a malformed region
            raise HTTPException(422, str(error)) from None
        decoding = _decoding_of(pipeline, request)
        # Asked for wherever they are possible: `decoding` and the request refuse the
        # rest.
        if decoding.method == "sample":
            request = dataclasses.replace(request, samples=SAMPLES)
        elif pipeline.has_tags and request.region is None:
            request = dataclasses.replace(request, tags=True)
        # Read here, in the event loop; decoded in the queue's thread.
        content = await photo.read()
        answer = await queue.run(_caption_upload, pipeline, content, request, decoding)
        # A form may name a charset that decodes to lone surrogates, which JSON cannot
        # have.
        name = (photo.filename or "photo").encode("utf-8", "replace").decode()
        return answer | {
            "model": model,
            "photo": name,
            "settings": _effective(decoding),
        }


def _caption_upload(
    pipeline: CaptioningPipeline,
    content: bytes,
    request: CaptionRequest,
    decoding: DecodingSettings,
) -> dict:
    """Return the values for JSON of an uploaded photo's caption."""
    start = time.monotonic()
    image = open_upload(content)
    # The name of the upload is never used as a path.
    photo = NamedPhoto(Path("photo"), image)
    try:
        (caption,) = pipeline.caption_inputs([photo], request, decoding=decoding)
    except CaptionError as error:  # of a region that is not inside the photo
        raise HTTPException(422, str(error)) from None
    region = seen_region(image.size, pipeline.engine.side, pipeline.engine.resize)
    sizes = (*image.size, *image.size)
    # Null where the caption has no such value.
    absent = dict.fromkeys(("locations", "region", "region_words", "tags"))
    values = absent | caption.to_dict()
    del values["path"]
    return values | {
        "described": words_in_photo(io.BytesIO(content)),
        "seen": [round(x / size, 6) for x, size in zip(region, sizes, strict=True)],
        "seconds": round(time.monotonic() - start, 3),
    }


def _effective(decoding: DecodingSettings) -> dict:
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
