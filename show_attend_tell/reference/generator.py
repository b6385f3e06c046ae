"""Compose captioners, mirror images and a reranker, and caption with them.

The probability of a word is the mean over M members and V views of the photo::

    p(y_t | y_<t) = 1 / (M V) sum_m sum_v p_m(y_t | a_v, y_<t)

V is 1, or 2 with the mirrored photo. One search runs over the mean: every member reads
the words of each hypothesis. Attention weights and gates are means too, of the mirrored
photo after flipping them back. A reranker orders the hypotheses.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from show_attend_tell.config.captioner import DecodingSettings
from show_attend_tell.data.encoder_identity import (
    Identity,
    accepts_packaged,
    identity_difference,
)
from show_attend_tell.data.noun_phrases import kinds_of
from show_attend_tell.data.vocabulary import END, PAD, START, UNKNOWN
from show_attend_tell.reference.beam import (
    Records,
    Rules,
    beam_search,
    greedy,
    log_softmax,
    sample,
)
from show_attend_tell.reference.captioner import Captioner
from show_attend_tell.reference.decoder import Choose, State
from show_attend_tell.reference.hypotheses import Hypotheses, repeated_nouns_last
from show_attend_tell.reference.lstm import (
    argmax_location,
    region_bias,
    sampled_location,
)
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.reference.parallel import each
from show_attend_tell.reference.reranker import Reranker, find_reranker
from show_attend_tell.runtime.errors import CaptionError, ConfigError, ModelFileError

# Of one photo: an integer, a tuple of integers, or a seed that pipelines derive.
Seed: TypeAlias = int | np.integer[Any] | tuple[int, ...] | np.random.SeedSequence


class Generator:
    """Generate captions from the annotations of photos.

    Attributes:
        members: the captioners.
        mirror: whether the annotations include mirror images.
        reranker: the Reranker, or None.
        vocabulary, grid, annotation_width: the same for all members.

    Args:
        members: captioners with one vocabulary and one encoder.
        mirror: whether to average over mirrored photos too.
        reranker: a Reranker fitted to the members' vocabulary and encoder; None keeps
            the order of the search.
        names: a name of each member, for messages; by default its number.
        must_rank: whether to refuse a search of one hypothesis, which a reranker
            cannot rank; otherwise the caption is returned as it is.

    Raises:
        ModelFileError: there is no member, or a member or the reranker has another
            vocabulary or encoder.
    """

    def __init__(
        self,
        members: Sequence[Captioner],
        mirror: bool = False,
        reranker: Reranker | None = None,
        names: Sequence[object] | None = None,
        must_rank: bool = True,
    ):
        names = names or [f"member {number + 1}" for number in range(len(members))]
        if not members:
            raise ModelFileError("`members` must not be empty; pass a captioner")
        self.members = tuple(members)
        self.mirror = mirror
        self.reranker = reranker
        self.must_rank = must_rank
        first = self.members[0]
        self.vocabulary = first.vocabulary
        self.grid = first.grid
        self.annotation_width = first.annotation_width
        for name, member in zip(names, self.members, strict=True):
            if difference := self._difference(member):
                raise ModelFileError(
                    f"{name}: the models of an ensemble must have one vocabulary and "
                    f"one encoder. Received: {difference} than {names[0]}; train both "
                    "on the same prepared data"
                )
        if reranker is not None:
            self._require_fitted(reranker)

    def _difference(self, member: Captioner) -> str | None:
        if member.vocabulary.words != self.vocabulary.words:
            return "another vocabulary"
        first = self.members[0]
        if difference := identity_difference(
            first.encoder_identity, member.encoder_identity, either=True
        ):
            return f"another encoder, {difference},"
        shapes = (self.grid, self.annotation_width)
        if (member.grid, member.annotation_width) != shapes:
            return "other annotations"
        return None

    def _require_fitted(self, reranker: Reranker) -> None:
        """Raise a ModelFileError unless the reranker was fitted to these members."""
        if difference := reranker.difference(
            self.vocabulary.words, self.encoder_identity, self.annotation_width
        ):
            raise ModelFileError(
                f"{reranker.file or 'the reranker'}: must be fitted to the words and "
                f"the encoder of the model. Received: {difference}; run "
                "`show-attend-tell fit-reranker --out MODEL` with the model's file and "
                "experiment, or pass --reranker none"
            )

    @property
    def encoder_identity(self) -> Identity:
        """The encoder whose features all members accept.

        Members trained with the weights that the packaged ones round also read features
        of the packaged weights.
        """
        identities = [member.encoder_identity for member in self.members]
        # A member that does not accept the packaged weights binds all members.
        strict = (one for one in identities if not accepts_packaged(one))
        return next(strict, identities[0])

    @property
    def decoding(self) -> DecodingSettings:
        """The decoding settings saved with the first member."""
        return self.members[0].decoding

    @property
    def captioner(self) -> Captioner | None:
        """The captioner, if it alone reads the photo; None for several views."""
        return None if len(self.views()) > 1 else self.members[0]

    @property
    def selects_locations(self) -> bool:
        """Whether the context of a word can be a single location."""
        captioner = self.captioner
        return captioner is not None and captioner.settings.selects_locations

    @property
    def attends(self) -> bool:
        """Whether all members weigh the locations, which regions need."""
        return all(member.settings.attends for member in self.members)

    @property
    def weights(self) -> list[Any]:
        """The arrays or variables of all members, each once."""
        unique = {id(member): member for member in self.members}
        return [weight for member in unique.values() for weight in member.weights]

    def ranks(self, decoding: DecodingSettings) -> bool:
        """Return whether the reranker orders the hypotheses of this decoding."""
        several = decoding.method == "beam" and decoding.beam > 1
        return self.reranker is not None and several

    def reranker_file(self, decoding: DecodingSettings) -> Path | None:
        """Return the file of the reranker that orders the hypotheses, if any."""
        if self.reranker is None or not self.ranks(decoding):
            return None
        return self.reranker.file

    def views(self) -> list[tuple[Captioner, int]]:
        """Return (member, whether the photo is mirrored) for each member and view."""
        return [
            (member, flipped)
            for member in self.members
            for flipped in range(1 + self.mirror)
        ]

    def generate(
        self,
        annotations: np.ndarray,
        decoding: DecodingSettings | None = None,
        seeds: Sequence[Seed] | None = None,
        regions: np.ndarray | None = None,
        photos: int | None = None,
    ) -> Hypotheses:
        """Generate captions of photos.

        Args:
            annotations: features as stored, (N, L, D), any float type; with `mirror`
                (N, 2, L, D), of the photo and its mirror image.
            decoding: DecodingSettings; by default the first member's.
            seeds: N seeds of sampled words and locations, one for each photo, whose
                random numbers then depend on no other photo; by default
                ``decoding.seed`` seeds all photos together. The hypotheses of a beam
                share the noise of their photo.
            regions: (N, L) in [0, 1], the part of each photo from which its caption is
                written, see :func:`reference.lstm.region_bias`, or None. The reranker
                reads the region alone.
            photos: number of photos of the whole run, see :meth:`search`.

        Returns:
            Hypotheses of NumPy arrays, N rows, best first. ``scores`` decide the order,
            but in a beam search captions that repeat a noun come after the others, see
            :mod:`data.noun_phrases`.

        Raises:
            ConfigError: several views select locations, or a reranker must rank one
                hypothesis.
            CaptionError: there are regions, and a member without attention.
            ValueError: the shape of annotations or regions, or the number of seeds, is
                wrong, or an annotation is not finite.
        """
        decoding = decoding or self.decoding
        self._require_shapes(annotations, seeds, regions)
        _require_finite(annotations)
        self._require_possible(decoding)
        if regions is not None and not self.attends:
            raise CaptionError(
                "`region` needs models with attention. Received: a model of attention "
                "= 'mean' or 'none'; caption the whole photo, or name another model"
            )
        N = len(annotations)
        T = decoding.max_words
        noise = uniform_noise(decoding.seed if seeds is None else seeds, N, T)
        hypotheses = self.search(annotations, decoding, noise, regions, photos)
        if self.reranker is not None and self.ranks(decoding):
            unmirrored = annotations[:, 0] if self.mirror else annotations
            hypotheses = self.reranker.rank(
                hypotheses, unmirrored, decoding.rerank_weight, regions
            )
        # After the reranker, which would undo it.
        if decoding.method == "beam":
            hypotheses = repeated_nouns_last(hypotheses, self._kinds)
        return hypotheses

    @functools.cached_property
    def _kinds(self) -> np.ndarray:
        """The kinds of the vocabulary's words, (K,)."""
        return kinds_of(self.vocabulary.words)

    def _require_shapes(
        self,
        annotations: np.ndarray,
        seeds: Sequence[Seed] | None,
        regions: np.ndarray | None,
    ) -> None:
        L = self.grid[0] * self.grid[1]
        shape = np.shape(annotations)
        sizes = (*([2] if self.mirror else []), L, self.annotation_width)
        if shape[1:] != sizes or not shape or not shape[0]:
            raise ValueError(
                f"`annotations` must be (N, {', '.join(map(str, sizes))}) with N > 0. "
                f"Received: shape {shape}; pass the features of the model's encoder"
            )
        if seeds is not None and len(seeds) != shape[0]:
            raise ValueError(
                f"`seeds` must be one for each of the {shape[0]} photos. "
                f"Received: {len(seeds)} of them; pass one for each photo"
            )
        if regions is not None and np.shape(regions) != (shape[0], L):
            raise ValueError(
                f"`regions` must be ({shape[0]}, {L}), a share of each location. "
                f"Received: shape {np.shape(regions)}; use data.region.cell_shares"
            )

    def _require_possible(self, decoding: DecodingSettings) -> None:
        if decoding.locations != "expected":
            if self.captioner is None:
                raise ConfigError(
                    "`locations` must be 'expected' for several models or mirrored "
                    f"photos. Received: {decoding.locations!r}; caption with one model"
                )
            if not self.selects_locations:
                raise ConfigError(
                    "`locations` must be 'expected' with the Transformer decoder or "
                    f"without attention. Received: {decoding.locations!r}; caption "
                    "with another model, such as shipped-lstm"
                )
        if self.reranker is not None and self.must_rank and not self.ranks(decoding):
            raise ConfigError(
                "`reranker` needs a beam of several hypotheses. Received: method = "
                f"{decoding.method!r}, beam = {decoding.beam}; choose a wider beam, or "
                "no reranker"
            )

    def search(
        self,
        annotations: np.ndarray,
        decoding: DecodingSettings,
        noise: np.ndarray,
        regions: np.ndarray | None = None,
        photos: int | None = None,
    ) -> Hypotheses:
        """Search the captions of photos.

        Args:
            annotations: see :meth:`generate`.
            decoding: DecodingSettings.
            noise: uniform numbers in [0, 1) for words and for locations, (N, 2, T).
            regions: see :meth:`generate`.
            photos: not used; an engine that compiles its search prepares for them.
        """
        biases: Sequence[None] | np.ndarray = [None] * len(annotations)
        if regions is not None:
            biases = region_bias(regions, decoding.region_strength)  # (N, L)
        search = functools.partial(self._search_photo, decoding)
        captions = each(search, annotations, noise, biases)
        # N of (W, ...) -> (N, W, ...)
        return Hypotheses(*map(np.stack, zip(*captions, strict=True)))

    def _search_photo(
        self,
        decoding: DecodingSettings,
        features: np.ndarray,
        noise: np.ndarray,
        bias: np.ndarray | None,
    ) -> Hypotheses:
        """Search the captions of one photo, (L, D) or (2, L, D), with noise (2, T)."""
        views = features if self.mirror else features[None]  # (V, L, D)
        readers = [
            _Reader(member, bool(flipped), member.read_photo(views[flipped]))
            for member, flipped in self.views()
        ]
        start = [reader.member.start(reader.photo) for reader in readers]
        columns = self.grid[1]
        word_noise, location_noise = noise  # (T,) each

        def step(
            t: int, words: np.ndarray, state: list[State]
        ) -> tuple[np.ndarray, list[State], Records]:
            # One number for all hypotheses of a beam at step t.
            choose = _selection(decoding.locations, location_noise[t])
            log_probs = []
            states = []
            alphas = []
            betas = []
            for reader, own_state in zip(readers, state, strict=True):
                own_bias: np.ndarray | float = 0
                if bias is not None and t < decoding.words_from_region:
                    own_bias = bias
                    if reader.is_mirrored:
                        own_bias = flip_locations(bias, columns)
                out = reader.member.step(
                    reader.photo, words, own_state, choose, own_bias
                )
                alpha = out.alpha  # (W, L)
                if reader.is_mirrored:
                    alpha = flip_locations(alpha, columns)
                log_probs.append(log_softmax(out.logits))  # (W, K)
                states.append(out.state)
                alphas.append(alpha)
                betas.append(out.beta)  # (W,)
            locations = np.full(len(words), -1)
            if choose is not None:  # one reader alone, see `_require_possible`
                locations = out.context_weights.argmax(axis=-1)
            extras = {
                "alpha": _mean(alphas),
                "beta": _mean(betas),
                "locations": locations,
            }
            return log_mean_probabilities(log_probs), states, extras

        unknown = () if decoding.allow_unknown else (UNKNOWN,)
        rules = Rules(START, END, PAD, forbidden=(PAD, START, *unknown))
        T = decoding.max_words
        if decoding.method == "sample":
            temperature = decoding.temperature
            noise = word_noise[None]  # (1, T): one caption
            return sample(step, start, rules, noise, temperature=temperature)
        if decoding.method == "greedy":
            return greedy(step, start, rules, max_words=T)
        return beam_search(
            step,
            start,
            rules,
            beam=decoding.beam,
            max_words=T,
            length_normalisation=decoding.length_normalisation,
        )


