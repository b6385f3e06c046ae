"""Batches of captions: order, padding, mirroring and resuming."""

import threading
from unittest import mock

import keras
import numpy as np
import pytest
from checks import assert_equal_leaves
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from show_attend_tell.data.batch_share import BatchShare
from show_attend_tell.data.dataset import (
    CaptionBatches,
    Captions,
    FeatureViews,
    encode_captions,
    epoch_order,
    measure_deviation,
    padded_length,
    shown_items,
)
from show_attend_tell.data.vocabulary import END, START, UNKNOWN, Vocabulary
from show_attend_tell.runtime.errors import DataError

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
    rows = np.arange(PHOTOS)[::-1]
    views = FeatureViews(readers or [Reader()])
    return CaptionBatches(captions, rows, views, batch_size, seed, **options)


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
            else:  # a short batch is filled with padding
                assert not features[row].any()


@given(
    lengths_lists,
    sizes,
    epochs,
    st.integers(0, 4),
    st.sampled_from([None, np.linspace(0.5, 2, PHOTOS)]),
)
def test_a_resumed_epoch_equals_an_uninterrupted_one(
    lengths, batch_size, epoch, start, weights
):
    options = {"readers": [Reader(), Reader(100)], "weights": weights}
    whole = list(make(lengths, batch_size, **options).batches(epoch))
    rest = list(make(lengths, batch_size, **options).batches(epoch, start))
    assert len(rest) == max(len(whole) - start, 0)
    assert_equal_leaves(whole[start:], rest)


@given(lengths_lists, st.integers(1, 3), st.integers(1, 3), epochs)
def test_the_shares_of_a_batch_are_its_rows(lengths, size, count, epoch):
    options = {"readers": [Reader(), Reader(offset=100)]}
    whole = make(lengths, size * count, **options).batches(epoch)
    parts = [
        make(lengths, size * count, share=BatchShare(k, count), **options).batches(
            epoch
        )
        for k in range(count)
    ]
    for batch, *own in zip(whole, *parts, strict=True):
        for arrays in zip(batch, *own, strict=True):
            np.testing.assert_array_equal(arrays[0], np.concatenate(arrays[1:]))
        assert {len(features) for features, *_ in own} == {size}


@pytest.mark.parametrize("lengths", [np.full(12, 5), np.arange(40) % 9 + 1])
def test_seed_and_epoch_determine_the_batches(lengths):
    def groups(seed, epoch):
        batches = epoch_order(lengths, 4, seed, epoch)
        return frozenset(frozenset(batch.tolist()) for batch in batches)

    assert groups(1, 0) == groups(1, 0)
    assert len({groups(seed, epoch) for seed in (1, 2) for epoch in (0, 1)}) == 4


def test_a_batch_holds_captions_of_similar_length():
    lengths = np.random.default_rng(0).integers(1, 20, 200)
    batches = epoch_order(lengths, 10, seed=0, epoch=0)
    ranges = sorted((lengths[b].min(), lengths[b].max()) for b in batches)
    for (_, longest), (shortest, _) in zip(ranges[:-1], ranges[1:], strict=True):
        assert longest <= shortest
    firsts = [lengths[b].max() for b in batches]
    assert firsts != sorted(firsts)


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


def tensors(batch):
    return keras.tree.map_structure(keras.ops.convert_to_tensor, batch)


def test_prefetched_batches_are_the_same():
    batches = make([2, 3, 9, 4, 1], batch_size=2)
    expected = list(batches.batches(1, start=1))
    prefetched = list(batches.prefetched(1, 1, tensors))
    assert len(prefetched) == len(expected) == 2
    batches = [(x["annotations"], x["tokens"], y) for x, y in prefetched]
    assert_equal_leaves(batches, expected)


def test_prefetching_ends_with_its_reader_and_raises_its_error():
    damaged = Reader()
    damaged.read = mock.Mock(side_effect=DataError("features.h5: damaged"))
    with pytest.raises(DataError, match=r"^features.h5: damaged$"):
        next(make([3, 4, 5], readers=[damaged]).prefetched(0, 0, tensors))
    threads = threading.active_count()
    stream = make([3] * 50).prefetched(0, 0, tensors)
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


def test_a_share_reads_its_own_photos_only():
    reader = Stored(np.zeros((PHOTOS, L, D), np.float16))
    list(make([3] * 8, 8, readers=[reader], share=BatchShare(1, 4)).batches(0))
    assert [len(rows) for rows in reader.calls] == [2]


def test_the_deviation_is_that_of_all_values_of_photos_fixed_by_the_seed(rng):
    values = (5 + 3 * rng.standard_normal((150, L, D))).astype(np.float16)
    rows, deviations = np.arange(20, 150), []
    for seed, photos in ((0, 5000), (1, 20), (1, 20), (2, 20)):
        reader = Stored(values)
        deviations.append(measure_deviation(reader, rows, seed, photos=photos))
        chosen = sum(reader.calls, [])
        assert len(set(chosen) & set(rows)) == min(photos, len(rows))
        assert max(map(len, reader.calls)) <= 64
        expected = values[chosen].astype(float).std()
        assert deviations[-1] == pytest.approx(expected, rel=1e-9)
    assert deviations[1] == deviations[2] != deviations[3]


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_features_that_are_all_equal_are_refused_in_one_line(value):
    reader = Stored(np.full((150, L, D), value, np.float16))
    reader.path = "features.h5"
    with refused(DataError, r"features\.h5: .* all be equal"):
        measure_deviation(reader, np.arange(150), seed=0)


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
