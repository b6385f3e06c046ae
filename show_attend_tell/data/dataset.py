"""Batch captions with the features of their photos, for training.

The order of an epoch is a function of (seed, epoch) alone, so a resumed training equals
an uninterrupted one. Every caption occurs once an epoch, or w times if its data set has
the weight w, in batches of captions of similar length. Batches are padded to few
lengths, so that few graphs are compiled.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from show_attend_tell.data.batch_share import WHOLE_BATCH, BatchShare
from show_attend_tell.data.features import Features
from show_attend_tell.data.vocabulary import END, PAD, START, Vocabulary
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.gc_pause import uncollected
from show_attend_tell.runtime.read_ahead import read_ahead

_AHEAD = 4  # batches read ahead of training

# Annotations (B, L, D), inputs (B, T) and targets (B, T).
Batch: TypeAlias = tuple[Any, np.ndarray, np.ndarray]


class Captions(NamedTuple):
    """N encoded captions in three arrays, compact for millions of words.

    ``captions.words(i)`` are the ids of caption i, without special tokens.
    """

    photos: np.ndarray  # (N,) position of the caption's photo in the photo list
    ids: np.ndarray  # (words,) word ids of all captions, concatenated
    starts: np.ndarray  # (N + 1,) position in `ids` of each caption's first word

    @classmethod
    def join(
        cls, photos: Sequence[int], captions: Iterable[Sequence[int]]
    ) -> "Captions":
        """Concatenate captions.

        Args:
            photos: position of each caption's photo, (N,).
            captions: N sequences of word ids.
        """
        captions = list(captions)
        starts = np.zeros(len(captions) + 1, np.int64)
        np.cumsum([len(ids) for ids in captions], out=starts[1:])
        ids = np.fromiter(itertools.chain.from_iterable(captions), np.int32)
        return cls(np.asarray(photos, np.int64), ids, starts)

    @property
    def lengths(self) -> np.ndarray:
        """Number of words of each caption, (N,)."""
        return np.diff(self.starts)

    def words(self, caption: int) -> np.ndarray:
        """Return the word ids of one caption."""
        return self.ids[self.starts[caption] : self.starts[caption + 1]]


def padded_length(length: int, few: bool = False) -> int:
    """Return the number of steps to which a batch of captions is padded.

    The result is an even number from 8 to 16, a multiple of 4 up to 24, and a multiple
    of 16 beyond. Compiling a length takes seconds, which rare lengths do not amortise:
    Flickr8k has 9 graphs and 0.9 % more steps than with 11 graphs, one for every even
    number and multiple of 4.

    Args:
        length: steps of the longest caption of the batch.
        few: whether to return multiples of 12 only, for trainings so short that
            compiling takes longer than the steps it saves.
    """
    if few:
        return -(-length // 12) * 12
    length = max(length, 8)
    for limit, multiple in ((16, 2), (24, 4)):
        if length <= limit:
            return -(-length // multiple) * multiple
    return -(-length // 16) * 16


@uncollected()
def encode_captions(
    captions: Sequence[Sequence[Sequence[str]]], vocabulary: Vocabulary, max_words: int
) -> Captions:
    """Encode the tokenized captions of each photo.

    Args:
        captions: for each photo a list of captions, each a sequence of words.
        vocabulary: maps words to ids.
        max_words: longer captions are cut to this many words.

    Returns:
        All non-empty captions, in order.
    """
    photos = []
    tokens = []
    for position, sentences in enumerate(captions):
        for words in sentences:
            if words:
                photos.append(position)
                tokens.append(vocabulary.encode(words[:max_words]))
    return Captions.join(photos, tokens)


def epoch_order(
    lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Divide captions into batches of similar length, in random order.

    Args:
        lengths: number of words of each caption, (N,).
        batch_size: captions in a batch; one batch may have fewer.
        seed: seed of the experiment.
        epoch: number of the epoch, from 0.

    Returns:
        Batches of caption positions; every position is in one batch.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    # The sort is stable, so captions of one length stay in random order. Then the
    # batches are put in random order too.
    order = order[np.argsort(lengths[order], kind="stable")]
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def shown_items(weights: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return the items that an epoch shows, each in proportion to its weight.

    An item of weight w is shown floor(w) times. Of all items of this weight a share of
    w - floor(w), drawn anew for each epoch, is shown once more. So every epoch has the
    same length.

    Args:
        weights: weight of each item, (N,).
        seed: seed of the experiment.
        epoch: number of the epoch, from 0.

    Returns:
        Positions of items; 0 to N - 1 in order if all weights are 1.
    """
    # NumPy ignores zeros at the end of a seed: without the 1 this would be
    # `epoch_order`'s generator.
    rng = np.random.default_rng([seed, epoch, 0, 1])  # not a batch's generator
    shown = [np.repeat(np.arange(len(weights)), weights.astype(np.int64))]
    for weight in np.unique(weights):
        (items,) = np.nonzero(weights == weight)
        count = round(float(weight % 1) * len(items))
        shown.append(rng.choice(items, count, replace=False))
    return np.concatenate(shown)


