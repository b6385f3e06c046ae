"""Caption photos with a captioner and its encoder.

A photo becomes a caption in these steps: :mod:`data.preprocessing` decodes and resizes
it, ``Encoder.encode`` computes its annotations, ``Generator.generate`` searches for the
words (:mod:`models.generation` and :mod:`decoding`), and :mod:`inference.result` turns
the hypotheses into a Caption.
"""

import dataclasses
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.region import cell_shares, region_in_view
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.confidence import Calibration, find_calibration
from show_attend_tell.inference.encoder_matching import matching_encoder
from show_attend_tell.inference.photos import (
    NamedPhoto,
    Photo,
    find_photos,
    open_input,
    path_of,
    read_ahead,
    to_input,
)
from show_attend_tell.inference.request import CaptionRequest, is_sampled
from show_attend_tell.inference.result import (
    Caption,
    Failure,
    caption_from_hypotheses,
    distinct_samples,
    unless_doubtful,
)
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.generation import MANY_PHOTOS
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.pretrained import DEFAULT, model_path
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import CaptionError, PhotoError

BATCH = 16  # photos in memory and in the encoder together


class CaptioningPipeline:
    """Generate captions of photos.

    Attributes:
        generator: annotations -> captions; a captioner becomes a generator of its own
            captions.
        encoder: the network, photo -> annotation vectors.
        file: the model file, or the tuple of an ensemble's files; None without one.
        calibration: gives captions their confidence; None leaves it unknown.
    """

    def __init__(
        self,
        generator: Generator | Captioner,
        encoder: Encoder,
        file: Path | tuple[Path, ...] | None = None,
        calibration: Calibration | None = None,
    ):
        if isinstance(generator, Captioner):
            generator = generator.generator
        self.generator, self.encoder, self.file = generator, encoder, file
        self.calibration = calibration

    @property
    def captioner(self) -> Captioner:
        """The captioner, the first one of an ensemble."""
        return self.generator.members[0]

    def decoding(self, request: CaptionRequest | None = None) -> DecodingSettings:
        """Return the decoding settings saved with the model, changed by a request.

        Raises:
            CaptionError: a setting is out of range, or the request has a seed and
                nothing is sampled.
        """
        request = request or CaptionRequest()
        saved = dataclasses.asdict(self.generator.decoding)
        changes = {
            name: value
            for name in saved
            if (value := getattr(request, name, None)) is not None
        }
        if "beam" in changes:
            changes = {"method": "beam", **changes}
        values = saved | changes
        try:
            settings = DecodingSettings(**values)
        except (TypeError, ValueError):
            raise CaptionError(
                "`locations` must be expected, likeliest or sampled, `beam` at least "
                f"1 and `seed` at least 0. Received: {values}; correct the setting"
            ) from None
        if "seed" in changes and not is_sampled(settings):
            raise CaptionError(
                f"`seed` has no effect with locations = {settings.locations!r}. "
                f"Received: seed = {settings.seed}; use 'sampled' or omit the seed"
            )
        return settings

    def caption(
        self, photo: Photo | Sequence[Photo], **options: object
    ) -> Caption | list[Caption | Failure]:
        """Return the caption of a photo, or the captions of a list of photos.

        Args:
            photo: a path; the bytes of a file; a PIL image; an array (H, W, 3), uint8,
                RGB; or a list or tuple of these.
            **options: `beam`, `locations`, `seed`, `region`, `min_confidence` and
                other fields of ``inference.request.CaptionRequest``.

        Returns:
            ``text`` and ``words`` (T), ``log_prob``, ``attention`` (T, rows,
            columns), ``beta`` (T), ``locations`` (T) unless words are generated from
            the expected context, and ``alternatives``. Jupyter displays it as a page.
            For a list, a list in the same order: a Caption for each photo, and a
            Failure, with its ``reason``, for each that cannot be read.

        Raises:
            CaptionError: a single photo cannot be read, a setting is invalid, see
                :meth:`decoding` and :func:`data.region.region_in_view`, a list has a
                region, or a single caption's confidence is too low.
        """
        request = CaptionRequest(**options)
        if isinstance(photo, list | tuple):
            if request.region is not None:
                raise CaptionError(
                    f"`region` needs one photo. Received: {len(photo)} photos; caption "
                    "each with its own region"
                )
            photos = [to_input(item, f"photo-{k + 1}") for k, item in enumerate(photo)]
            return list(self.caption_inputs(photos, request))
        (result,) = self.caption_inputs([to_input(photo)], request)
        if isinstance(result, Failure):
            raise CaptionError(result.reason)
        return result

    def caption_photos(
        self,
        paths: Iterable[str | os.PathLike | Failure],
        request: CaptionRequest | None = None,
    ) -> Iterator[Caption | Failure]:
        """Generate the captions of photos, in batches.

        Args:
            paths: photos, and folders to search recursively; a Failure is passed
                through.
            request: the user's choices; by default the model's own.

        Yields:
            A Caption for each photo, a Failure for one that cannot be read, or a
            LowConfidence for one whose caption is left out, in the order of
            :func:`~show_attend_tell.inference.photos.find_photos`.

        Raises:
            CaptionError: see :meth:`decoding` and :meth:`require_calibration`.
        """
        yield from self.caption_inputs(list(find_photos(paths)), request)

    def caption_inputs(
        self,
        photos: Sequence[Path | NamedPhoto | Failure],
        request: CaptionRequest | None = None,
        present: Callable[[object], bool] | None = None,
        total: int | None = None,
    ) -> Iterator[Caption | Failure]:
        """Yield the captions of photos; failures are passed through.

        A caption's numbers depend, by rounding, on the graph and on the photo's row in
        its batch. A photo for which `present` is true has no caption, but keeps its
        row, so that a resumed run writes the same bytes. `total` counts the photos of
        the whole run.
        """
        request = request or CaptionRequest()
        self.require_calibration(request)
        lowest = request.min_confidence
        if request.region is not None:
            for photo in photos:
                yield unless_doubtful(self._caption_region(photo, request), lowest)
            return
        count = total or sum(not isinstance(photo, Failure) for photo in photos)
        size = 1 if count == 1 else BATCH  # two graphs serve any number of photos
        decoding = dataclasses.replace(self.decoding(request), batch_size=size)
        self.encoder.expect(count * (1 + self.generator.mirror))

        def read(photo: Path | NamedPhoto | Failure) -> tuple | Failure | None:
            return None if present and present(photo) else self._read(photo)

        for batch in read_ahead(read, photos, size):
            for result in self._caption_batch(batch, decoding, count >= MANY_PHOTOS):
                if result is not None:
                    yield unless_doubtful(result, lowest)

    def caption_image(
        self,
        image: Image.Image,
        request: CaptionRequest | None = None,
        path: str | os.PathLike = "photo",
    ) -> Caption:
        """Return the caption of a decoded photo, also of a region and of samples.

        For the same pixels it equals the caption of :meth:`caption_photos`, up to
        rounding.

        Args:
            image: RGB, upright, as ``Encoder.load_photo`` returns it.
            request: the user's choices; by default the model's own.
            path: name of the photo in the result.

        Raises:
            CaptionError: see :func:`data.region.region_in_view`.
        """
        request = request or CaptionRequest()
        decoding = self.decoding(request)
        count = request.samples if decoding.method == "sample" else 1
        square, view = self.encoder.preprocess(image), self.encoder.view(image)
        box, shares = None, None
        if request.region is not None:
            side, resize = (
                self.encoder.settings.image_size,
                self.encoder.settings.resize,
            )
            box = region_in_view(request.region, image.size, side, resize)
            shares = cell_shares(box, self.generator.grid)  # (L,)
            shares = np.repeat(shares[None], count, axis=0)  # (L,) -> (count, L)
        features = self.encoder.encode(square[None], self.generator.mirror)  # (1, L, D)
        hypotheses = self.generator.generate(
            np.repeat(features, count, axis=0),  # (1, L, D) -> (count, L, D)
            dataclasses.replace(decoding, batch_size=count),
            seeds=sample_seeds(decoding.seed, square, count),
            regions=shares,
        )
        if decoding.method == "sample":
            hypotheses = distinct_samples(hypotheses)
        else:
            hypotheses = Hypotheses(*(field[0] for field in hypotheses))
        caption = self._result(hypotheses, features[0], Path(path), square, view)
        return dataclasses.replace(caption, region=box)

    def compile(self, request: CaptionRequest | None = None) -> None:
        """Trace the search that :meth:`caption_image` runs with a request.

        The graph of captions with a region serves all regions.
        """
        request = request or CaptionRequest()
        decoding = self.decoding(request)
        count = request.samples if decoding.method == "sample" else 1
        L, D = int(np.prod(self.encoder.grid)), self.encoder.width
        views = (2,) if self.generator.mirror else ()
        regions = None if request.region is None else np.ones((count, L), np.float32)
        self.generator.generate(
            np.zeros((count, *views, L, D), np.float16),
            dataclasses.replace(decoding, batch_size=count),
            regions=regions,
        )

    def _caption_region(
        self, photo: Path | NamedPhoto | Failure, request: CaptionRequest
    ) -> Caption | Failure:
        """Caption one photo from the region of a request."""
        if isinstance(photo, Failure):
            return photo
        try:
            path, image = open_input(photo)
        except PhotoError as error:
            return Failure(path_of(photo), str(error))
        return self.caption_image(image, request, path)

    def _caption_batch(
        self,
        results: list[tuple | Failure | None],
        decoding: DecodingSettings,
        xla: bool,
    ) -> list[Caption | Failure | None]:
        """Caption photos from `_read`, a batch at most; None keeps a row empty."""
        rows = [k for k, read in enumerate(results) if isinstance(read, tuple)]
        if rows:
            side, seed = self.encoder.settings.image_size, decoding.seed
            squares = np.zeros((len(results), side, side, 3), np.uint8)
            for k in rows:
                squares[k] = results[k][1]
            # (B, S, S, 3) -> (B, L, D)
            features = self.encoder.encode(squares, self.generator.mirror)
            seeds = [photo_seed(seed, square) for square in squares]
            hypotheses = self.generator.generate(
                features, decoding, seeds=seeds, xla=xla
            )
            for k in rows:
                photo = Hypotheses(*(field[k] for field in hypotheses))
                results[k] = self._result(photo, features[k], *results[k])
        return results

    def _read(self, photo: Path | NamedPhoto | Failure) -> tuple | Failure:
        """Return (path, square, view) of a photo, or a Failure with the reason."""
        if isinstance(photo, Failure):
            return photo
        try:
            path, image = open_input(photo)
            return path, self.encoder.preprocess(image), self.encoder.view(image)
        except PhotoError as error:
            return Failure(path_of(photo), str(error))

    def _result(
        self, hypotheses: Hypotheses, features, path: Path, square, view
    ) -> Caption:
        """Build the caption of a photo from features (L, D), hypotheses (W, ...)."""
        generator, confidence = self.generator, None
        if self.calibration is not None:
            batch = Hypotheses(*(field[None] for field in hypotheses))  # -> (1, W, ...)
            # (1, L, D) -> (1,)
            confidence = float(self.calibration.confidence(features[None], batch)[0])
        return caption_from_hypotheses(
            *(hypotheses, generator.vocabulary, generator.grid),
            *(path, square, view, confidence),
        )

    def require_calibration(self, request: CaptionRequest) -> None:
        """Raise a CaptionError if a lowest confidence lacks the model's calibration."""
        if request.min_confidence is not None and self.calibration is None:
            raise CaptionError(
                "`min_confidence` needs a calibration of the model. Received: "
                f"{self.file}, which has none for captions ranked so; run "
                "`show-attend-tell calibrate`, with their reranker as "
                "<model>.reranker.npz beside the model"
            )


