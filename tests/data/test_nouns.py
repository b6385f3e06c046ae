"""The nouns of captions that become tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.nouns import nouns_of, nouns_of_all, singular


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("two dogs run through the grass", {"dog", "grass"}),
        ("a group of people in front of a building", {"person", "building"}),
        ("a tennis player with a tennis racket", {"tennis", "player", "racket"}),
        ("a hot dog on a plate", {"hot dog", "plate"}),
        ("a dog next to two fire hydrants", {"dog", "fire hydrant"}),
        ("a man 's hand holds a cell phone", {"man", "cell phone"}),
        ("a black and white cat", {"cat"}),
        ("the back of a red t-shirt", {"t-shirt"}),
        ("a boy with a toothbrush in his mouth", {"boy", "toothbrush"}),
        ("surfing", {"surfing"}),
        ("a couple of <unk>", set()),
        ("2 of them are in the middle", set()),
        ("", set()),
    ],
)
def test_the_nouns_of_a_caption(caption, expected):
    assert nouns_of(caption.split()) == expected


PLURALS = {
    "men": "man",
    "policemen": "policeman",
    "people": "person",
    "dogs": "dog",
    "benches": "bench",
    "dresses": "dress",
    "boxes": "box",
    "puppies": "puppy",
    "horses": "horse",
    "cameras": "camera",
    "shoes": "shoe",
    "tomatoes": "tomato",
    "knives": "knife",
    "cookies": "cookie",
    "zombies": "zombie",
    "women": "woman",
}


@pytest.mark.parametrize("plural", PLURALS)
def test_a_plural_and_its_singular_are_one_tag(plural):
    assert singular(plural) == singular(PLURALS[plural]) == PLURALS[plural]


@pytest.mark.parametrize(
    "noun",
    [
        *("glasses", "grass", "bus", "tennis", "sheep", "jeans", "gas", "ramen"),
        *("abdomen", "specimen"),
    ],
)
def test_words_that_only_look_like_plurals_stay(noun):
    assert singular(noun) == noun


@given(st.lists(st.sampled_from("a dogs men the of grass and hot dog run".split())))
def test_the_nouns_of_several_captions_are_those_of_each(words):
    half = len(words) // 2
    together = nouns_of(words[:half]) | nouns_of(words[half:])
    assert nouns_of_all([words[:half], words[half:]]) == together
    assert not together & {"a", "the", "of", "dogs", "men"}
