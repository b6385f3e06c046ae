"""BLEU of the tokens in the files, against NLTK."""

import pytest
from nltk.translate.bleu_score import corpus_bleu

from show_attend_tell.evaluation.metrics import FILE_TOKEN_BLEU, file_token_bleu

REFERENCES = {
    "1.jpg": ["A man is riding a horse .", "The man rides a brown horse on grass ."],
    "2.jpg": ["Two dogs , both wet , play with a red ball .", "Dogs play outside"],
}
TOKENS = [[text.lower().split() for text in texts] for texts in REFERENCES.values()]
CAPTIONS = {
    "1.jpg": "a man rides a brown horse on the grass",
    "2.jpg": "two dogs , both brown , play with a ball",
}


def test_a_period_is_appended_where_the_captioner_writes_none():
    found = file_token_bleu(CAPTIONS, REFERENCES)
    words = [[*text.split(), "."] for text in CAPTIONS.values()]
    assert found.period_appended
    assert tuple(found.scores) == FILE_TOKEN_BLEU == tuple(found.statistics)
    for n in range(1, 5):
        expected = 100 * corpus_bleu(TOKENS, words, weights=(1 / n,) * n)
        assert found.scores[f"BLEU-{n}-files"] == pytest.approx(expected, abs=1e-5)
    for name, statistic in found.statistics.items():
        assert statistic.score() == pytest.approx(found.scores[name], rel=1e-12)


@pytest.mark.parametrize("end", [" .", "."])
def test_no_period_is_appended_where_the_captioner_writes_it(end):
    written = {"1.jpg": CAPTIONS["1.jpg"] + end, "2.jpg": CAPTIONS["2.jpg"]}
    found = file_token_bleu(written, REFERENCES)
    assert not found.period_appended
    words = [[*CAPTIONS["1.jpg"].split(), "."], CAPTIONS["2.jpg"].split()]
    expected = 100 * corpus_bleu(TOKENS, words)
    assert found.scores["BLEU-4-files"] == pytest.approx(expected, abs=1e-5)


def test_references_without_periods_give_no_scores():
    references = {photo: [texts[0][:-2]] for photo, texts in REFERENCES.items()}
    assert file_token_bleu(CAPTIONS, references).scores == {}


def test_short_captions_are_penalised_and_the_second_set_is_not():
    short = {photo: " ".join(text.split()[:4]) for photo, text in CAPTIONS.items()}
    scores = file_token_bleu(short, REFERENCES).scores
    words = [[*text.split(), "."] for text in short.values()]
    expected = 100 * corpus_bleu(TOKENS, words, weights=(1,))
    assert scores["BLEU-1-files"] == pytest.approx(expected, abs=1e-5)
    assert scores["BLEU-1-files"] < scores["BLEU-1-no-bp-files"]


def test_an_empty_caption_is_scored():
    found = file_token_bleu({**CAPTIONS, "2.jpg": ""}, REFERENCES)
    assert 0 < found.scores["BLEU-1-files"] < 100
