"""Caption photos with an engine, which encodes photos and generates captions.

A photo becomes a caption in these steps: :mod:`data.preprocessing` decodes and resizes
it, the engine's ``encode`` computes its annotations, its generator searches for the
words, and :mod:`inference.result` turns the hypotheses into a Caption.
:mod:`inference.engine` has the two engines.
"""

import dataclasses
import filecmp
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

import numpy as np
import pydantic

from show_attend_tell.config import MAX_BEAM, MIN_TEMPERATURE
from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.encoder_identity import BUILT_IN_WEIGHTS
from show_attend_tell.data.preprocessing import Box
from show_attend_tell.data.region import cell_shares, region_in_view
from show_attend_tell.inference.confidence import (
    Calibration,
    find_calibration,
    is_calibrated,
    valid_calibration,
)
from show_attend_tell.inference.engine import Engine, PhotoEncoder, load_engine
from show_attend_tell.inference.photos import (
    Failure,
    NamedPhoto,
    OpenedPhoto,
    Photo,
    find_photos,
    is_several,
    read_photo,
    to_input,
)
from show_attend_tell.inference.request import (
    CaptionOptions,
    CaptionRequest,
    is_sampled,
    request_of,
)
from show_attend_tell.inference.result import (
    Caption,
    LowConfidence,
    apply_min_confidence,
    caption_from_hypotheses,
    distinct_samples,
    photo_seeds,
)
from show_attend_tell.models.pretrained import DEFAULT, NAMES, model_path, reranker_file
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.reference.model_file import CONFIDENCE, RERANKER
from show_attend_tell.reference.parallel import one_blas_thread
from show_attend_tell.reference.reranker import stored_reranker
from show_attend_tell.reference.tensor_file import SUFFIX
from show_attend_tell.runtime.errors import CaptionError, PhotoError, quote
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.runtime.read_ahead import read_ahead

if TYPE_CHECKING:  # they import Keras
    from show_attend_tell.models.captioner import Captioner
    from show_attend_tell.models.generator import Generator


# Values of a request that DecodingSettings accept.
_BOUNDS = {
    "method": "beam or sample",
    "beam": f"1 to {MAX_BEAM}",
    "temperature": f"a number of at least {MIN_TEMPERATURE}",
    "locations": "expected, likeliest or sampled",
    "seed": "a whole number from 0 to 2**64 - 1",
}


