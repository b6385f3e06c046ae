"""Captions and references, checked and put in one order."""

from collections.abc import Mapping, Sequence

from show_attend_tell.runtime.errors import MetricsError


def check_ids(captions: Mapping[str, object], references: Mapping[str, object]) -> None:
    """Check that exactly the photos with references have a caption.

    Raises:
        MetricsError: there is nothing to score, or the photos differ.
    """
    if not captions:
        raise MetricsError("`captions` must name at least one photo. Received: none")
    _refuse(captions.keys() - references.keys(), "no references", "add them")
    remedy = "pass the references of the captioned photos only"
    _refuse(references.keys() - captions.keys(), "no caption", remedy)


def _refuse(photos: set[str], fault: str, remedy: str) -> None:
    if photos:
        first = min(map(str, photos))
        raise MetricsError(f"{len(photos)} photos have {fault}: {first} ...; {remedy}")


def check_texts(captions: Mapping[str, str], references: Mapping) -> None:
    """Check that captions are texts and references are lists of texts.

    Raises:
        MetricsError: one is not; the message names its photo.
    """
    for photo, caption in captions.items():
        if not isinstance(caption, str):
            raise MetricsError(
                f"{photo}: caption must be a text. Received: {caption!r}"
            )
        texts = references[photo]
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise MetricsError(
                f"{photo}: references must be a list of texts. Received: {texts!r}"
            )


def drop_empty(ids: Sequence[str], references: Sequence[Sequence[str]]) -> list:
    """Return the references without those in which no word is left.

    Raises:
        MetricsError: a photo has no other reference.
    """
    kept = [[text for text in texts if text] for texts in references]
    bare = [photo for photo, texts in zip(ids, kept, strict=True) if not texts]
    if bare:
        raise MetricsError(
            f"{len(bare)} photos have no reference with a word: {bare[0]} ...; "
            "remove or caption them"
        )
    return kept