class FeatureViews:
    """The features of training photos, and of their mirror images if there are any.

    Args:
        readers: one reader, or two where photos are mirrored with probability 1/2;
            they have the same photos in the same rows.
    """

    def __init__(self, readers: Sequence[Features]):
        self.readers = tuple(readers)

    def read(
        self,
        rows: np.ndarray,
        rng: np.random.Generator,
        batch_size: int,
        own: slice = slice(None),
    ) -> Any:
        """Return the features of each photo, of a randomly chosen reader.

        Args:
            rows: rows of the photos, (N,), N at most `batch_size`.
            rng: generator that chooses the readers.
            batch_size: rows of the batch; rows beyond N are zero.
            own: rows of the batch to read and return, all by default; the choice of
                readers does not depend on it.

        Returns:
            (rows of `own`, L, D) float16, an array or a tensor on the device.
        """
        # Drawn for the whole batch, so that every worker draws the same.
        choice = rng.integers(len(self.readers), size=len(rows))[own]
        # Number of rows in the slice
        count = len(range(batch_size)[own])
        return self._gather(np.asarray(rows)[own], choice, count)

    def _gather(self, rows: np.ndarray, choice: np.ndarray, count: int) -> Any:
        """Return `count` rows of features, the first of the readers chosen."""
        _, L, D = self.readers[0].shape
        features = np.zeros((count, L, D), np.float16)
        for number, reader in enumerate(self.readers):
            (chosen,) = np.nonzero(choice == number)
            if len(chosen):
                features[chosen] = reader.read(rows[chosen])
        return features