class CaptioningPipeline:
    """Generate captions of photos.

    Attributes:
        engine: the encoder and the models.
        file: the model file, or the tuple of an ensemble's files; None without one.
        calibration: gives captions their confidence; None leaves it unknown.
    """

    def __init__(
        self,
        engine: "Engine | Generator | Captioner",
        encoder: PhotoEncoder | None = None,
        file: Path | tuple[Path, ...] | None = None,
        calibration: Calibration | None = None,
        load_keras: Callable[[], Engine] | None = None,
        reload: "Callable[[], CaptioningPipeline] | None" = None,
    ):
        """Join an engine, or a Captioner and its Encoder, with what belongs to it.

        Args:
            engine: an engine, or the captioner or generator of one.
            encoder: the captioner's encoder; None with an engine.
            file: see the class.
            calibration: see the class.
            load_keras: loads the same models into Keras, for :attr:`captioner` and the
                like; None if they are Keras' already.
            reload: loads the pipeline again in another process, for ``pickle``.
        """
        if isinstance(engine, Engine):
            self.engine = engine
        else:
            if encoder is None:
                raise TypeError("`encoder` is missing; pass the captioner's encoder")
            self.engine = Engine(engine, encoder)
        self.file = file
        self.calibration = calibration
        self._load_keras = load_keras
        self._reload = reload

    def __repr__(self) -> str:
        models = " + ".join(file.name for file in self.files) or "models in memory"
        engine = "Keras" if self.engine.is_keras else "NumPy"
        return f"CaptioningPipeline({models}, engine: {engine})"

    def __reduce__(self) -> tuple[Callable[[], "CaptioningPipeline"], tuple[()]]:
        """Pickle the arguments of :func:`load`; unpickling loads the files again."""
        if self._reload is None:
            raise TypeError(
                "only a pipeline of `load` can be pickled, as the paths of its files; "
                "save the captioner and load it"
            )
        return self._reload, ()

    @functools.cached_property
    def _keras(self) -> Engine:
        """The engine of Keras, loaded on first use."""
        return self._load_keras() if self._load_keras else self.engine

    @property
    def files(self) -> tuple[Path, ...]:
        """The model files, none for a pipeline of models that were not loaded."""
        if self.file is None:
            return ()
        return self.file if isinstance(self.file, tuple) else (self.file,)

    @property
    def encoder(self) -> PhotoEncoder:
        """The Encoder of Keras."""
        return self._keras.encoder

    @property
    def generator(self) -> "Generator":
        """The Generator of Keras: captioners and reranker."""
        return cast("Generator", self._keras.generator)  # an Engine has either kind

    @property
    def captioner(self) -> "Captioner":
        """The captioner, a Keras model; the first one of an ensemble.

        A change to it shows in ``CaptioningPipeline(captioner, encoder)`` and in
        :meth:`save`. A pipeline with the engine of NumPy does not see it.
        """
        return cast("Captioner", self.generator.members[0])  # Generator says reference

    def decoding(self, request: CaptionRequest | None = None) -> DecodingSettings:
        """Return the decoding settings saved with the model, changed by a request.

        Raises:
            CaptionError: a setting is out of range; or the request has a seed and
                nothing is sampled, a temperature or several samples without sampled
                words, or tags with them.
        """
        request = request or CaptionRequest()
        saved = dataclasses.asdict(self.engine.generator.decoding)
        changes = {
            name: value
            for name in saved
            if (value := getattr(request, name, None)) is not None
        }
        if "beam" in changes:
            # A method of the request comes later and replaces this one.
            changes = {"method": "beam", **changes}
        values = saved | changes
        try:
            settings = DecodingSettings(**values)
        except pydantic.ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            raise CaptionError(
                f"`{name}` must be {_BOUNDS[name]}. Received: {quote(values[name])}; "
                "correct it"
            ) from None
        if "seed" in changes and not is_sampled(settings):
            raise CaptionError(
                f"`seed` has no effect with locations = {settings.locations!r}. "
                f"Received: seed = {settings.seed}; use 'sampled' or omit the seed"
            )
        if settings.method != "sample":
            for name, default in (("temperature", None), ("samples", 1)):
                if (value := getattr(request, name)) != default:
                    raise CaptionError(
                        f"`{name}` needs method = 'sample'. Received: {name} = "
                        f"{value}, method = {settings.method!r}; sample or leave it out"
                    )
        if request.tags and settings.method == "sample":
            raise CaptionError(
                "`tags` are of the candidates of a beam search. Received: method = "
                "'sample'; use 'beam' or leave out the tags"
            )
        return settings

    def caption(self, photo: Photo, **options: Unpack[CaptionOptions]) -> Caption:
        """Return the caption of a photo.

        A list, a generator or another iterable of photos is accepted too, and the
        result is then a list; type checkers know one photo only and point at
        :meth:`caption_photos`.

        Args:
            photo: a path; the bytes of a file, or an open binary file; a PIL image; or
                an array (H, W, 3), RGB, uint8 or floating-point numbers from 0 to 1.
            **options: `beam`, `locations`, `seed`, `region`, `min_confidence`, `tags`
                and the other options of ``inference.request.CaptionOptions``.

        Returns:
            ``text`` and ``words`` (T), ``log_prob``, ``attention`` (T, rows,
            columns), ``beta`` (T), ``locations`` (T) unless words are generated from
            the expected context, and ``alternatives``. Jupyter displays it as a page.
            For a list, a list in the same order: a Caption for each photo, and a
            Failure, with its ``reason``, for each that cannot be read.

        Raises:
            PhotoError: a single photo cannot be read.
            CaptionError: a setting is invalid, see :meth:`decoding` and
                :func:`data.region.region_in_view`, a list has a region, or a single
                caption's confidence is too low.
            ConfigError: `locations` is not ``expected``, and the model averages them.
        """
        request = request_of(options)
        if is_several(photo):
            # All at once: a generator may be read only once, and its length is needed.
            photos = [to_input(item, f"photo-{k + 1}") for k, item in enumerate(photo)]
            if request.region is not None:
                raise CaptionError(
                    f"`region` needs one photo. Received: a list of {len(photos)}; "
                    "caption each with its own region"
                )
            captions = list(self.caption_inputs(photos, request))
            return captions  # type: ignore[return-value]  # a list, as documented
        (result,) = self.caption_inputs([to_input(photo)], request)
        if isinstance(result, LowConfidence):
            raise CaptionError(result.reason)
        if isinstance(result, Failure):
            raise PhotoError(result.reason)
        return result

    def caption_photos(
        self,
        paths: Photo | Iterable[Photo | Failure],
        request: CaptionRequest | None = None,
    ) -> Iterator[Caption | Failure]:
        """Generate the captions of photos, in batches.

        Args:
            paths: photos of any kind that :meth:`caption` takes, and folders to search
                recursively, or one of them; a Failure is passed through.
            request: the user's choices; by default the model's own.

        Yields:
            A Caption for each photo, a Failure for one that cannot be read, or a
            LowConfidence for one whose caption is left out, in the order of
            :func:`~show_attend_tell.inference.photos.find_photos`.

        Raises:
            CaptionError: see :meth:`decoding` and :meth:`require_calibration`.
        """
        photos: list[Path | NamedPhoto | Failure] = []
        # The letters of a path would be paths too, and "/" is the whole file system.
        several = paths if is_several(paths) else [cast("Photo", paths)]
        for number, photo in enumerate(several, start=1):
            if isinstance(photo, str | os.PathLike | Failure):
                photos += find_photos([photo])
            else:
                photos.append(to_input(photo, f"photo-{number}"))
        yield from self.caption_inputs(photos, request)

    def caption_inputs(
        self,
        photos: Sequence[Path | NamedPhoto | Failure],
        request: CaptionRequest | None = None,
        is_done: Callable[[object], bool] | None = None,
        total: int | None = None,
        decoding: DecodingSettings | None = None,
    ) -> Iterator[Caption | Failure]:
        """Yield the captions of photos; failures are passed through.

        Args:
            photos: from :func:`inference.photos.to_input`.
            request: the user's choices; by default the model's own.
            is_done: whether an earlier run captioned a photo, which is not yielded. It
                keeps its row in its batch: rounding depends on the row, and so a
                resumed run writes the same numbers.
            total: number of photos of the whole run, by default of `photos`. Engines
                prepare for many.
            decoding: :meth:`decoding` of the request, if it is known.
        """
        request = request or CaptionRequest()
        self.require_calibration(request)
        # Failures are not encoded: the engine prepares for photos.
        total = total or sum(not isinstance(photo, Failure) for photo in photos)
        # Two graphs serve any number of photos.
        size = 1 if total == 1 or request.region is not None else self.engine.batch
        decoding = decoding or self.decoding(request)
        # One batch of the engine is one batch of the search.
        decoding = dataclasses.replace(decoding, batch_size=size)

        side = self.engine.side
        resize = self.engine.resize

        def read(start: int) -> list[OpenedPhoto | Failure | None]:
            return [
                None if is_done and is_done(photo) else read_photo(photo, side, resize)
                for photo in photos[start : start + size]
            ]

        # The next batch is decoded in a thread while this one is captioned.
        for batch in read_ahead(read, range(0, len(photos), size)):
            for result in self._caption_batch(batch, request, decoding, total):
                if isinstance(result, Caption):
                    yield apply_min_confidence(result, request.min_confidence)
                elif result is not None:
                    yield result

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the captioner with its reranker and its calibration.

        The encoder's weights, if they are a file, are copied beside the model. A
        calibration holds for its model only: if the weights have changed since, it is
        left out.

        Args:
            file: a path that ends with ``.safetensors``; it is replaced if it exists.

        Raises:
            CaptionError: there are several models, or `file` has another ending; or
                beside it are other weights of the name of the encoder's.
            OSError: a file cannot be written.
        """
        file = Path(file)
        generator = self.generator
        if generator.captioner is None or file.suffix != SUFFIX:
            raise CaptionError(
                "`save` needs one model without mirror images, and a file that ends "
                f"with {SUFFIX}. Received: {len(generator.members)} models, mirror="
                f"{generator.mirror}, {str(file)!r}; correct it"
            )
        parts = {}
        if generator.reranker is not None:
            parts[RERANKER] = stored_reranker(generator.reranker)
        if isinstance(self.file, Path):
            calibration = valid_calibration(generator, self.calibration, self.file)
            if calibration is not None:
                parts[CONFIDENCE] = calibration
            self._copy_encoder_weights(self.file, file)
        self.captioner.save_with(parts, file)

    def _copy_encoder_weights(self, source: Path, target: Path) -> None:
        """Copy the weights of the encoder, if they are a file, beside a model file."""
        name = self.generator.encoder_identity["weights"]
        if name in BUILT_IN_WEIGHTS:
            return
        # The file that `load` was given, which comes before the one beside the model.
        given = getattr(self.engine.encoder.settings, "weights", "")
        places = [] if given in BUILT_IN_WEIGHTS else [Path(given)]
        places.append(source.with_name(name))
        weights = next((path for path in places if path.is_file()), None)
        copy = target.with_name(name)  # under the name by which `load` looks it up
        # No file is copied onto itself, also not by a link.
        if weights is None or weights.resolve() == copy.resolve():
            return
        # Another model there may need them.
        if copy.exists() and not filecmp.cmp(weights, copy, shallow=False):
            raise CaptionError(
                f"{copy}: must be absent, or the weights of this model's encoder. "
                "Received: another file; save the model into another folder"
            )
        with atomic_path(copy) as temporary:
            shutil.copyfile(weights, temporary)

    @property
    def has_tags(self) -> bool:
        """Whether the model's calibration gives tags a confidence."""
        return self.calibration is not None and self.calibration.tags is not None

    def require_calibration(self, request: CaptionRequest) -> None:
        """Raise a CaptionError if tags or a minimum confidence lack a calibration."""
        wanted = {
            "tags": request.tags,
            "min_confidence": request.min_confidence is not None,
        }
        option = next((name for name, given in wanted.items() if given), None)
        if option is not None and isinstance(self.file, tuple):
            models = " + ".join(file.name for file in self.files)
            raise CaptionError(
                f"`{option}` needs one model without mirror images, whose calibration "
                f"holds. Received: {models}, averaged over models or mirror images; "
                "name one model and leave out `mirror`, or leave out this option"
            )
        # `find_calibration` returned None, yet the file has one: it is of another
        # ranking.
        is_absent = option is not None and self.calibration is None
        if is_absent and isinstance(self.file, Path) and is_calibrated(self.file):
            raise CaptionError(
                f"`{option}` needs the ranking that {self.file} was calibrated with. "
                "Received: another `reranker`, or none; leave out `reranker`, or leave "
                "out this option"
            )
        if request.tags and not self.has_tags:
            raise CaptionError(
                f"`tags` need a calibration of the model. Received: {self.file}, which "
                "has none for its tags; run `show-attend-tell calibrate`, or "
                "leave them out"
            )
        if request.min_confidence is not None and self.calibration is None:
            raise CaptionError(
                "`min_confidence` needs a calibration of the model. Received: "
                f"{self.file}, which has none; run `show-attend-tell calibrate` for "
                "this model"
            )

    @one_blas_thread
    def _caption_batch(
        self,
        photos: list[OpenedPhoto | Failure | None],
        request: CaptionRequest,
        decoding: DecodingSettings,
        total: int,
    ) -> list[Caption | Failure | None]:
        """Caption the photos of one batch; None keeps a row empty.

        Only one photo may have a region. Each photo has N samples, 1 in a beam search.
        ``total`` is the number of photos of the whole run.
        """
        results: list[Caption | Failure | None] = [
            photo if isinstance(photo, Failure) else None for photo in photos
        ]
        opened = {k: x for k, x in enumerate(photos) if isinstance(x, OpenedPhoto)}
        if not opened:
            return results
        side = self.engine.side
        N = request.samples if decoding.method == "sample" else 1
        box = None
        shares = None
        if request.region is not None:
            (photo,) = opened.values()
            box = region_in_view(request.region, photo.size, side, self.engine.resize)
            shares = cell_shares(box, self.engine.grid)  # (L,)
            shares = np.repeat(shares[None], N, axis=0)  # (L,) -> (N, L)
        # Rows of failures and of photos that are done stay black.
        squares = np.zeros((len(photos), side, side, 3), np.uint8)
        for k, photo in opened.items():
            squares[k] = photo.square
        # Once for all samples of a photo.
        features = self.engine.encode(squares, total)  # (B, S, S, 3) -> (B, L, D)
        hypotheses = self.engine.generator.generate(
            np.repeat(features, N, axis=0),  # (B, L, D) -> (B N, L, D)
            dataclasses.replace(decoding, batch_size=decoding.batch_size * N),
            [seed for x in squares for seed in photo_seeds(decoding.seed, x, N)],
            shares,
            photos=total,
        )
        for k, photo in opened.items():
            if decoding.method == "sample":
                # The rows of a photo's samples follow each other, (B N, 1, ...).
                samples = slice(k * N, (k + 1) * N)
                own = distinct_samples(_rows(hypotheses, samples))
            else:
                own = _rows(hypotheses, k)
            results[k] = self._result(photo, features[k], own, decoding, box, request)
        return results

    def _result(
        self,
        photo: OpenedPhoto,
        features: np.ndarray,
        hypotheses: Hypotheses,
        decoding: DecodingSettings,
        region: Box | None,
        request: CaptionRequest,
    ) -> Caption:
        """Build the caption of a photo from features (L, D), hypotheses (W, ...)."""
        region_words = None
        if region is not None:
            region_words = decoding.words_from_region
        confidence = None
        tags = None
        # The statistics are those of whole photos.
        if self.calibration is not None and region is None:
            # Photo by photo, since photos differ in their number of distinct samples.
            (judgement,) = self.calibration.judge(
                features[None],  # (L, D) -> (1, L, D)
                _rows(hypotheses, None),  # (W, ...) -> (1, W, ...)
                self.engine.vocabulary,
            )
            confidence = judgement.confidence
            if request.tags:
                threshold = request.tag_threshold
                tags = tuple(x for x in judgement.tags if x.confidence >= threshold)
        return caption_from_hypotheses(
            hypotheses,
            self.engine.vocabulary,
            self.engine.grid,
            photo,
            region,
            region_words,
            confidence,
            tags,
        )


