"""CIDEr as a reward, compared with pycocoevalcap's scores; BLEU-4 and people."""

import math

import pytest

from show_attend_tell.evaluation.metrics.ngrams import cider
from show_attend_tell.evaluation.metrics.reward import (
    CiderReward,
    Reward,
    names_people,
)

END = CiderReward.END
REFERENCES = [
    ["a dog runs on the beach", "the brown dog is running", "a dog runs"],
    ["two men play football", "men are playing a game of football on grass"],
    ["a girl in a red dress", "a girl jumps"],
    ["a dog and a cat sleep on a red sofa"],
]
CAPTIONS = ["a dog runs on grass", "two men are playing", "a a a red", "zebra"]


def split(captions):
    return [[text.split() for text in texts] for texts in captions]


def test_rewards_equal_pycocoevalcap_on_the_corpus_of_references():
    reward = CiderReward(split(REFERENCES))
    ended = [[f"{text} {END}" for text in texts] for texts in REFERENCES]
    scores = cider([f"{text} {END}" for text in CAPTIONS], ended).statistic.values[:, 0]
    found = [reward(k, [*text.split(), END]) for k, text in enumerate(CAPTIONS)]
    assert found == pytest.approx(scores / 100, rel=1e-9, abs=1e-12)
    assert found[0] > 1


def test_a_reward_is_from_zero_to_ten_and_lower_without_the_end():
    reward = CiderReward(split(REFERENCES))
    assert reward(3, [*REFERENCES[3][0].split(), END]) == pytest.approx(10)
    words = REFERENCES[2][0].split()
    assert reward(2, words) < reward(2, [*words, END])
    for words in ([], [END], ["zebra", "zebra"]):
        assert reward(0, words) == 0
    without_words = CiderReward([[[]], *split(REFERENCES)])
    assert without_words(0, ["a", "dog", END]) == 0


def test_bleu_is_added_and_people_whom_no_caption_names_are_subtracted():
    references = split(REFERENCES)
    cider, reward = CiderReward(references), Reward(references, bleu=2.0, people=3.0)
    perfect = [*REFERENCES[3][0].split(), END]
    assert reward(3, perfect) == pytest.approx(cider(3, perfect) + 2.0)
    # 2 of 2 words and, smoothed, 1 of 2 pairs; the nearest reference has 3 words.
    short = ["a", "runs", END]
    bleu = (1 * 1 / 2 * 1 / 2 * 1 / 2) ** 0.25 * math.exp(1 - 3 / 2)
    assert reward(0, short) == pytest.approx(cider(0, short) + 2 * bleu)
    invented, named = ["a", "man", END], ["two", "girls", END]
    without = Reward(references, bleu=2.0)
    assert reward(0, invented) == pytest.approx(without(0, invented) - 3.0)
    assert reward(1, named) == without(1, named)  # its captions name men
    assert Reward(references)(0, invented) == cider(0, invented)


def test_people_are_named_by_their_activity_and_in_the_plural_but_animals_are_not():
    for caption in ("two skiers on a slope", "a batter at the plate", "someone rides"):
        assert names_people(caption.split()), caption
    for caption in ("a couple of zebras", "a mother bear", "a pitcher of milk"):
        assert not names_people(caption.split()), caption
