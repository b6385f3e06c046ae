"""Tokenize captions and map words to ids: tokenizer, special tokens, vocabulary.

The tokenizer replaces Stanford's PTB tokenizer, which needs Java: lower case, Penn
Treebank splitting, without the punctuation that the COCO evaluation drops and that of
other scripts. It downloads nothing.
"""

import functools
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from show_attend_tell.data.unicode_text import plain_punctuation, visible_text
from show_attend_tell.runtime.errors import DataError, quote
from show_attend_tell.runtime.files import atomic_write
from show_attend_tell.runtime.untrusted import (
    is_text,
    parse_json,
    read_text_bytes,
    reading,
)

PAD = 0
START = 1
END = 2
UNKNOWN = 3
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")  # their ids are their positions

# The list of pycocoevalcap's PTBTokenizer, and the quotes in Treebank's spelling.
_PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ","]
    + [":", "-", "--", "...", ";", "(", ")", "{", "}", "[", "]", '"']
)
# Words that Treebank splits in two.
_SPLIT_WORDS = frozenset(["cannot", "gimme", "gonna", "gotta", "lemme", "wanna"])
_NOT_PLAIN = re.compile("[^a-z0-9 ]")


def tokenize(text: str) -> list[str]:
    """Split a caption into lower-case words without punctuation.

    Args:
        text: one raw caption; line breaks count as spaces.

    Returns:
        The words, possibly none; equal words are one object in memory.
    """
    text = " ".join(text.lower().split())
    words = _split_plain(text) or _split_by_treebank(text)
    return list(map(sys.intern, words))


def _split_plain(text: str) -> list[str]:
    """Split a caption of plain words at spaces, as Treebank would, but faster.

    Returns:
        The words; none if the caption needs Treebank, as every 25th does.
    """
    # Only a comma before a space ends a word: "5,000" is left to Treebank.
    text = text.removesuffix(".").replace(", ", " ")
    words = [] if _NOT_PLAIN.search(text) else text.split()
    return words if _SPLIT_WORDS.isdisjoint(words) else []


@functools.cache
def _treebank() -> Any:  # NLTK has no types
    """Return NLTK's tokenizer, which takes as long to import as Keras."""
    from nltk.tokenize import TreebankWordTokenizer

    return TreebankWordTokenizer()


def _split_by_treebank(text: str) -> list[str]:
    text = " ".join(plain_punctuation(visible_text(text)).split())
    # Treebank splits off the last full stop only; one inside the text ends a sentence.
    words = _treebank().tokenize(text)
    words = [
        # Abbreviations keep theirs: "mr." and "st." are short, "u.s." has another.
        word[:-1] if word.find(".") == len(word) - 1 and len(word) > 3 else word
        for word in words
    ]
    return [word for word in words if word not in _PUNCTUATION]


def tokenize_as_written(text: str) -> list[str]:
    """Split a caption at spaces into lower-case words, punctuation included.

    The token files of Flickr8k and Flickr30k have spaces around punctuation, "a dog
    runs .", so the words equal the tokens that the authors' code reads. A period
    attached to the last word, as in the captions of COCO, becomes a separate word.

    Args:
        text: one raw caption.
    """
    words = visible_text(text.lower()).split()
    if words and len(words[-1]) > 1 and words[-1].find(".") == len(words[-1]) - 1:
        words[-1:] = [words[-1][:-1], "."]
    return list(map(sys.intern, words))


# Tokenizer of training captions by `data.punctuation`.
TOKENIZERS = {"drop": tokenize, "keep": tokenize_as_written}


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _require_settings(
    path: str | Path, content: Mapping[str, object], settings: Mapping[str, int]
) -> None:
    """Raise a DataError if a file records other settings than those expected."""
    for name, expected in settings.items():
        recorded = content.get(name, expected)
        if recorded != expected:
            raise DataError(
                f"{path}: `data.{name}` must be {expected}. Received: a vocabulary "
                f"prepared with {quote(recorded)}; run `prepare` again with this "
                "experiment, or set another `data.name` to keep both vocabularies"
            )