def _rows(hypotheses: Hypotheses, index: int | slice | None) -> Hypotheses:
    """Return hypotheses of some photos; None adds an axis."""
    return hypotheses.map(lambda field: field[index])


def load_requested(request: CaptionRequest) -> CaptioningPipeline:
    """Load the models of a request, see :func:`load`."""
    models = request.models or (DEFAULT,)
    return load(
        models[0] if len(models) == 1 else models,
        request.encoder_weights,
        mirror=request.mirror,
        reranker=request.reranker,
        engine=request.engine,
    )


def load(
    model: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = DEFAULT,
    encoder_weights: str | os.PathLike[str] | None = None,
    runs: str | os.PathLike[str] = "experiments/runs",
    mirror: bool = False,
    reranker: str | os.PathLike[str] | None = None,
    engine: str | None = None,
) -> CaptioningPipeline:
    """Load a trained captioner, or an ensemble of several, and build its encoder.

    Args:
        model: a ``.safetensors`` file, the folder of a run, an experiment's name, or
            ``shipped``, the default, or ``shipped-lstm`` in the package; several are
            averaged, see :mod:`reference.generator`.
        encoder_weights: a file, or a name of ``EncoderSettings.weights``; by default
            the weights that the model was trained with. If they came from a file, it
            is looked up in the folder of the model. The packaged weights of VGG16 and
            the weights that they are rounded from may replace each other.
        runs: folder in which names of runs are looked up.
        mirror: whether to average over photos and their mirror images.
        reranker: file by which hypotheses are ranked too, ``shipped`` for that of the
            default model, or ``none``; by default the reranker in the file of a single
            model.
        engine: see :func:`inference.engine.load_engine`.

    Raises:
        CaptionError: the encoder's weights are absent, or are not those the model was
            trained with.
        ModelFileError: a file is absent, damaged, or of another model or kind; or the
            encoder's weights cannot be loaded; or the calibration of the model is
            damaged.
        SetupError: `model` is omitted, and the package has no model.
    """
    names = [model] if isinstance(model, str | os.PathLike) else list(model)
    files = [model_path(os.fspath(name), Path(runs)) for name in names]
    ranked_by = reranker_file(reranker)
    engine_named = functools.partial(
        load_engine,
        files,
        None if encoder_weights is None else os.fspath(encoder_weights),
        mirror,
        ranked_by,
    )
    loaded = engine_named(engine)
    # A calibration holds for the captions of one model, without a mirror image.
    alone = len(files) == 1 and not mirror
    calibration = find_calibration(loaded.generator, files[0]) if alone else None
    # Another process may have another working folder.
    absolute = [
        name if name in NAMES else os.path.abspath(path)
        for name, path in zip(names, files, strict=True)
    ]
    reload = functools.partial(
        load,
        absolute[0] if alone else absolute,
        _absolute(encoder_weights),
        mirror=mirror,
        reranker=_absolute(ranked_by),
        engine=engine,
    )
    return CaptioningPipeline(
        loaded,
        file=files[0] if alone else tuple(files),
        calibration=calibration,
        load_keras=None
        if loaded.is_keras
        else functools.partial(engine_named, "keras"),
        reload=reload,
    )


def _absolute(file: str | os.PathLike[str] | None) -> str | None:
    """Return the absolute path of a file; ``none`` and names of weights as they are."""
    if file is None:
        return None
    return os.path.abspath(file) if os.path.exists(file) else os.fspath(file)


@functools.cache
def _default_pipeline() -> CaptioningPipeline:
    return load()


def caption(photo: Photo, **options: Unpack[CaptionOptions]) -> Caption:
    """Return the caption of a photo by the model in the package, which is loaded once.

    Arguments, results and errors are those of :meth:`CaptioningPipeline.caption`.
    """
    return _default_pipeline().caption(photo, **options)