def _require_finite(annotations: np.ndarray) -> None:
    """Raise a ValueError for NaN or infinity, with which no word is the most probable.

    Without it one engine would return empty captions, and the other none.
    """
    # Photo by photo, as the answers for all of them would need half of their memory.
    for number, photo in enumerate(annotations):
        if not np.isfinite(np.asarray(photo)).all():
            raise ValueError(
                f"`annotations` must be finite. Received: NaN or infinity for photo "
                f"{number}, from 0; correct the encoder that computed them"
            )


class _Reader(NamedTuple):
    """A member that reads a photo, or its mirror image."""

    member: Captioner
    is_mirrored: bool
    photo: Any  # from `Captioner.read_photo`


def _selection(locations: str, u: float) -> Choose | None:
    """Return alpha -> context weights of one step; None averages by alpha."""
    if locations == "sampled":
        return lambda alpha: sampled_location(alpha, u)
    return argmax_location if locations == "likeliest" else None


def uniform_noise(
    seed: Seed | Sequence[Seed], photos: int, max_words: int
) -> np.ndarray:
    """Return uniform numbers in [0, 1), for words and for locations: (N, 2, T).

    A photo's numbers do not depend on how many photos follow it, and with N seeds on no
    other photo.

    Args:
        seed: one seed of all photos, or N seeds.
        photos: N.
        max_words: T.
    """
    if isinstance(seed, int | np.integer | np.random.SeedSequence):
        # Photo by photo: more photos append numbers and change none.
        return np.random.default_rng(seed).random((photos, 2, max_words), np.float32)
    rngs = [np.random.default_rng(number) for number in seed]
    return np.stack([rng.random((2, max_words), np.float32) for rng in rngs])


