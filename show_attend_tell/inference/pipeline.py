"""Caption photos with a captioner and its encoder.

A photo becomes a caption in these steps: :mod:`data.preprocessing` decodes and resizes
it, ``Encoder.encode`` computes its annotations, ``Generator.generate`` searches for the
words (:mod:`models.generation` and :mod:`decoding`), and :mod:`inference.result` turns
the hypotheses into a Caption.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.region import cell_shares, region_in_view
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.calibration_file import (
    find_calibration,
    require_valid_minimum,
)
from show_attend_tell.inference.confidence import Calibration
from show_attend_tell.inference.encoder_matching import matching_encoder
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.photo_inputs import (
    NamedPhoto,
    Photo,
    open_input,
    to_input,
)
from show_attend_tell.inference.read_ahead import read_ahead
from show_attend_tell.inference.result import (
    Caption,
    Failure,
    caption_from_hypotheses,
    unless_doubtful,
)
from show_attend_tell.inference.sampled_captions import (
    distinct_samples,
    is_sampled,
    photo_seed,
    sample_seeds,
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
        generator: annotations -> captions, with one captioner or several.
        encoder: the network, photo -> annotation vectors.
        file: the model file, or the tuple of an ensemble's files; None without one.
        calibration: gives captions their confidence; None leaves it unknown.
    """

    def __init__(
        self,
        generator: Generator,
        encoder: Encoder,
        file: Path | tuple[Path, ...] | None = None,
        calibration: Calibration | None = None,
    ):
        self.generator, self.encoder, self.file = generator, encoder, file
        self.calibration = calibration

    @property
    def captioner(self) -> Captioner:
        """The captioner, the first one of an ensemble."""
        return self.generator.members[0]

    def decoding(self, **changes: object) -> DecodingSettings:
        """Return the decoding settings saved with the model, with changes.

        Args:
            **changes: fields of ``DecodingSettings``; None leaves the model's value.
                A `beam` without a `method` selects beam search.

        Raises:
            CaptionError: a setting is out of range, or `seed` is given but nothing is
                sampled.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        if "beam" in given:
            given = {"method": "beam", **given}
        values = {**dataclasses.asdict(self.generator.decoding), **given}
        try:
            settings = DecodingSettings(**values)
        except (TypeError, ValueError):
            raise CaptionError(
                "`locations` must be expected, likeliest or sampled, `beam` at least "
                f"1 and `seed` at least 0. Received: {values}; correct the setting"
            ) from None
        if "seed" in given and not is_sampled(settings):
            raise CaptionError(
                f"`seed` has no effect with locations = {settings.locations!r}. "
                f"Received: seed = {settings.seed}; use 'sampled' or omit the seed"
            )
        return settings

    def caption(
        self,
        photo: Photo | Sequence[Photo],
        beam: int | None = None,
        locations: str | None = None,
        seed: int | None = None,
        region: Sequence[float] | None = None,
        min_confidence: float | None = None,
    ) -> Caption | list[Caption | Failure]:
        """Return the caption of a photo, or the captions of a list of photos.

        Args:
            photo: a path; the bytes of a file; a PIL image; an array (H, W, 3), uint8,
                RGB; or a list or tuple of these.
            beam: beam width, 1 is greedy; by default the model's.
            locations: ``expected``, ``likeliest`` or ``sampled``, see
                ``DecodingSettings``; by default the model's.
            seed: seed of sampled locations; by default the model's. The noise of a
                photo depends on the seed and the photo alone.
            region: (x0, y0, x1, y1) in pixels of the photo as displayed, from which
                the caption is written, see :mod:`data.region`.
            min_confidence: lowest confidence of a caption, 0 to 1; none by default.

        Returns:
            ``text`` and ``words`` (T), ``log_prob``, ``attention`` (T, rows,
            columns), ``beta`` (T), ``locations`` (T) unless words are generated from
            the expected context, and ``alternatives``. Jupyter displays it as a page.
            For a list, a list in the same order: a Caption for each photo, and a
            Failure, with its ``reason``, for each that cannot be read.

        Raises:
            CaptionError: a single photo cannot be read, a setting is invalid, see
                :meth:`decoding` and :func:`data.region.region_in_view`, a list is
                given with a region, or a single caption's confidence is too low.
        """
        decoding = self.decoding(beam=beam, locations=locations, seed=seed)
        if isinstance(photo, list | tuple):
            if region is not None:
                raise CaptionError(
                    f"`region` needs one photo. Received: {len(photo)} photos; caption "
                    "each with its own region"
                )
            photos = [to_input(one, f"photo-{k + 1}") for k, one in enumerate(photo)]
            return list(self.caption_found(photos, decoding, min_confidence))
        if region is None:
            results = self.caption_found([to_input(photo)], decoding, min_confidence)
        else:
            results = self.caption_region(photo, region, decoding, min_confidence)
        (result,) = results
        if isinstance(result, Failure):
            raise CaptionError(result.reason)
        return result

    def caption_photos(
        self,
        paths: Iterable[str | os.PathLike | Failure],
        decoding: DecodingSettings | None = None,
        min_confidence: float | None = None,
    ) -> Iterator[Caption | Failure]:
        """Generate the captions of photos, in batches.

        Args:
            paths: photos, and folders to search recursively; a Failure is passed
                through.
            decoding: settings from :meth:`decoding`; by default the model's.
            min_confidence: captions below it are left out, 0 to 1; none by default.

        Yields:
            A Caption for each photo, a Failure for one that cannot be read, or a
            LowConfidence for one whose caption is left out, in the order of
            :func:`~show_attend_tell.inference.photo_files.find_photos`.

        Raises:
            CaptionError: `min_confidence` is out of range, or given and the model has
                no calibration.
        """
        found, decoding = list(find_photos(paths)), decoding or self.decoding()
        yield from self.caption_found(found, decoding, min_confidence)

    def caption_region(
        self,
        photo: Photo,
        region: Sequence[float],
        decoding: DecodingSettings,
        min_confidence: float | None = None,
    ) -> Iterator[Caption | Failure]:
        """Yield the caption of one photo, written from a region of it.

        Raises:
            CaptionError: see :meth:`caption`.
        """
        self.require_calibration(min_confidence)
        one = to_input(photo)
        if not isinstance(one, Failure):
            try:
                path, image = open_input(one)
                one = self.caption_image(image, decoding, path=path, region=region)
            except PhotoError as error:
                one = Failure(one if isinstance(one, Path) else one.path, str(error))
        yield unless_doubtful(one, min_confidence)

    def caption_found(
        self,
        found: Sequence[Path | NamedPhoto | Failure],
        decoding: DecodingSettings,
        min_confidence: float | None = None,
        present: Callable[[object], bool] | None = None,
        total: int | None = None,
    ) -> Iterator[Caption | Failure]:
        """Yield the captions of photos; failures are passed through.

        A caption's numbers depend, by rounding, on the graph and on the photo's row in
        its batch. A photo for which `present` is true is left out and keeps its row, so
        that a resumed run writes the same. `total` counts the photos of the whole run.
        """
        self.require_calibration(min_confidence)
        photos = total or sum(not isinstance(one, Failure) for one in found)
        size = 1 if photos == 1 else BATCH  # two graphs serve any number of photos
        decoding = dataclasses.replace(decoding, batch_size=size)
        self.encoder.expect(photos * (1 + self.generator.mirror))

        def read(one: Path | NamedPhoto | Failure) -> tuple | Failure | None:
            return None if present and present(one) else self._read(one)

        for results in read_ahead(read, found, size):
            for one in self._caption_batch(results, decoding, photos >= MANY_PHOTOS):
                if one is not None:
                    yield unless_doubtful(one, min_confidence)

    def caption_image(
        self,
        image: Image.Image,
        decoding: DecodingSettings | None = None,
        samples: int = 1,
        path: str | os.PathLike = "photo",
        region: Sequence[float] | None = None,
    ) -> Caption:
        """Return the caption of a decoded photo.

        For the same pixels it equals that of :meth:`caption_photos`, up to rounding.

        Args:
            image: RGB, upright, as ``Encoder.load_photo`` returns it.
            decoding: settings from :meth:`decoding`; by default the model's.
            samples: captions sampled, with ``method="sample"``. The first becomes
                the caption; those that differ become its alternatives, best first.
            path: name of the photo in the result.
            region: see :meth:`caption`.

        Raises:
            CaptionError: see :func:`data.region.region_in_view`.
        """
        decoding = decoding or self.decoding()
        count = samples if decoding.method == "sample" else 1
        square, view = self.encoder.preprocess(image), self.encoder.view(image)
        box, shares = None, None
        if region is not None:
            of = self.encoder.settings
            box = region_in_view(region, image.size, of.image_size, of.resize)
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
            found = distinct_samples(hypotheses)
        else:
            found = Hypotheses(*(field[0] for field in hypotheses))
        caption = self._result(found, features[0], Path(path), square, view)
        return dataclasses.replace(caption, region=box)

    def compile(
        self,
        samples: int = 1,
        decoding: DecodingSettings | None = None,
        with_region: bool = False,
    ) -> None:
        """Trace the search that :meth:`caption_image` runs with these arguments.

        The graph of captions with a region serves all regions.
        """
        decoding = decoding or self.decoding()
        count = samples if decoding.method == "sample" else 1
        L, D = int(np.prod(self.encoder.grid)), self.encoder.width
        views = (2,) if self.generator.mirror else ()
        self.generator.generate(
            np.zeros((count, *views, L, D), np.float16),
            dataclasses.replace(decoding, batch_size=count),
            regions=np.ones((count, L), np.float32) if with_region else None,
        )

    def _caption_batch(
        self,
        results: list[tuple | Failure | None],
        decoding: DecodingSettings,
        xla: bool,
    ) -> list[Caption | Failure | None]:
        """Caption photos from `_read`, a batch at most; None keeps a row empty."""
        rows = [k for k, one in enumerate(results) if isinstance(one, tuple)]
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
            path = photo.path if isinstance(photo, NamedPhoto) else photo
            return Failure(path, str(error))

    def _result(
        self, hypotheses: Hypotheses, features, path: Path, square, view
    ) -> Caption:
        """Build the caption of a photo from features (L, D), hypotheses (W, ...)."""
        generator, confidence = self.generator, None
        if self.calibration is not None:
            one = Hypotheses(*(field[None] for field in hypotheses))  # -> (1, W, ...)
            # (1, L, D) -> (1,)
            confidence = float(self.calibration.confidence(features[None], one)[0])
        return caption_from_hypotheses(
            *(hypotheses, generator.vocabulary, generator.grid),
            *(path, square, view, confidence),
        )

    def require_calibration(self, min_confidence: float | None) -> None:
        """Validate a lowest confidence, see :func:`require_valid_minimum`."""
        require_valid_minimum(min_confidence, self.calibration, self.file)


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
            is looked up in the folder of the model; the packaged weights of VGG16 are
            accepted in place of those that they are rounded from, and the reverse.
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
    files = [model_path(os.fspath(one), runs) for one in models]
    generator = load_generator(files, mirror, reranker)
    encoder = matching_encoder(generator, files[0], encoder_weights)
    calibration = None if several else find_calibration(generator, files[0])
    file = tuple(files) if several else files[0]
    return CaptioningPipeline(generator, encoder, file, calibration)
