"""Captions of photos, from a model's file and the encoder's weights alone."""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.config.settings import DecodingSettings, EncoderSettings
from show_attend_tell.data.encoder_identity import identity_difference, is_accepted
from show_attend_tell.decoding import Hypotheses
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import Alternative, Caption, Failure
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import CaptionError, PhotoError

BATCH = 16  # photos in memory and in the encoder at once

_NAMED_WEIGHTS = ("imagenet", "none", "scenes")


def caption_paths(
    model: str | Path,
    paths: Iterable[str | Path],
    encoder_weights: str | Path | None = None,
    beam: int | None = None,
    locations: str | None = None,
    seed: int | None = None,
) -> Iterator[Caption | Failure]:
    """Load a model and its encoder, then write the captions of photos.

    Args:
        model: a ``.keras`` file.
        paths: photos, and folders whose photos are taken, nested ones too.
        encoder_weights: as in :func:`load`.
        beam: hypotheses per photo, 1 is greedy; by default the model's.
        locations: what a word is written from, ``expected``, ``likeliest`` or
            ``sampled``, see ``DecodingSettings``; by default the model's.
        seed: of the locations ``sampled``; by default the model's. What is drawn for
            a photo depends on the seed and the photo alone.

    Returns:
        As :func:`caption_photos`; model and encoder are loaded at once.

    Raises:
        CaptionError, ModelFileError, EncoderError: see :func:`load`.
    """
    captioner, encoder = load(model, encoder_weights)
    decoding = decoding_of(captioner, beam, locations, seed)
    return caption_photos(captioner, encoder, paths, decoding)


def load(
    model: str | Path, encoder_weights: str | Path | None = None
) -> tuple[Captioner, Encoder]:
    """Load a captioner and make the encoder whose annotations it reads.

    Args:
        model: a ``.keras`` file.
        encoder_weights: a file, or ``imagenet``, ``scenes`` or ``none``; by default
            what the model was trained with, looked for beside the model if a file.

    Raises:
        CaptionError: the encoder's weights are not at hand or others than the model
            was trained with.
        ModelFileError: the model's file is absent, damaged or of another model.
        EncoderError: the encoder's weights cannot be loaded.
    """
    captioner = load_captioner(model)
    wanted = captioner.encoder_identity
    known = {field.name for field in dataclasses.fields(EncoderSettings)}
    settings = {name: value for name, value in wanted.items() if name in known}
    if not {"network", "layer", "weights", "image_size", "resize"} <= settings.keys():
        raise CaptionError(
            f"{model}: does not tell which encoder it reads; save the model with "
            "encoder_identity=Encoder.identity()"
        )
    weights = encoder_weights or _find_weights(Path(model), wanted)
    encoder = Encoder(EncoderSettings(**settings | {"weights": str(weights)}))
    found = encoder.identity()
    if is_accepted(wanted, weights):
        found["weights_digest"] = wanted["weights_digest"]
    difference = identity_difference(wanted, found)
    if difference:
        raise CaptionError(
            f"{model}: trained with the {wanted['network']} weights "
            f"{wanted['weights']!r}. Received: {str(weights)!r}, another encoder "
            f"({difference}); name the right file with --encoder-weights"
        )
    return captioner, encoder


def _find_weights(model: Path, wanted: dict) -> str | Path:
    """Return named weights as they are, of a file where it lies beside the model.

    Otherwise a name that the model accepts instead of the file, if there is one.
    """
    name = wanted["weights"]
    if name in _NAMED_WEIGHTS:
        return name
    beside = model.with_name(name)
    if beside.is_file():
        return beside
    for accepted in wanted.get("accepts", {}):
        return accepted
    raise CaptionError(
        f"{model}: needs the encoder's weights {name!r}, which do not lie beside "
        "it; name the file with --encoder-weights"
    )


def decoding_of(
    captioner: Captioner,
    beam: int | None = None,
    locations: str | None = None,
    seed: int | None = None,
) -> DecodingSettings:
    """Return the settings saved with a model, with what is given in their place.

    Raises:
        CaptionError: the saved settings or those given are out of range, or a seed is
            given that changes nothing.
    """
    given = {"beam": beam, "locations": locations, "seed": seed}
    values = {
        **dataclasses.asdict(captioner.decoding),
        **{name: value for name, value in given.items() if value is not None},
    }
    try:
        settings = DecodingSettings(**values)
    except ValueError:
        raise CaptionError(
            "the model's decoding settings with those given must fit "
            "DecodingSettings, `locations` be expected, likeliest or sampled, "
            f"`beam` at least 1 and `seed` at least 0. Received: {values}"
        ) from None
    if seed is not None and settings.locations != "sampled":
        raise CaptionError(
            f"a seed changes nothing where locations are {settings.locations!r}, not "
            f"'sampled'; ask for sampled ones or leave it out. Received: seed {seed}"
        )
    return settings


