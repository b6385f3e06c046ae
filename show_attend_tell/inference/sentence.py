"""Write a caption as a sentence, for every place where a person reads it."""

import re

# Tokenizers separate the end of a word and punctuation: "a man 's hat , a dog ."
_SEPARATED = re.compile(r" +(?=(?:'(?:s|re|ve|ll|d|m)|n't|[,;:!?.])(?:\s|$))")


def as_sentence(caption: str) -> str:
    """Return a caption with a capital at the start and a full stop at the end.

    Spaces before punctuation and before endings such as "'s" are removed, and so are
    full stops that tokenizers leave at the end.
    """
    text = _SEPARATED.sub("", " ".join(caption.split())).rstrip(" .")
    if not text:
        return ""
    return f"{capitalized(text)}{'' if text[-1] in '!?' else '.'}"


def capitalized(text: str) -> str:
    """Return a text whose first letter is a capital; other letters are kept."""
    return f"{text[:1].upper()}{text[1:]}"
