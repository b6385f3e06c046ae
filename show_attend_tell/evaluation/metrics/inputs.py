"""Validate captions and references."""

from collections.abc import Mapping, Sequence

from show_attend_tell.runtime.errors import MetricsError


def check_ids(captions: Mapping[str, object], references: Mapping[str, object]) -> None:
    """Raise an error unless exactly the photos with references have a caption.

    Raises:
        MetricsError: there are no captions, or the photos differ.
    """
    if not captions:
        raise MetricsError("`captions` must name at least one photo. Received: none")
    _check_none(captions.keys() - references.keys(), "no references", "add them")
    remedy = "pass the references of the captioned photos only"
    _check_none(references.keys() - captions.keys(), "no caption", remedy)


def _check_none(photos: set[str], fault: str, remedy: str) -> None:
    if photos:
        first = min(map(str, photos))
        raise MetricsError(f"{len(photos)} photos have {fault}: {first} ...; {remedy}")


def check_texts(captions: Mapping[str, str], references: Mapping) -> None:
    """Raise an error unless captions are strings and references lists of strings.

    Raises:
        MetricsError: one of them is not; the message names its photo.
    """
    for photo, caption in captions.items():
        if not isinstance(caption, str):
            raise MetricsError(
                f"{photo}: caption must be a string. Received: {caption!r}"
            )
        texts = references[photo]
        listed = isinstance(texts, Sequence) and not isinstance(texts, str)
        if not listed or not all(isinstance(text, str) for text in texts):
            raise MetricsError(
                f"{photo}: references must be a list of strings. Received: {texts!r}"
            )


def drop_empty(ids: Sequence[str], references: Sequence[Sequence[str]]) -> list:
    """Return the references that contain a word.

    Raises:
        MetricsError: a photo has no such reference.
    """
    kept = [[text for text in texts if text] for texts in references]
    missing = [photo for photo, texts in zip(ids, kept, strict=True) if not texts]
    if missing:
        raise MetricsError(
            f"{len(missing)} photos have no reference with a word: {missing[0]} ...; "
            "remove or caption them"
        )
    return kept