def caption_photos(
    captioner: Captioner,
    encoder: Encoder,
    paths: Iterable[str | Path],
    decoding: DecodingSettings | None = None,
) -> Iterator[Caption | Failure]:
    """Write the captions of photos, in batches.

    Args:
        captioner: the model.
        encoder: the one it was trained with, see :func:`load`.
        paths: photos, and folders whose photos are taken, nested ones too.
        decoding: by default the model's own.

    Yields:
        A Caption for each photo, or a Failure where there is none to read, in the
        order of ``paths``, folders sorted by name.
    """
    found = list(find_photos(paths))
    yield from caption_found(captioner, encoder, found, decoding)


def caption_found(
    captioner: Captioner,
    encoder: Encoder,
    found: Sequence[Path | Failure],
    decoding: DecodingSettings | None = None,
) -> Iterator[Caption | Failure]:
    """Write the captions of photos that :func:`find_photos` found; see there."""
    decoding = decoding or decoding_of(captioner)
    photos = sum(not isinstance(one, Failure) for one in found)
    batch_size = max(1, min(BATCH, photos))  # nothing is padded for a single photo
    for start in range(0, len(found), batch_size):
        entries = [_look(encoder, one) for one in found[start : start + batch_size]]
        squares = {k: one for k, one in enumerate(entries) if _is_seen(one)}
        if squares:
            pixels = [square for _, square, _ in squares.values()]
            hypotheses = _write(captioner, encoder, pixels, decoding, batch_size)
            for row, (k, seen) in enumerate(squares.items()):
                photo = Hypotheses(*(field[row] for field in hypotheses))
                entries[k] = read_hypotheses(captioner, photo, *seen)
        yield from entries


def _look(encoder: Encoder, photo: Path | Failure) -> tuple | Failure:
    """Return (path, square that the network sees, view), or why there is none."""
    if isinstance(photo, Failure):
        return photo
    try:
        image = encoder.load_photo(photo)
        return photo, encoder.preprocess(image), encoder.view(image)
    except PhotoError as error:
        return Failure(photo, str(error))


def _is_seen(entry: tuple | Failure) -> bool:
    return not isinstance(entry, Failure)


def _write(
    captioner: Captioner,
    encoder: Encoder,
    squares: Sequence[np.ndarray],
    decoding: DecodingSettings,
    batch_size: int,
) -> Hypotheses:
    return captioner.generate(
        encoder.encode(np.stack(squares)),
        dataclasses.replace(decoding, batch_size=batch_size),
        seeds=[_own_seed(decoding.seed, square) for square in squares],
    )


def _own_seed(seed: int, square: np.ndarray) -> tuple[int, int]:
    """Return a photo's own seed: what is drawn for it depends on no other photo."""
    return seed, zlib.crc32(square.tobytes())


def read_hypotheses(
    captioner: Captioner,
    photo: Hypotheses,
    path: Path,
    square: np.ndarray,
    view: np.ndarray | None = None,
) -> Caption:
    """Turn the hypotheses of one photo, (W, ...) each, best first, into its caption."""
    best = _sentence(captioner, photo, 0)
    T = len(best["words"])
    others = [w for w in range(1, len(photo.lengths)) if photo.lengths[w] > 0]
    return Caption(
        path=path,
        **best,
        end_log_prob=float(photo.word_log_probs[0, T]) if photo.finished[0] else None,
        alternatives=tuple(
            Alternative(**_sentence(captioner, photo, w)) for w in others
        ),
        square=square,
        view=view,
    )


def _looked_at(locations: np.ndarray) -> np.ndarray | None:
    """Return the one location of each word, None where all were averaged."""
    return locations if len(locations) and (locations >= 0).all() else None


def _sentence(captioner: Captioner, photo: Hypotheses, w: int) -> dict:
    """Return what a caption and an alternative both tell, of hypothesis ``w``."""
    words = captioner.vocabulary.decode(photo.tokens[w].tolist())
    T = len(words)
    return {
        "text": " ".join(words),
        "words": tuple(words),
        "log_prob": float(photo.log_probs[w]),
        "score": float(photo.scores[w]),
        "word_log_probs": photo.word_log_probs[w, :T],
        "attention": photo.alpha[w, :T].reshape(T, *captioner.grid),
        "beta": photo.beta[w, :T],
        "locations": _looked_at(photo.locations[w, :T]),
    }