def load_requested(request: CaptionRequest) -> CaptioningPipeline:
    """Load the models of a request, see :func:`load`."""
    models = request.models or (DEFAULT,)
    return load(
        models[0] if len(models) == 1 else models,
        request.encoder_weights,
        mirror=request.mirror,
        reranker=request.reranker,
    )


def load(
    model: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    encoder_weights: str | os.PathLike | None = None,
    runs: str | os.PathLike = "experiments/runs",
    mirror: bool = False,
    reranker: str | os.PathLike | None = None,
) -> CaptioningPipeline:
    """Load a trained captioner, or an ensemble of several, and build its encoder.

    Args:
        model: a ``.keras`` file, the folder of a run, an experiment's name, or
            ``shipped``, the default, or ``shipped-lstm`` in the package; several are
            averaged, see :mod:`models.generator`.
        encoder_weights: a file, or a name of ``EncoderSettings.weights``; by default
            the weights that the model was trained with. If they came from a file, it
            is looked up in the folder of the model. The packaged weights of VGG16 and
            the weights that they are rounded from may replace each other.
        runs: folder in which names of runs are looked up.
        mirror: whether to average over photos and their mirror images.
        reranker: file by which hypotheses are ranked too, or ``none``; by default
            ``<model>.reranker.npz``, if it is beside a single model.

    Raises:
        CaptionError: the encoder's weights are absent, or are not those the model was
            trained with.
        ModelFileError: a file is absent, damaged, or of another model or kind.
        EncoderError: the encoder's weights cannot be loaded.
        PretrainedModelError: `model` is omitted, and the package has no model.
        CalibrationError: the calibration beside the model is damaged or another's.
    """
    several = mirror or isinstance(model, list | tuple)
    model = DEFAULT if model is None else model
    models = model if isinstance(model, list | tuple) else [model]
    files = [model_path(os.fspath(name), runs) for name in models]
    generator = load_generator(files, mirror, reranker)
    encoder = matching_encoder(generator, files[0], encoder_weights)
    calibration = None if several else find_calibration(generator, files[0])
    file = tuple(files) if several else files[0]
    return CaptioningPipeline(generator, encoder, file, calibration)


def photo_seed(seed: int, square: np.ndarray) -> tuple[int, int]:
    """Return the seed of one photo, which depends on no other photo.

    Args:
        seed: seed of the decoding settings.
        square: (S, S, 3) uint8.
    """
    return seed, zlib.crc32(square.tobytes())


def sample_seeds(seed: int, square: np.ndarray, count: int) -> list:
    """Return `count` independent seeds; the first equals :func:`photo_seed`."""
    first = np.random.SeedSequence(photo_seed(seed, square))
    return [first, *first.spawn(count - 1)]
