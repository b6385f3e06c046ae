"""Caption photos with a captioner and its encoder.

A photo becomes a caption in these steps: :mod:`data.preprocessing` decodes and resizes
it, ``Encoder.encode`` computes its annotations, ``Captioner.generate`` searches for the
words (:mod:`models.generation` and :mod:`decoding`), and :mod:`inference.result` turns
the hypotheses into a Caption.
"""

import dataclasses
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from show_attend_tell.config.runs import find_model
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.calibration_file import find_calibration
from show_attend_tell.inference.encoder_matching import matching_encoder
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import (
    Caption,
    Failure,
    LowConfidence,
    caption_from_hypotheses,
)
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.confidence import Calibration
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import CaptionError, PhotoError

BATCH = 16  # photos in memory and in the encoder together


class CaptioningPipeline:
    """Generate captions of photos.

    Attributes:
        captioner: the Keras model, annotation vectors -> captions.
        encoder: the network, photo -> annotation vectors.
        file: the model file, None for a captioner that was not loaded from one.
        calibration: gives captions their confidence; None leaves it unknown.
    """

    def __init__(
        self,
        captioner: Captioner,
        encoder: Encoder,
        file: Path | None = None,
        calibration: Calibration | None = None,
    ):
        self.captioner = captioner
        self.encoder = encoder
        self.file = file
        self.calibration = calibration

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
        values = {**dataclasses.asdict(self.captioner.decoding), **given}
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
        photo: str | os.PathLike,
        beam: int | None = None,
        locations: str | None = None,
        seed: int | None = None,
        min_confidence: float | None = None,
    ) -> Caption:
        """Return the caption of a photo.

        Args:
            photo: path of the photo.
            beam: beam width, 1 is greedy; by default the model's.
            locations: ``expected``, ``likeliest`` or ``sampled``, see
                ``DecodingSettings``; by default the model's.
            seed: seed of sampled locations; by default the model's. The noise of a
                photo depends on the seed and the photo alone.
            min_confidence: lowest confidence of a caption, 0 to 1; none by default.

        Returns:
            ``text`` and ``words`` (T), ``log_prob``, ``attention`` (T, rows,
            columns), ``beta`` (T), ``locations`` (T) unless words are generated from
            the expected context, and ``alternatives``. Jupyter displays it as a page.

        Raises:
            CaptionError: the photo cannot be read, a setting is invalid, see
                :meth:`decoding`, or the caption's confidence is below the minimum.
        """
        decoding = self.decoding(beam=beam, locations=locations, seed=seed)
        path = Path(photo)
        if path.is_dir():
            raise CaptionError(
                f"`photo` must be a file. Received: the folder {path}; name one of its "
                "photos, or pass the folder to caption_photos"
            )
        (result,) = self.caption_photos([path], decoding, min_confidence)
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
        self.require_calibration(min_confidence)
        decoding = decoding or self.decoding()
        found = list(find_photos(paths))
        photos = sum(not isinstance(one, Failure) for one in found)
        size = 1 if photos == 1 else BATCH  # two graphs serve any number of photos
        decoding = dataclasses.replace(decoding, batch_size=size)
        for start in range(0, len(found), size):
            for result in self._caption_batch(found[start : start + size], decoding):
                yield _unless_doubtful(result, min_confidence)

    def caption_image(
        self,
        image: Image.Image,
        decoding: DecodingSettings | None = None,
        samples: int = 1,
        path: str | os.PathLike = "photo",
    ) -> Caption:
        """Return the caption of a decoded photo.

        The caption equals that of :meth:`caption_photos` for the same pixels.

        Args:
            image: RGB, upright, as ``Encoder.load_photo`` returns it.
            decoding: settings from :meth:`decoding`; by default the model's.
            samples: captions sampled, with ``method="sample"``. The first becomes
                the caption; those that differ become its alternatives, best first.
            path: name of the photo in the result.
        """
        decoding = decoding or self.decoding()
        count = samples if decoding.method == "sample" else 1
        square, view = self.encoder.preprocess(image), self.encoder.view(image)
        features = self.encoder.encode(square[None])  # (1, L, D)
        hypotheses = self.captioner.generate(
            np.repeat(features, count, axis=0),  # (1, L, D) -> (count, L, D)
            dataclasses.replace(decoding, batch_size=count),
            seeds=_sample_seeds(decoding.seed, square, count),
        )
        if decoding.method == "sample":
            found = _distinct(hypotheses)
        else:
            found = Hypotheses(*(field[0] for field in hypotheses))
        return self._result(found, features[0], Path(path), square, view)

    def compile(
        self, samples: int = 1, decoding: DecodingSettings | None = None
    ) -> None:
        """Compile the graphs that :meth:`caption_image` runs with these arguments."""
        side = self.encoder.settings.image_size
        self.caption_image(Image.new("RGB", (side, side)), decoding, samples)

    def _caption_batch(
        self, found: Sequence[Path | Failure], decoding: DecodingSettings
    ) -> list[Caption | Failure]:
        """Caption at most ``decoding.batch_size`` photos; the order is kept."""
        results = [self._read(one) for one in found]
        rows = [k for k, one in enumerate(results) if not isinstance(one, Failure)]
        if rows:
            squares = np.stack([results[k][1] for k in rows])  # (B, S, S, 3)
            features = self.encoder.encode(squares)  # (B, S, S, 3) -> (B, L, D)
            hypotheses = self.captioner.generate(
                features,
                decoding,
                seeds=[photo_seed(decoding.seed, square) for square in squares],
            )
            for row, k in enumerate(rows):
                photo = Hypotheses(*(field[row] for field in hypotheses))
                results[k] = self._result(photo, features[row], *results[k])
        return results

    def _read(self, photo: Path | Failure) -> tuple | Failure:
        """Return (path, square, view) of a photo, or a Failure with the reason."""
        if isinstance(photo, Failure):
            return photo
        try:
            image = self.encoder.load_photo(photo)
            return photo, self.encoder.preprocess(image), self.encoder.view(image)
        except PhotoError as error:
            return Failure(photo, str(error))

    def _result(
        self, hypotheses: Hypotheses, features, path: Path, square, view
    ) -> Caption:
        """Build the caption from W hypotheses of one photo, (W, ...) each.

        `features` are the photo's, (L, D).
        """
        captioner, confidence = self.captioner, None
        if self.calibration is not None:
            one = Hypotheses(*(field[None] for field in hypotheses))  # -> (1, W, ...)
            # (1, L, D) -> (1,)
            confidence = float(self.calibration.confidence(features[None], one)[0])
        return caption_from_hypotheses(
            *(hypotheses, captioner.vocabulary, captioner.grid),
            *(path, square, view, confidence),
        )

    def require_calibration(self, min_confidence: float | None) -> None:
        """Validate a lowest confidence of captions; None is always valid.

        Raises:
            CaptionError: it is not in [0, 1], or the model has no calibration.
        """
        if min_confidence is None:
            return
        if not 0 <= min_confidence <= 1:
            raise CaptionError(
                "`min_confidence` must be from 0 to 1. Received: "
                f"{min_confidence}; choose a probability"
            )
        if self.calibration is None:
            raise CaptionError(
                "`min_confidence` needs a calibration of the model. Received: "
                f"{self.file}, which has none; run `show-attend-tell calibrate`"
            )


