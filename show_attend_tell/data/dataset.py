"""Batches of captions and their photos' features, for training.

The order of an epoch is a function of (seed, epoch) alone, so training can stop
anywhere and go on as if it had not. Every caption is seen once an epoch, in batches of
captions of similar length; only a few padded lengths occur, so that few graphs are
compiled.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from show_attend_tell.data.features import FeatureReader
from show_attend_tell.data.vocabulary import END, PAD, START, Vocabulary
from show_attend_tell.runtime.gc_pause import uncollected


class Captions(NamedTuple):
    """Encoded captions, N in all, in three arrays: millions of words take little room.

    ``captions.words(i)`` are the ids of caption i, without special tokens.
    """

    photos: np.ndarray  # (N,) position of the caption's photo in the photo list
    ids: np.ndarray  # of the words of all captions, one caption behind the other
    starts: np.ndarray  # (N + 1,) where each caption begins in `ids`

    @classmethod
    def join(cls, photos: Sequence[int], captions: Iterable[Sequence[int]]):
        """Return the captions of photos, given each one's ids."""
        captions = list(captions)
        starts = np.zeros(len(captions) + 1, np.int64)
        np.cumsum([len(ids) for ids in captions], out=starts[1:])
        ids = np.fromiter(itertools.chain.from_iterable(captions), np.int32)
        return cls(np.asarray(photos, np.int64), ids, starts)

    @property
    def lengths(self) -> np.ndarray:
        """Words of each caption, (N,)."""
        return np.diff(self.starts)

    def words(self, caption: int) -> np.ndarray:
        """Return the word ids of one caption."""
        return self.ids[self.starts[caption] : self.starts[caption + 1]]


