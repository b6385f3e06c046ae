"""Normalise captions: equal-looking texts become equal, in every script.

Tokenizers, preparation and scores share these functions. ASCII is returned as it is.
"""

import re
import unicodedata

# Default_Ignorable_Code_Point of Unicode 16, and byte order marks: characters without
# a picture of their own. Control characters are found by their category.
_INVISIBLE_RANGES = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = re.compile(f"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{_INVISIBLE_RANGES}]")
# Joiners choose the form of letters in scripts from Hebrew's on: Persian and Hindi
# words differ by them. Elsewhere they are invisible.
_JOINERS = "\u200c\u200d"
_FIRST_JOINED = "\u0590"
# Scripts without spaces, in which a zero-width space separates words: Thai, Lao,
# Tibetan, Myanmar, Khmer.
_WORD_BREAK = re.compile(
    "(?<=[\u0e00-\u109f\u1780-\u17ff])\u200b+(?=[\u0e00-\u109f\u1780-\u17ff])"
)
# What people type between letters as an apostrophe: it’s, it‘s, it´s, it′s, м‘яч.
_APOSTROPHE = re.compile(r"(?<=\w)[’‘‛ʼ´′＇](?=[^\W\d_])")
_HYPHEN = re.compile("[‐‑－﹣]")
# Punctuation inside words of Catalan (col·lecció) and Hebrew (צה״ל, ג׳ירפה).
_INSIDE_WORDS = re.compile(r"(?<=[^\W\d_])[·׳״](?=[^\W\d_])")
# Thai to Myanmar, Khmer, kana, Chinese characters and their extensions.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


def visible_text(text: str) -> str:
    """Return a text in NFC without the characters that nobody sees.

    Args:
        text: one caption; white space stays.
    """
    if text.isascii() and text.isprintable():
        return text
    # Word breaks first: the next step removes zero-width spaces everywhere.
    whole = unicodedata.normalize("NFC", _WORD_BREAK.sub(" ", text))
    seen = _INVISIBLE.sub(lambda match: _kept_joiner(whole, match.start()), whole)
    # Removing a character may bring a letter and its accent together.
    return unicodedata.normalize("NFC", seen)


def _kept_joiner(text: str, place: int) -> str:
    """Return the character at a place if it joins two letters, or an empty text."""
    character = text[place]
    around = text[max(place - 1, 0) : place + 2]
    joins = (
        character in _JOINERS
        and len(around) == 3
        and all(
            letter >= _FIRST_JOINED and unicodedata.category(letter)[0] in "LM"
            for letter in (around[0], around[2])
        )
    )
    return character if joins else ""


def plain_punctuation(text: str) -> str:
    """Return a visible text whose only punctuation is ASCII's.

    Apostrophes and hyphens become ASCII's, so that ``it’s`` is split as ``it's`` is.
    All other punctuation, of any script, becomes a space: quotes, dashes, an ellipsis,
    the full stops of Chinese and Hindi.
    """
    if text.isascii():
        return text
    text = _HYPHEN.sub("-", _APOSTROPHE.sub("'", text))
    inside = {match.start() for match in _INSIDE_WORDS.finditer(text)}
    return "".join(
        " " if is_other_punctuation(character) and place not in inside else character
        for place, character in enumerate(text)
    )


def is_other_punctuation(character: str) -> bool:
    """Return whether a character is punctuation beyond ASCII."""
    if character.isascii():
        return False
    # The accent typed as a quote is a symbol, as Unicode sees it.
    return unicodedata.category(character)[0] == "P" or character == "´"


def has_no_spaces(text: str) -> bool:
    """Return whether a text has letters of a script that is written without spaces."""
    return _UNSPACED.search(text) is not None


def in_one_form(name: str) -> str:
    """Return a file's name in NFC, by which names in tables are compared.

    macOS decomposes the names of files, and most editors write composed letters.
    """
    return name if name.isascii() else unicodedata.normalize("NFC", name)