class CaptionBatches:
    """Training batches over feature files.

    A batch has B captions of similar lengths, each with the features of its photo.

    Args:
        captions: encoded captions.
        rows: row of each photo in the feature files, (photos,).
        views: the features.
        batch_size: B, the captions of a batch.
        seed: seed of the order and of the mirroring.
        few_lengths: see :func:`padded_length`.
        share: the rows of each batch to read and return. All shares are padded to
            the length of the whole batch.
        weights: how many times an epoch shows the captions of each photo, (photos,);
            once by default.
    """

    def __init__(
        self,
        captions: Captions,
        rows: np.ndarray,
        views: FeatureViews,
        batch_size: int,
        seed: int,
        few_lengths: bool = False,
        share: BatchShare = WHOLE_BATCH,
        weights: np.ndarray | None = None,
    ):
        self.captions = captions
        self.few_lengths = few_lengths
        self.seed = seed
        self.rows = np.asarray(rows)
        self.views = views
        self.batch_size = batch_size
        self.own = share.rows(batch_size)
        self.weights = np.ones(len(captions.photos))
        if weights is not None:
            self.weights = weights[captions.photos]
        self._shown = len(shown_items(self.weights, seed, 0))

    @property
    def steps(self) -> int:
        """Number of batches in an epoch."""
        return -(-self._shown // self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from batch `start` on.

        A short batch is filled up with captions of padding.

        Yields:
            Annotations (B, L, D) float16; inputs, which begin with <start>, and
            targets, which end with <end>, (B, T) int32 each; B is the size of the
            share.
        """
        shown = shown_items(self.weights, self.seed, epoch)
        lengths = self.captions.lengths[shown]
        order = epoch_order(lengths, self.batch_size, self.seed, epoch)
        for number in range(start, len(order)):
            # NumPy ignores zeros at the end of a seed, so that batch 0 repeats the
            # numbers of `epoch_order`. Its choice of mirror images does not depend on
            # the order measurably: over 4,000 seeds their correlation is that of
            # separate generators. Another seed would change every earlier training.
            rng = np.random.default_rng([self.seed, epoch, number])
            yield self._make_batch(shown[order[number]], rng)

    def _make_batch(self, chosen: np.ndarray, rng: np.random.Generator) -> Batch:
        B = self.batch_size
        captions = self.captions
        # One step more than words: <start> in the inputs, <end> in the targets.
        T = padded_length(int(captions.lengths[chosen].max()) + 1, self.few_lengths)
        inputs = np.full((B, T), PAD, np.int32)
        targets = np.full((B, T), PAD, np.int32)
        for k, index in enumerate(chosen):
            ids = captions.words(index)
            # inputs  <start> a dog  runs
            # targets a       dog runs <end>
            inputs[k, 0] = START
            inputs[k, 1 : len(ids) + 1] = ids
            targets[k, : len(ids)] = ids
            targets[k, len(ids)] = END
        rows = self.rows[captions.photos[chosen]]
        features = self.views.read(rows, rng, B, self.own)
        return features, inputs[self.own], targets[self.own]

    def prefetched(
        self, epoch: int, start: int, to_device: Callable[[Any], Any]
    ) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield the batches of an epoch from batch `start` on, as tensors.

        A thread reads batches ahead.

        Args:
            epoch: number of the epoch, from 0.
            start: number of the first batch.
            to_device: function of a nest of arrays that returns tensors; the thread
                calls it.

        Yields:
            ``{"annotations": (B, L, D), "tokens": (B, T)}`` and targets, (B, T).

        Raises:
            DataError: features cannot be read.
        """
        batches = self.batches(epoch, start)
        numbers = range(start, self.steps)

        def read(number: int) -> tuple[dict[str, Any], Any]:
            annotations, inputs, targets = next(batches)
            x = {"annotations": annotations, "tokens": inputs}
            x, targets = to_device((x, targets))
            return x, targets

        # With one thread, because a generator cannot be advanced by two.
        yield from read_ahead(read, numbers, _AHEAD)


def measure_deviation(
    reader: Features, rows: np.ndarray, seed: int, photos: int = 512
) -> float:
    """Return the root mean square deviation of annotations from their mean.

    Args:
        reader: reader of the training photos.
        rows: rows of the training photos.
        seed: seed of the selection of photos.
        photos: maximum number of photos to measure.

    Raises:
        DataError: all values are equal, so nothing can be learnt from them.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.asarray(rows))[:photos]
    # Sums in float64 over parts, so that the photos are never in memory together.
    total = squares = count = 0.0
    for start in range(0, len(chosen), 64):
        values = reader.read(chosen[start : start + 64]).astype(np.float64)
        total = total + values.sum()
        squares = squares + np.square(values).sum()
        count += values.size
    mean = total / count
    mean_square = squares / count
    variance = mean_square - mean**2
    if not variance > 1e-12 * mean_square:  # the rounding of float64 sums
        raise DataError(
            f"{reader.path}: the features of {len(chosen)} training photos must not "
            f"all be equal. Received: {mean:g} everywhere; check the encoder's weights "
            "and run `features --overwrite`"
        )
    return float(np.sqrt(variance))