def padded_length(length: int) -> int:
    """Return the number of steps a batch of captions up to `length` is padded to.

    Even numbers from 8 to 16, multiples of 4 to 24, of 16 beyond. Each length takes
    some seconds to compile, which rare ones do not bring in again: Flickr8k has 9
    graphs, and 0.9 % more steps than with 11, for all even numbers and multiples of 4.
    """
    length = max(length, 8)
    for limit, multiple in ((16, 2), (24, 4)):
        if length <= limit:
            return -(-length // multiple) * multiple
    return -(-length // 16) * 16


@uncollected()
def encode(
    captions: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary, max_words: int
) -> Captions:
    """Encode the tokenized captions of each photo.

    Args:
        captions: for each photo its captions, each a sequence of words.
        vocabulary: words to ids.
        max_words: longer captions are cut.

    Returns:
        All captions that hold a word, in order.
    """
    photos, tokens = [], []
    for position, sentences in enumerate(captions):
        for words in sentences:
            if words:
                photos.append(position)
                tokens.append(vocabulary.encode(words[:max_words]))
    return Captions.join(photos, tokens)


def epoch_order(
    lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Deal captions into batches of similar length, in random order.

    Args:
        lengths: words of each caption, (N,).
        batch_size: captions in a batch; the last batch may hold fewer.
        seed: of the experiment.
        epoch: from 0.

    Returns:
        Batches of caption positions; together every position once.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def read_views(
    readers: Sequence[FeatureReader],
    rows: np.ndarray,
    rng: np.random.Generator,
    batch_size: int,
) -> np.ndarray:
    """Read each photo from one of the readers, drawn evenly.

    Args:
        readers: one, or two where photos are mirrored with probability 1/2.
        rows: of the photos, (N,), N at most `batch_size`.
        rng: draws the reader.
        batch_size: rows of the result; those beyond N are zero.

    Returns:
        (batch_size, L, D) float16.
    """
    _, locations, width = readers[0].shape
    features = np.zeros((batch_size, locations, width), np.float16)
    side = rng.integers(len(readers), size=len(rows))
    for which, reader in enumerate(readers):
        (own,) = np.nonzero(side == which)
        if len(own):
            features[own] = reader.read(rows[own])
    return features


class CaptionBatches:
    """Training batches over feature files.

    Args:
        captions: encoded captions.
        rows: row in the feature files of each photo, (photos,).
        readers: one reader, or two when mirrored photos are drawn with probability
            1/2; both hold the same photos in the same rows.
        batch_size: captions per batch.
        seed: of the order and of the mirroring.
    """

    def __init__(
        self,
        captions: Captions,
        rows: np.ndarray,
        readers: Sequence[FeatureReader],
        batch_size: int,
        seed: int,
    ):
        self.captions = captions
        self.rows = np.asarray(rows)
        self.readers = tuple(readers)
        self.batch_size = batch_size
        self.seed = seed
        self.lengths = captions.lengths

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-len(self.lengths) // self.batch_size)

    @property
    def padded_lengths(self) -> list[int]:
        """Every T that an epoch can hold, rising."""
        return sorted({padded_length(n + 1) for n in set(self.lengths.tolist())})

    def batches(self, epoch: int, start: int = 0) -> Iterator[tuple]:
        """Yield (annotations, inputs, targets) of an epoch from batch `start` on.

        annotations (B, L, D) float16; inputs y_0.. from <start> and targets up to
        <end>, (B, T) int32. A short batch is filled up with captions of padding.
        """
        order = epoch_order(self.lengths, self.batch_size, self.seed, epoch)
        for number in range(start, len(order)):
            rng = np.random.default_rng([self.seed, epoch, number])
            yield self._batch(order[number], rng)

    def _batch(self, chosen: np.ndarray, rng: np.random.Generator) -> tuple:
        length = padded_length(int(self.lengths[chosen].max()) + 1)
        inputs = np.full((self.batch_size, length), PAD, np.int32)
        targets = np.full((self.batch_size, length), PAD, np.int32)
        for k, index in enumerate(chosen):
            ids = self.captions.words(index)
            inputs[k, 0], inputs[k, 1 : len(ids) + 1] = START, ids
            targets[k, : len(ids)], targets[k, len(ids)] = ids, END
        rows = self.rows[self.captions.photos[chosen]]
        return read_views(self.readers, rows, rng, self.batch_size), inputs, targets

    def dataset(self, epoch: int, start: int = 0) -> tf.data.Dataset:
        """Return the epoch as tf.data, read ahead of need by a thread."""
        _, locations, width = self.readers[0].shape
        tokens = tf.TensorSpec((self.batch_size, None), tf.int32)
        spec = tf.TensorSpec((self.batch_size, locations, width), tf.float16)
        x_spec = {"annotations": spec, "tokens": tokens}
        dataset = tf.data.Dataset.from_generator(
            lambda: self._pairs(epoch, start), output_signature=(x_spec, tokens)
        )
        # The tuner has nothing to tune here, and with it the end of an epoch waited,
        # idle, up to 40 s before the next began; without it one second.
        options = tf.data.Options()
        options.autotune.enabled = False
        return dataset.prefetch(4).with_options(options)

    def _pairs(self, epoch: int, start: int) -> Iterator[tuple]:
        for annotations, inputs, targets in self.batches(epoch, start):
            yield {"annotations": annotations, "tokens": inputs}, targets


def measure_deviation(
    reader: FeatureReader, rows: np.ndarray, seed: int, photos: int = 512
) -> float:
    """Return the root mean square deviation of annotations from their mean.

    Args:
        reader: of the training photos.
        rows: theirs.
        seed: of the choice of photos.
        photos: how many to look at, at most.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.asarray(rows))[:photos]
    total = squares = count = 0.0
    for start in range(0, len(chosen), 64):
        values = reader.read(chosen[start : start + 64]).astype(np.float64)
        total, squares = total + values.sum(), squares + np.square(values).sum()
        count += values.size
    return float(np.sqrt(squares / count - (total / count) ** 2))