def log_mean_probabilities(log_probs: Sequence[np.ndarray]) -> np.ndarray:
    """Return the logarithm of the mean of probabilities given as logarithms."""
    if len(log_probs) == 1:
        return log_probs[0]
    # exp(log p) of unlikely words would underflow to 0. No log p is -inf here, where
    # -inf - -inf would be NaN: the search masks forbidden words after this step.
    top: np.ndarray = np.max(log_probs, axis=0)  # (M V, W, K) -> (W, K)
    mean = np.mean(np.exp(log_probs - top), axis=0)
    log_mean: np.ndarray = top + np.log(mean)
    return log_mean


def flip_locations(alpha: np.ndarray, columns: int) -> np.ndarray:
    """Return values (..., L) of a mirrored photo's locations as the photo's."""
    grid = alpha.reshape(*alpha.shape[:-1], -1, columns)  # (..., rows, columns)
    return grid[..., ::-1].reshape(alpha.shape)


def _mean(values: Sequence[np.ndarray]) -> np.ndarray:
    mean: np.ndarray = sum(values[1:], values[0]) / len(values)
    return mean


def load_generator(
    files: Sequence[str | Path],
    mirror: bool = False,
    reranker: str | Path | None = None,
    read: Callable[[str | Path], Captioner] = read_captioner,
    generator: type[Generator] = Generator,
) -> Generator:
    """Read the captioners that generate together, and their reranker.

    Args:
        files: one model file or several.
        mirror: whether to average over photos and their mirror images.
        reranker: see :func:`reference.reranker.find_reranker`. A search of one
            hypothesis is an error if a reranker is named, and not ranked otherwise.
        read: reads a captioner of the engine from its file.
        generator: the engine's class.

    Raises:
        ModelFileError: a file is absent, damaged or of another kind, or the files
            differ in vocabulary or encoder.
    """
    with ThreadPoolExecutor(1) as pool:  # two parts of a file, side by side
        ranking = pool.submit(find_reranker, reranker, files)
        members = [read(file) for file in files]
    # A reranker that was named must rank; the one in the model's file may.
    must_rank = reranker is not None
    return generator(members, mirror, ranking.result(), files, must_rank=must_rank)