class Vocabulary:
    """The words of a captioner; ids 0 to 3 are the special tokens.

    Args:
        words: every word in the order of ids, the special tokens first.

    Raises:
        DataError: the special tokens are not first, or a word occurs twice.
    """

    def __init__(self, words: Sequence[str]):
        self.words = tuple(words)
        if self.words[: len(SPECIAL)] != SPECIAL:
            raise DataError(
                f"`words` must begin with {SPECIAL}. Received: {quote(self.words[:4])}"
            )
        self._ids = {word: index for index, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            twice = [w for w, count in Counter(self.words).items() if count > 1]
            raise DataError(f"`words` must be distinct. Received twice: {quote(twice)}")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(self.words)

    @classmethod
    def build(
        cls, captions: Iterable[Sequence[str]], size: int = 10_000, min_count: int = 1
    ) -> "Vocabulary":
        """Count words and keep the most frequent.

        Args:
            captions: tokenized captions of the training split.
            size: maximum number of words, special tokens included.
            min_count: words that occur fewer times are dropped.

        Returns:
            Words by descending count; words of equal count are sorted by spelling.

        Raises:
            DataError: no word occurs often enough.
        """
        counts = Counter(word for caption in captions for word in caption)
        kept = [word for word, count in counts.items() if count >= min_count]
        kept = [word for word in kept if word not in SPECIAL]
        # Not in the order of the captions, which may differ between copies of the data.
        kept.sort(key=lambda word: (-counts[word], word))
        if not kept:
            raise DataError(
                f"no word occurs at least {min_count} times in the {len(counts)} "
                "distinct words of the training captions; lower data.min_count"
            )
        return cls(SPECIAL + tuple(kept[: size - len(SPECIAL)]))

    def extended(self, other: "Vocabulary") -> "Vocabulary":
        """Return these words, followed by the new words of another vocabulary."""
        return type(self)((*self.words, *(w for w in other.words if w not in self)))

    def encode(self, words: Sequence[str]) -> list[int]:
        """Return the id of each word; words not in the vocabulary map to ``<unk>``.

        A word that is spelled like a special token, such as ``<end>``, is not in it: a
        caption holds words alone.
        """
        ids = (self._ids.get(word, UNKNOWN) for word in words)
        return [index if index > UNKNOWN else UNKNOWN for index in ids]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of ids before ``<end>``, without <pad> and <start>."""
        words = []
        for index in ids:
            if index == END:
                break
            if index not in (PAD, START):
                words.append(self.words[index])
        return words

    def save(self, path: str | Path, settings: Mapping[str, int] | None = None) -> None:
        """Write the words as JSON atomically.

        Args:
            path: the file.
            settings: settings that chose the words, by their keys in ``[data]``, which
                :meth:`load` compares.
        """
        content = {
            "sha256": _digest(self.words),
            **(settings or {}),
            "words": list(self.words),
        }
        atomic_write(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    def load(
        cls, path: str | Path, settings: Mapping[str, int] | None = None
    ) -> "Vocabulary":
        """Read a vocabulary written by :meth:`save`.

        Args:
            path: the file.
            settings: settings that must have chosen the words; a file that does not
                record a setting is accepted with any value. By default nothing is
                compared.

        Raises:
            DataError: the file is absent, malformed, or differs from its digest; or
                other settings chose its words.
        """
        absent = "vocabulary; run `show-attend-tell prepare` first"
        with reading(path, DataError, "run `prepare` again", absent):
            content = parse_json(read_text_bytes(path))
            if not isinstance(content, dict):
                raise ValueError("it must be an object with the list `words` of texts")
            words = content.get("words")
            if not isinstance(words, list) or not all(map(is_text, words)):
                raise ValueError("it must be an object with the list `words` of texts")
            if content.get("sha256") != _digest(words):
                raise ValueError("its words differ from their digest `sha256`")
        _require_settings(path, content, settings or {})
        try:
            return cls(words)
        except DataError as error:
            raise DataError(f"{path}: {error}; run `prepare` again") from None
