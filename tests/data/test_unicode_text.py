"""Test that texts which look the same become the same, in every script."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from show_attend_tell.data.unicode_text import plain_punctuation, visible_text
from show_attend_tell.data.vocabulary import TOKENIZERS, tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a dog", "a dog"),
        ("cafe\u0301", "café"),
        ("fene\u0302\u200btre", "fenêtre"),
        ("e\u200b\u0301", "é"),  # an accent behind an invisible character
        ("\ufeffa\u00ad \u2060dog\u200e", "a dog"),
        ("a\x00 do\x07g", "a dog"),
        ("\u2764\ufe0f", "\u2764"),  # a heart with a variation selector
        ("a\u200dcat", "acat"),
        ("می\u200cخواهم", "می\u200cخواهم"),  # Persian joiners are part of a word
        ("क्\u200dष", "क्\u200dष"),
        ("ไทย\u200bไทย", "ไทย ไทย"),  # separates words of Thai
        ("\u200b", ""),
    ],
)
def test_what_nobody_sees_is_removed(text, expected):
    assert visible_text(text) == expected


@given(st.text(max_size=30))
def test_a_visible_text_stays_as_it_is(text):
    seen = visible_text(text)
    assert visible_text(seen) == seen
    assert unicodedata.is_normalized("NFC", seen)


@given(st.text(max_size=30), st.sampled_from(sorted(TOKENIZERS)))
def test_words_do_not_depend_on_the_normal_form(text, punctuation):
    words = TOKENIZERS[punctuation](unicodedata.normalize("NFC", text))
    assert TOKENIZERS[punctuation](unicodedata.normalize("NFD", text)) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("一只狗，在草地上。", "一只狗 在草地上"),
        ("एक कुत्ता है।", "एक कुत्ता है"),
        ("كلب يركض، في العشب؟", "كلب يركض في العشب"),
        ("¿Un perro? ¡Sí!", "un perro sí"),
        ("„Ein Hund“ – „läuft‟", "ein hund läuft"),
        ("「犬」が・走る", "犬 が 走る"),
        ("col·lecció · צה״ל", "col·lecció צה״ל"),
        ("м’яч м‘яч мʼяч", "м'яч м'яч м'яч"),
        ("l’été, jusqu´ici", "l'été jusqu'ici"),
        ("twenty‐one non‑stop", "twenty-one non-stop"),
        ("ܐܒܓ። ሰላም፣ ዓለም።", "ܐܒܓ ሰላም ዓለም"),
    ],
)
def test_punctuation_of_every_script_is_dropped(text, expected):
    assert " ".join(tokenize(text)) == expected


def test_no_punctuation_beyond_ascii_remains():
    everything = "".join(map(chr, range(0x80, 0x11000)))
    marks = [c for c in everything if unicodedata.category(c)[0] == "P"]
    assert len(marks) > 500
    assert not plain_punctuation(" ".join(marks)).replace("-", "").strip()
    assert tokenize(" ".join(marks)) == []
