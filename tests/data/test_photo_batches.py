"""Batches of whole photos: grouping, padding, order, mirroring and resuming."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.dataset import Captions
from show_attend_tell.data.photo_batches import PhotoBatches, group_captions
from show_attend_tell.data.vocabulary import END, START


class Reader:
    """Features of 7 photos whose values are all ``offset + row``."""

    shape = (7, 3, 2)

    def __init__(self, offset=0):
        self.offset = offset

    def read(self, rows):
        values = np.asarray(rows, np.float16)[:, None, None] + self.offset
        return np.broadcast_to(values, (len(rows), 3, 2)).astype(np.float16)


counts_lists = st.lists(st.integers(1, 4), min_size=1, max_size=7)


def make(counts, batch_size=6, seed=1, readers=None, lengths=None, **options):
    """Return batches of photos with `counts` captions; words are 10 + the number."""
    photos = np.repeat(np.arange(len(counts)), counts)
    if lengths is None:
        lengths = 1 + np.arange(len(photos)) * 3 % 11
    tokens = [np.full(n, 10 + k, np.int32) for k, n in enumerate(lengths)]
    captions = Captions.join(photos, tokens)
    rows = np.arange(len(counts))[::-1]  # of 7 photos
    readers = readers or [Reader()]
    return PhotoBatches(captions, rows, readers, batch_size, seed, **options)


@given(counts_lists, st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))
def test_every_caption_is_seen_once_an_epoch_beside_its_photo(
    counts, batch_size, seed, epoch
):
    batches = make(counts, batch_size, seed)
    photos, C, seen = batches.captions.photos, batches.captions_per_row, []
    found = list(batches.batches(epoch))
    assert len(found) == batches.steps
    for features, inputs, targets in found:
        assert len(targets) == len(features) * C <= max(batch_size, C)
        for row, words in enumerate(targets):
            if words[0]:
                caption = words[0] - 10
                seen.append(caption)
                photo_row = len(counts) - 1 - photos[caption]
                assert (features[row // C] == photo_row).all()
                length = np.count_nonzero(words)
                assert inputs[row, 0] == START
                assert words[length - 1] == END
                np.testing.assert_array_equal(
                    inputs[row, 1:length], words[: length - 1]
                )
            else:
                assert not inputs[row].any()
                assert not words.any()
    assert sorted(seen) == list(range(len(photos)))


@given(counts_lists, st.integers(0, 3))
def test_the_parts_of_a_batch_are_its_rows(counts, epoch):
    size = 4 * make(counts).captions_per_row
    whole = make(counts, size)
    if whole.batch_size % 2:  # more captions share a photo in a larger batch
        return
    parts = [make(counts, size, part=(k, 2)).batches(epoch) for k in (0, 1)]
    for batch, *own in zip(whole.batches(epoch), *parts, strict=True):
        for arrays in zip(batch, *own, strict=True):
            np.testing.assert_array_equal(arrays[0], np.concatenate(arrays[1:]))


def test_a_photo_is_in_one_row_with_all_of_its_captions():
    batches = make([5] * 7, batch_size=14)
    assert (batches.batch_size, batches.captions_per_row) == (2, 5)
    rows = [row for features, *_ in batches.batches(0) for row in features[:, 0, 0]]
    assert sorted(rows)[1:] == list(range(7))  # and one row of padding


@pytest.mark.parametrize(
    ("photos", "most", "expected"),
    [
        ([0, 0, 1, 1, 2, 2], 9, [[0, 1], [2, 3], [4, 5]]),
        ([0, 0, 1, 2, 2], 9, [[0, 1], [2, -1], [3, 4]]),
        ([0, 0, 0, 1, 1, 2, 2], 9, [[0, 1], [2, -1], [3, 4], [5, 6]]),
        ([1, 0, 1, 0], 9, [[1, 3], [0, 2]]),
        ([0, 0, 0], 2, [[0, 1], [2, -1]]),
    ],
    ids=["as many each", "fewer", "more", "not in order", "a small batch"],
)
def test_captions_are_grouped_by_photo(photos, most, expected):
    np.testing.assert_array_equal(group_captions(np.array(photos), most), expected)


@given(counts_lists, st.integers(0, 3), st.integers(0, 4))
def test_a_resumed_epoch_equals_an_uninterrupted_one(counts, epoch, start):
    readers = [Reader(), Reader(100)]
    whole = list(make(counts, readers=readers).batches(epoch))
    rest = list(make(counts, readers=readers).batches(epoch, start))
    assert len(rest) == max(len(whole) - start, 0)
    for ours, theirs in zip(whole[start:], rest, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_each_photo_is_mirrored_with_probability_one_half_for_all_of_its_captions():
    batches = make([2] * 7, 4, readers=[Reader(), Reader(100)])
    values = [
        features[targets[::2, 0] > 0, 0, 0]
        for epoch in range(40)
        for features, _, targets in batches.batches(epoch)
    ]
    share = np.mean(np.concatenate(values) >= 100)
    assert abs(share - 0.5) < 0.1


def test_photos_whose_longest_captions_are_similar_share_a_batch():
    lengths = np.random.default_rng(0).integers(1, 30, 14)
    batches = make([2] * 7, 4, lengths=lengths)
    longest = lengths.reshape(7, 2).max(axis=1)
    np.testing.assert_array_equal(batches.lengths, longest)
    ranges = []
    for _, _, targets in batches.batches(0):
        words = np.count_nonzero(targets, axis=1).reshape(2, 2).max(axis=1) - 1
        ranges.append((words[words >= 0].min(), words.max()))
    ranges.sort()
    for (_, most), (least, _) in zip(ranges[:-1], ranges[1:], strict=True):
        assert most <= least


def test_the_dataset_yields_the_batches():
    batches = make([2] * 7, 4)
    for (x, y), expected in zip(batches.prefetched(0), batches.batches(0), strict=True):
        for ours, theirs in zip((*x.values(), y), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_weights_choose_photos_with_all_their_captions():
    weights = np.array([2.0, 1.0, 1.0])
    batches = make([3, 3, 3], weights=weights)
    captions = [
        words[0] - 10
        for _, _, targets in batches.batches(0)
        for words in targets
        if words[0]
    ]
    assert sorted(captions) == [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