def _unless_doubtful(
    result: Caption | Failure, min_confidence: float | None
) -> Caption | Failure:
    """Return the result, or a LowConfidence if its confidence is below the minimum."""
    if (
        min_confidence is None
        or isinstance(result, Failure)
        or result.confidence >= min_confidence
    ):
        return result
    return LowConfidence(
        result.path,
        f"{result.path}: left out, its confidence {result.confidence:.2f} is below "
        f"{min_confidence:g}",
    )


def load(
    model: str | os.PathLike,
    encoder_weights: str | os.PathLike | None = None,
    runs: str | os.PathLike = "experiments/runs",
) -> CaptioningPipeline:
    """Load a trained captioner and build its encoder.

    Args:
        model: a ``.keras`` file, the folder of a run, or an experiment's name.
        encoder_weights: a file, or ``imagenet``, ``scenes`` or ``none``; by default
            the weights that the model was trained with. If they came from a file, it
            is looked up in the folder of the model.
        runs: folder in which names of runs are looked up.

    Raises:
        CaptionError: the encoder's weights are absent, or are not those the model was
            trained with.
        ModelFileError: the model file is absent, damaged or not a captioner.
        EncoderError: the encoder's weights cannot be loaded.
        CalibrationError: the calibration beside the model is damaged or another's.
    """
    file = find_model(os.fspath(model), runs)
    captioner = load_captioner(file)
    encoder = matching_encoder(captioner, file, encoder_weights)
    calibration = find_calibration(captioner, file)
    return CaptioningPipeline(captioner, encoder, file, calibration)


def is_sampled(decoding: DecodingSettings) -> bool:
    """Return whether captions depend on the seed."""
    return decoding.method == "sample" or decoding.locations == "sampled"


def photo_seed(seed: int, square: np.ndarray) -> tuple[int, int]:
    """Return the seed of one photo, which depends on no other photo.

    Args:
        seed: seed of the decoding settings.
        square: (S, S, 3) uint8.
    """
    return seed, zlib.crc32(square.tobytes())


def _sample_seeds(seed: int, square: np.ndarray, count: int) -> list:
    """Return `count` independent seeds; the first equals :func:`photo_seed`."""
    first = np.random.SeedSequence(photo_seed(seed, square))
    return [first, *first.spawn(count - 1)]


def _distinct(samples: Hypotheses) -> Hypotheses:
    """Remove repeated captions; the first sample stays first, others by score.

    Args:
        samples: every field is (N, 1, ...), one hypothesis for each of N samples.

    Returns:
        Hypotheses of one photo, every field (W, ...) with W <= N.
    """
    samples = Hypotheses(*(field[:, 0] for field in samples))  # (N, 1, ...) -> (N, ...)
    others = 1 + np.argsort(-samples.scores[1:], kind="stable")
    kept: dict[bytes, int] = {}
    for row in (0, *others):
        kept.setdefault(samples.tokens[row].tobytes(), int(row))
    rows = list(kept.values())
    return Hypotheses(*(field[rows] for field in samples))
