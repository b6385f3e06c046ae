"""Batches of captions: order, padding, mirroring and resuming."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.dataset import (
    CaptionBatches,
    Captions,
    encode_captions,
    epoch_order,
    measure_deviation,
    padded_length,
    shown_items,
)
from show_attend_tell.data.vocabulary import END, PAD, START, UNKNOWN, Vocabulary
from show_attend_tell.runtime.errors import FeatureError

L, D, PHOTOS = 3, 2, 7


class Reader:
    """Features whose values are all ``offset + row``."""

    def __init__(self, offset=0, photos=PHOTOS):
        self.offset, self.shape = offset, (photos, L, D)

    def read(self, rows):
        values = np.asarray(rows, np.float16)[:, None, None] + self.offset
        return np.broadcast_to(values, (len(rows), L, D)).astype(np.float16)


def make(lengths, batch_size=4, seed=1, readers=None, **options):
    """Return batches of captions; each word of a caption is 10 + its number."""
    photos = np.arange(len(lengths)) % PHOTOS
    tokens = [np.full(length, 10 + k, np.int32) for k, length in enumerate(lengths)]
    captions = Captions.join(photos, tokens)
    rows, readers = np.arange(PHOTOS)[::-1], readers or [Reader()]
    return CaptionBatches(captions, rows, readers, batch_size, seed, **options)


def seen(batches):
    """Return caption numbers in the order of their rows, without padding."""
    return [row[0] - 10 for _, _, targets in batches for row in targets if row[0]]


lengths_lists = st.lists(st.integers(1, 20), min_size=1, max_size=30)


epochs, sizes = st.integers(0, 3), st.integers(1, 9)


@given(lengths_lists, sizes, st.integers(0, 5), epochs)
def test_every_caption_is_seen_once_an_epoch_beside_its_photo(
    lengths, batch_size, seed, epoch
):
    batches = make(lengths, batch_size, seed)
    found = list(batches.batches(epoch))
    assert sorted(seen(found)) == list(range(len(lengths)))
    assert len(found) == batches.steps
    for features, inputs, targets in found:
        assert features.dtype == np.float16
        assert inputs.dtype == targets.dtype == np.int32
        assert len(targets) == len(features) == batch_size
        for row, (given_words, wanted) in enumerate(zip(inputs, targets, strict=True)):
            length = np.count_nonzero(wanted)
            assert not given_words[length:].any()
            assert not wanted[length:].any()
            if length:
                caption = wanted[0] - 10
                assert (given_words[0], wanted[length - 1]) == (START, END)
                np.testing.assert_array_equal(
                    given_words[1:length], wanted[: length - 1]
                )
                assert length - 1 == lengths[caption]
                assert (features[row] == PHOTOS - 1 - caption % PHOTOS).all()


@given(lengths_lists, sizes, epochs, st.integers(0, 4))
def test_a_resumed_epoch_equals_an_uninterrupted_one(lengths, batch_size, epoch, start):
    options = {"readers": [Reader(), Reader(100)]}
    whole = list(make(lengths, batch_size, **options).batches(epoch))
    rest = list(make(lengths, batch_size, **options).batches(epoch, start))
    assert len(rest) == max(len(whole) - start, 0)
    for ours, theirs in zip(whole[start:], rest, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


@given(lengths_lists, st.integers(1, 3), st.integers(1, 3), epochs)
def test_the_parts_of_a_batch_are_its_rows(lengths, size, count, epoch):
    options = {"readers": [Reader(), Reader(offset=100)]}
    whole = make(lengths, size * count, **options).batches(epoch)
    parts = [
        make(lengths, size * count, part=(k, count), **options).batches(epoch)
        for k in range(count)
    ]
    for batch, *own in zip(whole, *parts, strict=True):
        for arrays in zip(batch, *own, strict=True):
            np.testing.assert_array_equal(arrays[0], np.concatenate(arrays[1:]))
        assert {len(features) for features, *_ in own} == {size}


def test_a_part_reads_its_own_photos_only():
    rows = []

    class Recorded(Reader):
        def read(self, chosen):
            rows.append(len(chosen))
            return super().read(chosen)

    list(make([3] * 8, 8, readers=[Recorded()], part=(1, 4)).batches(0))
    assert rows == [2]


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = np.arange(40) % 9 + 1

    def order(seed, epoch):
        return np.concatenate(epoch_order(lengths, 4, seed, epoch)).tolist()

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, e)) for seed in (1, 2) for e in (0, 1)}) == 4


def test_a_batch_holds_captions_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 20, 200)
    batches = epoch_order(lengths, 10, seed=0, epoch=0)
    ranges = sorted((lengths[b].min(), lengths[b].max()) for b in batches)
    for (_, longest), (shortest, _) in zip(ranges[:-1], ranges[1:], strict=True):
        assert longest <= shortest
    firsts = [lengths[b].max() for b in batches]
    assert firsts != sorted(firsts)


def test_captions_of_one_length_are_batched_differently_every_epoch():
    lengths = np.full(12, 5)
    groups = [
        {frozenset(batch.tolist()) for batch in epoch_order(lengths, 4, 0, epoch)}
        for epoch in (0, 1)
    ]
    assert groups[0] != groups[1]


def test_a_short_batch_is_filled_with_captions_of_padding():
    (last,) = [
        b for b in make([2] * 5, batch_size=4).batches(0) if not b[2].all(0).any()
    ]
    features, inputs, targets = last
    assert features.shape == (4, L, D)
    assert (np.count_nonzero(targets, axis=1) == [3, 0, 0, 0]).all()
    assert (inputs[1:] == PAD).all()
    assert (features[1:] == 0).all()


def test_photos_are_mirrored_half_the_time_and_differently_each_epoch():
    batches = make([2] * 400, batch_size=50, readers=[Reader(), Reader(100)])
    sides = []
    for epoch in (0, 1):
        mirrored = np.zeros(400, bool)
        for features, _, targets in batches.batches(epoch):
            mirrored[targets[:, 0] - 10] = features[:, 0, 0] >= 100
            rows = features[:, 0, 0] % 100
            photos = (targets[:, 0] - 10) % PHOTOS
            np.testing.assert_array_equal(rows, PHOTOS - 1 - photos)
        assert 150 < mirrored.sum() < 250
        sides.append(mirrored)
    assert 100 < (sides[0] != sides[1]).sum() < 300


@given(st.integers(1, 400))
def test_captions_are_padded_little_and_to_few_lengths(length):
    padded, least = padded_length(length), max(length, 8)
    assert least <= padded < least + (2 if least <= 16 else 4 if least <= 24 else 16)
    assert padded_length(padded) == padded
    few = padded_length(length, few=True)
    assert few % 12 == 0
    assert length <= few < length + 12


def test_padded_lengths_leave_room_for_the_end():
    batches = make([1, 7, 8, 16, 17], batch_size=1)
    assert {y.shape[1] for _, _, y in batches.batches(0)} == {8, 10, 20}


def test_encoding_cuts_long_captions_and_drops_empty_ones():
    vocabulary = Vocabulary.build([["a", "dog", "runs"]])
    sentences = [[["a", "dog", "runs"], []], [], [["zebra"], ["a"]]]
    captions = encode_captions(sentences, vocabulary, max_words=2)
    np.testing.assert_array_equal(captions.photos, [0, 2, 2])
    words = [
        vocabulary.decode(ids.tolist())
        for ids in map(captions.words, range(len(captions.photos)))
    ]
    assert words == [["a", "dog"], ["<unk>"], ["a"]]
    assert captions.words(1).tolist() == [UNKNOWN]


def test_prefetched_batches_are_the_same():
    batches = make([2, 3, 9, 4, 1], batch_size=2)
    expected = list(batches.batches(1, start=1))
    prefetched = list(batches.prefetched(1, start=1))
    assert len(prefetched) == len(expected) == 2
    for (x, y), (features, inputs, targets) in zip(prefetched, expected, strict=True):
        np.testing.assert_array_equal(x["annotations"], features)
        np.testing.assert_array_equal(x["tokens"], inputs)
        np.testing.assert_array_equal(y, targets)


def test_prefetching_ends_with_its_reader_and_raises_its_error():
    class Damaged(Reader):
        def read(self, rows):
            raise FeatureError("features.h5: damaged")

    with pytest.raises(FeatureError, match=r"^features.h5: damaged$"):
        next(make([3, 4, 5], readers=[Damaged()]).prefetched(0))
    threads = threading.active_count()
    stream = make([3] * 50).prefetched(0)
    next(stream)
    stream.close()
    assert threading.active_count() == threads


class Stored(Reader):
    """Features of given values; records the rows of every read."""

    def __init__(self, values):
        self.values, self.shape, self.calls = values, values.shape, []

    def read(self, rows):
        self.calls.append(list(rows))
        return self.values[np.asarray(rows)]


def test_the_deviation_is_that_of_all_values_together(rng):
    values = (5 + 3 * rng.standard_normal((150, L, D))).astype(np.float16)
    rows = np.arange(20, 150)
    reader = Stored(values)
    found = measure_deviation(reader, rows, seed=0)
    assert found == pytest.approx(values[rows].astype(float).std(), rel=1e-9)
    assert max(map(len, reader.calls)) <= 64


def test_the_deviation_is_measured_on_photos_fixed_by_the_seed(rng):
    values = rng.standard_normal((150, L, D)).astype(np.float16)
    readers = [Stored(values) for _ in range(3)]
    found = [
        measure_deviation(reader, np.arange(150), seed, photos=20)
        for reader, seed in zip(readers, (1, 1, 2), strict=True)
    ]
    assert found[0] == found[1] != found[2]
    chosen = sum(readers[0].calls, [])
    assert len(set(chosen)) == 20
    assert found[0] == pytest.approx(values[chosen].astype(float).std(), rel=1e-9)


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_features_that_are_all_equal_are_refused_in_one_line(value):
    reader = Stored(np.full((150, L, D), value, np.float16))
    reader.path = "features.h5"
    with pytest.raises(FeatureError, match=r"features\.h5: .* all be equal") as caught:
        measure_deviation(reader, np.arange(150), seed=0)
    assert "\n" not in str(caught.value)


weights_lists = st.lists(st.sampled_from([0.3, 1.0, 2.0, 2.5]), min_size=1, max_size=30)


@given(weights_lists, st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_shows_each_item_in_proportion_to_its_weight(weights, seed, epoch):
    weights = np.array(weights)
    counts = np.bincount(shown_items(weights, seed, epoch), minlength=len(weights))
    for weight in np.unique(weights):
        of_weight = counts[weights == weight]
        assert set(of_weight) <= {int(weight), int(np.ceil(weight))}
        assert abs(of_weight.sum() - weight * len(of_weight)) <= 0.5
    assert len(shown_items(weights, seed, epoch + 1)) == counts.sum()


def test_items_of_weight_one_are_shown_in_order():
    np.testing.assert_array_equal(shown_items(np.ones(5), 3, 2), np.arange(5))


def test_weights_of_photos_choose_their_captions():
    weights = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    batches = make([3] * 28, weights=weights)  # four captions of each photo
    other = [seen(batches.batches(epoch)) for epoch in (1, 2)]
    for captions in other:
        counts = np.bincount(np.array(captions) % PHOTOS)
        np.testing.assert_array_equal(counts, [4, 8, 2, 4, 4, 4, 4])
        assert -(-len(captions) // 4) == batches.steps
    halves = [{k for k in captions if k % PHOTOS == 2} for captions in other]
    assert halves[0] != halves[1]  # drawn anew
    rest = list(batches.batches(1, start=3))
    whole = list(batches.batches(1))[3:]
    for ours, theirs in zip(rest, whole, strict=True):
        for one, another in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, another)
