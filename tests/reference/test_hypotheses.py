"""Captions that repeat a noun come after the others of their photo."""

import numpy as np
import pytest
import tiny_captioner as tiny

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.noun_phrases import kinds_of
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.reference.generator import Generator
from show_attend_tell.reference.hypotheses import Hypotheses, repeated_nouns_last

WORDS = (*SPECIAL, "a", "hat", "and", "man", "red")
KINDS = kinds_of(WORDS)
REPEATED = "a hat and hat"
FINE = "a man and a hat"
OTHER = "a red hat and a hat"


def hypotheses(*photos: list[str]) -> Hypotheses:
    """Return hypotheses of photos; their log p, -1, -2, ..., tells them apart."""
    B, W, T = len(photos), 4, 8
    tokens = np.zeros((B, W, T), np.int32)
    lengths = np.zeros((B, W), np.int32)
    for b, captions in enumerate(photos):
        for w, caption in enumerate(captions):
            ids = [*map(WORDS.index, caption.split()), 2]
            tokens[b, w, : len(ids)] = ids
            lengths[b, w] = len(ids)
    ranks = -np.arange(1.0, W + 1, dtype=np.float32)
    log_probs = np.where(lengths > 0, ranks, -np.inf).astype(np.float32)
    zeros = np.zeros((B, W, T), np.float32)
    return Hypotheses(
        tokens=tokens,
        lengths=lengths,
        log_probs=log_probs,
        scores=log_probs,
        word_log_probs=zeros,
        alpha=zeros[..., None],
        beta=zeros,
        locations=zeros.astype(np.int32),
        finished=lengths > 0,
    )


@pytest.mark.parametrize(
    ("captions", "order"),
    [
        ([REPEATED, FINE, OTHER], [-2, -3, -1, -np.inf]),
        ([FINE, REPEATED, OTHER, REPEATED], [-1, -3, -2, -4]),
        ([REPEATED, REPEATED], [-1, -2, -np.inf, -np.inf]),
        ([FINE, OTHER], [-1, -2, -np.inf, -np.inf]),
    ],
)
def test_captions_that_repeat_a_noun_come_last_and_the_order_is_else_as_before(
    captions, order
):
    found = repeated_nouns_last(hypotheses([FINE], captions), KINDS)
    assert found.log_probs[1].tolist() == order
    assert found.log_probs[0, 0] == -1
    for b in range(2):
        lengths = (found.tokens[b] > 0).sum(axis=1)
        np.testing.assert_array_equal(found.lengths[b], lengths)


@pytest.mark.parametrize(("method", "best"), [("beam", -2), ("greedy", -1)])
def test_a_beam_search_puts_them_last_in_both_engines(monkeypatch, method, best):
    """The engines differ in `search`, which another module compares."""
    captioner = tiny.build(np.random.default_rng(0))
    monkeypatch.setattr(captioner, "vocabulary", Vocabulary(WORDS))
    for generator in (captioner.generator, Generator([captioner])):
        monkeypatch.setattr(generator, "vocabulary", Vocabulary(WORDS))
        found = hypotheses([REPEATED, FINE])
        monkeypatch.setattr(generator, "search", lambda *a, found=found: found)
        decoding = DecodingSettings(method=method, beam=4)
        photos = np.zeros((1, tiny.L, tiny.D))
        captions = generator.generate(photos, decoding)
        assert captions.log_probs[0, 0] == best
