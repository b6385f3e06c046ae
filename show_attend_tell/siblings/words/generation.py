"""Find the most probable words of crops with the searches of :mod:`models.decoding`."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from keras import ops
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from show_attend_tell.models.decoding.beam import beam_search
from show_attend_tell.models.decoding.sampling import greedy
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.runtime.backend import compiled
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.siblings.words.data import (
    CHARACTERS,
    END,
    MAX_LENGTH,
    PAD,
    START,
    STEPS,
    encode_words,
    fold,
    normalise,
    read_word_file,
    tokens_of,
)
from show_attend_tell.siblings.words.model import (
    Reader,
    shifted,
    word_losses,
)

BATCH = 64  # crops per search
_RULES = {  # of a search, in which characters take the place of words
    "start_id": START,
    "end_id": END,
    "pad_id": PAD,
    "forbidden": (PAD, START),
    "max_words": STEPS,
}


class Lexicon:
    """The words that crops may show.

    Attributes:
        words: the words, in small letters.
        digest: a digest of them.

    Args:
        words: the words, in any case.
        characters: the alphabet of the reader.

    Raises:
        DataError: a word is too long or has unknown characters, or there are no words.
    """

    def __init__(self, words: Sequence[str], characters: str = CHARACTERS):
        self.words = tuple(dict.fromkeys(fold(word, characters) for word in words))
        if not self.words:
            raise DataError("`lexicon` must have a word or more. Received: none")
        self.digest = hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    @classmethod
    def load(cls, path: Path, characters: str = CHARACTERS) -> Self:
        """Load a text file, see :func:`words.data.read_word_file`."""
        return cls(read_word_file(path, characters), characters)

    def nearest(self, word: str) -> list[str]:
        """Return the words at the smallest Levenshtein distance from a word.

        The distance is the number of characters to insert, remove or replace. The word
        may be empty.
        """
        (distances,) = cdist([word], self.words, scorer=Levenshtein.distance)
        return [self.words[k] for k in np.flatnonzero(distances == distances.min())]


class Searcher:
    """A reader with its compiled search; read crops by calling it.

    Args:
        model: the reader; its weights may change between calls.
        beam: hypotheses per crop, 1 for the most probable character at every step.
        batch: crops per search.
        lexicon: the words that crops may show; any word by default.
    """

    def __init__(
        self,
        model: Reader,
        beam: int = 1,
        batch: int = BATCH,
        lexicon: Lexicon | None = None,
    ):
        self.model = model
        self.beam = beam
        self.batch = batch
        self.lexicon = lexicon
        self._not_end = np.arange(len(tokens_of(model.characters))) != END  # (K,)
        # Not with XLA, which computes convolutions more slowly on a CPU.
        self._search = compiled(self._hypotheses, model, xla=False)
        self._score = compiled(self._log_probs, model, xla=False)

    def __call__(self, crops: np.ndarray) -> Hypotheses:
        """Read crops (N, 32, 100) uint8; return hypotheses of arrays, best first."""
        parts = []
        for first in range(0, len(crops), self.batch):
            rows = crops[first : first + self.batch]
            # A last part is filled up, because every other size is traced anew.
            best = self._search(images_of(rows, self.batch))
            parts.append([ops.convert_to_numpy(field)[: len(rows)] for field in best])
        return Hypotheses(*map(np.concatenate, zip(*parts, strict=True)))

    def log_probs(self, crop: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return log p(word | crop) of several words, (N,), in nats.

        Args:
            crop: (32, 100) uint8.
            words: their tokens, (N, 24), see :func:`words.data.encode_words`.
        """
        image = images_of(crop[None], 1)
        parts = []
        for first in range(0, len(words), self.batch):
            rows = words[first : first + self.batch]
            missing = self.batch - len(rows)
            # Filled up too; the scores of the repeated word are cut off.
            tokens = np.concatenate([rows, np.repeat(words[:1], missing, axis=0)])
            scores = self._score(image, ops.convert_to_tensor(tokens))
            parts.append(ops.convert_to_numpy(scores)[: len(rows)])
        return np.concatenate(parts)

    def nearest(
        self, crop: np.ndarray, characters: str, log_prob: float
    ) -> tuple[str, float]:
        """Return the word of the lexicon for characters that were read, and its log p.

        It is the word nearest to the characters, and among equally near words the most
        probable word. Without a lexicon it is the characters.
        """
        if self.lexicon is None:
            return characters, log_prob
        words = self.lexicon.nearest(characters)
        # The lexicon has them, and the search knows their log p.
        if words == [characters]:
            return characters, log_prob
        log_probs = self.log_probs(crop, encode_words(words, self.model.characters))
        best = int(log_probs.argmax())
        return words[best], float(log_probs[best])

    def _hypotheses(self, images):
        model = self.model
        B = ops.shape(images)[0]
        memory = model.decoder.memory(model.encoder(images))
        not_end = self._not_end

        def step(tokens, state):
            last = ops.expand_dims(ops.equal(state["t"], MAX_LENGTH), -1)  # (B, W, 1)
            logits, state, alpha = model.decoder.step(tokens, state, memory)
            log_probs = ops.log_softmax(logits)
            # Only <end> may follow the longest word; its log p stays the model's.
            log_probs = ops.where(ops.logical_and(last, not_end), -np.inf, log_probs)
            # The searches of captions stack these; a reader has no gate and samples no
            # place.
            extras = {
                "alpha": alpha,
                "beta": ops.ones_like(alpha[..., 0]),  # (B, W)
                "locations": -ops.ones_like(tokens),
            }
            return log_probs, state, extras

        state = model.decoder.start(memory)
        if self.beam == 1:
            return greedy(step, state, B, **_RULES)
        return beam_search(step, state, B, **_RULES, beam=self.beam)

    def _log_probs(self, image, targets):
        annotations = self.model.encoder(image)  # (1, ...)
        # One pass of the encoder for all words, (1, ...) -> (N, ...).
        annotations = ops.repeat(annotations, targets.shape[0], axis=0)
        outputs = self.model.teacher_force(shifted(targets), annotations)
        return -word_losses(outputs["logits"], targets)


def images_of(crops: np.ndarray, batch: int):
    """Return normalised crops as a tensor (batch, 32, 100, 1), missing ones zero."""
    images = np.zeros((batch, *crops.shape[1:], 1), np.float32)
    images[: len(crops), ..., 0] = normalise(crops)
    return ops.convert_to_tensor(images)
