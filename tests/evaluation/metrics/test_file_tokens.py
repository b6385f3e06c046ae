"""BLEU of the tokens in the files, against NLTK."""

import pytest
from nltk.translate.bleu_score import corpus_bleu

from show_attend_tell.evaluation.metrics.ngrams import FILE_TOKEN_BLEU, file_token_bleu

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
    scores, appended = file_token_bleu(CAPTIONS, REFERENCES)
    words = [[*text.split(), "."] for text in CAPTIONS.values()]
    assert appended
    assert tuple(scores) == FILE_TOKEN_BLEU
    for n in range(1, 5):
        expected = 100 * corpus_bleu(TOKENS, words, weights=(1 / n,) * n)
        assert scores[f"BLEU-{n}-files"].value == pytest.approx(expected, abs=1e-5)
    for value, statistic in scores.values():
        assert statistic.score() == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("end", [" .", "."])
def test_no_period_is_appended_where_the_captioner_writes_it(end):
    written = {"1.jpg": CAPTIONS["1.jpg"] + end, "2.jpg": CAPTIONS["2.jpg"]}
    scores, appended = file_token_bleu(written, REFERENCES)
    assert not appended
    words = [[*CAPTIONS["1.jpg"].split(), "."], CAPTIONS["2.jpg"].split()]
    expected = 100 * corpus_bleu(TOKENS, words)
    assert scores["BLEU-4-files"].value == pytest.approx(expected, abs=1e-5)


def test_references_without_periods_give_no_scores():
    references = {photo: [texts[0][:-2]] for photo, texts in REFERENCES.items()}
    assert file_token_bleu(CAPTIONS, references)[0] == {}


def test_short_captions_are_penalised_and_the_second_set_is_not():
    short = {photo: " ".join(text.split()[:4]) for photo, text in CAPTIONS.items()}
    scores, _ = file_token_bleu(short, REFERENCES)
    words = [[*text.split(), "."] for text in short.values()]
    expected = 100 * corpus_bleu(TOKENS, words, weights=(1,))
    assert scores["BLEU-1-files"].value == pytest.approx(expected, abs=1e-5)
    assert scores["BLEU-1-files"].value < scores["BLEU-1-no-bp-files"].value


def test_an_empty_caption_is_scored():
    scores, _ = file_token_bleu({**CAPTIONS, "2.jpg": ""}, REFERENCES)
    assert 0 < scores["BLEU-1-files"].value < 100
