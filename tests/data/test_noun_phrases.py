"""Captions with two noun phrases of one head and no modifier that differs."""

import numpy as np
import pytest

from show_attend_tell.data.noun_phrases import (
    Kind,
    kind_of,
    kinds_of,
    repeats_noun,
    share_with_repeated_nouns,
)

REPEATED = [
    "a bus parked on the side of a bus",
    "a man wearing a hat and hat",
    "a man wearing a hat and hat is standing in front of a mountain",
    "a black dog and a black dog are standing in the grass",
    "a brown and white dog is playing with a brown and white dog",
    "a white and brown dog is playing with a brown and white dog",
    "a man is laying on a bed with a bed",
    "a crowd of people are standing around a crowd of people",
    "a brick building next to a brick building",
]
FINE = [
    "a man in a red shirt and a woman in a blue shirt",
    "a black and white dog is looking at a white dog",
    "a baseball player holding a bat on a baseball field",
    "a tennis player with a tennis racket",
    "a stop sign with a street sign on it",
    "a woman in red and a man in red",
    "a dog and another dog",
    "one man and two other people sitting on the grass",
    "",
    "dog",
]


def repeats(caption: str) -> bool:
    words = caption.split()
    return repeats_noun(words, kinds_of(words).tolist())


@pytest.mark.parametrize("caption", REPEATED)
def test_one_head_without_another_modifier_is_a_repeated_noun(caption):
    assert repeats(caption)


@pytest.mark.parametrize("caption", FINE)
def test_other_heads_and_other_modifiers_are_not(caption):
    assert not repeats(caption)


def test_ids_of_words_give_the_same_answers():
    words = sorted({word for caption in REPEATED + FINE for word in caption.split()})
    kinds = kinds_of(words)
    for caption in REPEATED + FINE:
        ids = [words.index(word) for word in caption.split()]
        assert repeats_noun(ids, kinds[ids].tolist()) == repeats(caption)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("dog", Kind.NOUN),
        ("building", Kind.NOUN),
        ("bed", Kind.NOUN),
        ("parked", Kind.CLOSER),
        ("standing", Kind.CLOSER),
        ("<unk>", Kind.CLOSER),
        ("the", Kind.CLOSER),
        ("red", Kind.MODIFIER),
        ("and", Kind.JOINER),
    ],
)
def test_each_word_has_a_kind(word, kind):
    assert kind_of(word) == kind


def test_a_language_without_these_words_repeats_no_noun():
    assert not repeats("un chien et un chien")
    assert not repeats("一 只 狗 和 一 只 狗")


def test_the_share_is_of_all_captions():
    captions = ["A man with a hat and hat", "a dog", "a cat", "a cat and a cat"]
    assert share_with_repeated_nouns(captions) == 0.5
    assert kinds_of(["a", "dog"]).dtype == np.int8
