"""Write captions into XMP sidecars of photos, and keep the words of a person."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from show_attend_tell.inference.photo_words import (
    find_sidecar,
    sidecar_of,
    words_in_photo,
    words_of_person,
)
from show_attend_tell.inference.photos import Failure, describe_file
from show_attend_tell.inference.result import DOUBTFUL, as_sentence, is_below
from show_attend_tell.inference.xmp import MAX_BYTES, XmpPacket
from show_attend_tell.runtime.errors import CaptionError, plural
from show_attend_tell.runtime.files import atomic_write, is_read_only, rewrite
from show_attend_tell.runtime.untrusted import read_text_bytes

__all__ = ["MetadataWriter", "read_sidecar", "sidecar_of", "words_in_photo"]


def read_sidecar(path: Path) -> bytes | None:
    """Return the content of a sidecar, None if it is absent.

    Raises:
        CaptionError: the sidecar is a link, not a regular file, or too large.
        OSError: the sidecar cannot be read.
    """
    if path.is_symlink():
        raise CaptionError(
            "is a link, which is not replaced; put a file in its place, or delete it"
        )
    if not path.exists():
        return None
    try:
        return read_text_bytes(path, MAX_BYTES)
    except OSError as error:
        raise CaptionError(error.strerror or str(error)) from None


def _identity(photo: Path, description: Mapping[str, object] | None = None) -> str:
    """Return what recognises a photo, empty if it cannot be read.

    ``description`` is from :func:`describe_file`; None describes the photo now.
    """
    if description is None:
        try:
            description = describe_file(photo)
        except OSError:
            return ""
    return f"{description['bytes']} {description['sha256']} {description['modified']}"


def _content(identity: str) -> list[str]:
    """Return the size and the digest of an identity."""
    return identity.split()[:2]


def _describes(packet: XmpPacket, sidecar: Path, photo: Path) -> bool:
    """Return whether a sidecar is of this photo, and not of one that was replaced."""
    size, _, digest_and_time = packet.photo.partition(" ")
    _, _, modified = digest_and_time.partition(" ")
    found = photo.stat()
    if str(found.st_size) != size:
        return False
    # The photo is read only if the time of its last change differs; a sidecar of an
    # earlier version has only its own time.
    if modified:
        is_unchanged = str(found.st_mtime_ns) == modified
    else:
        is_unchanged = found.st_mtime_ns <= sidecar.stat().st_mtime_ns
    return is_unchanged or _content(_identity(photo)) == _content(packet.photo)


class MetadataWriter:
    """Write the captions of photos into sidecars, XMP files beside the photos.

    Words of a person are kept: in the packet, in the photo's EXIF and IPTC fields, and
    in its sidecars. So are the keywords of a person. Captions and tags of this package
    are renewed unless the same model and settings wrote them. Captions of low
    confidence are left out, with their tags. A caption of this package, and its tags,
    are removed if they describe a photo that was replaced since and that has no new
    one. A sidecar of another program keeps its owner, mode, attributes and hard links;
    a read-only one stays.

    Attributes:
        written: number of sidecars written.
        present: number of photos that had the caption already.
        left_out: number of captions of low confidence.
        removed: number of captions of replaced photos that were removed.
        kept: photos that have words of a person.
        failures: photos with a sidecar that cannot be read or written.
    """

    def __init__(
        self, made_by: str, overwrite: bool = False, minimum: float = DOUBTFUL
    ):
        """Start the writer.

        Args:
            made_by: the model and settings, from ``inference.batch.made_by``.
            overwrite: whether to replace words of a person.
            minimum: lowest confidence of a caption that is written.
        """
        self.made_by = made_by
        self.overwrite = overwrite
        self.minimum = minimum
        self.written = 0
        self.present = 0
        self.left_out = 0
        self.removed = 0
        self.kept: list[Path] = []
        self.failures: list[Failure] = []

    def find_packet(self, photo: Path) -> XmpPacket | None:
        """Return the packet that the same model and settings wrote, or None."""
        with contextlib.suppress(CaptionError, OSError):
            path = find_sidecar(photo)
            packet = XmpPacket(read_sidecar(path))
            if packet.made_by == self.made_by and _describes(packet, path, photo):
                return packet
        return None

    def write(
        self,
        photo: Path,
        text: str,
        confidence: float | None = None,
        tags: Sequence[str] = (),
        description: Mapping[str, object] | None = None,
    ) -> Path | None:
        """Write a caption unless the photo has it, or words of a person.

        Args:
            photo: path of the photo.
            text: the caption; its sentence is written.
            confidence: of the caption; None if unknown, and then it is written.
            tags: keywords to add; earlier ones of this package are removed.
            description: of the photo, from ``inference.photos.describe_file`` before it
                was read; None describes it now.

        Returns:
            The file with the caption written, or None. :attr:`failures` has the reason
            if the metadata cannot be read or written.
        """
        try:
            return self._write(photo, as_sentence(text), confidence, tags, description)
        except (CaptionError, OSError) as error:
            self._report(photo, error)
            return None

    def write_none(self, photo: Path) -> None:
        """Remove the caption of an earlier photo at this path, whose photo has none.

        Args:
            photo: path of a photo that cannot be captioned, or of another file.
        """
        if not photo.is_file():
            return
        path = find_sidecar(photo)
        try:
            packet = XmpPacket(read_sidecar(path))
        except (CaptionError, OSError):
            return  # what cannot be read has no caption of this package
        try:
            self._remove_outdated(photo, path, packet)
        except (CaptionError, OSError) as error:
            self._report(photo, error)

    def summary(self) -> str:
        """Return the counts in one line."""
        parts = [f"metadata: {plural(self.written, 'caption')} written"]
        if self.present:
            parts.append(f"{self.present} already present")
        if self.left_out:
            parts.append(
                f"{self.left_out} left out for a confidence below {self.minimum:g} "
                "(--min-confidence 0 writes all)"
            )
        if self.removed:
            parts.append(f"{self.removed} of replaced photos removed")
        if self.kept:
            parts.append(
                f"{plural(len(self.kept), 'photo')} with a description by a person "
                "(--overwrite-metadata replaces it)"
            )
        if self.failures:
            parts.append(f"{len(self.failures)} not written")
        return ", ".join(parts)

    def _write(
        self,
        photo: Path,
        sentence: str,
        confidence: float | None,
        tags: Sequence[str],
        description: Mapping[str, object] | None,
    ) -> Path | None:
        # Raises if it is absent: its drive may be away, while a file of captions still
        # has its row, and nothing is written in the place of the drive.
        photo.stat()
        path = find_sidecar(photo)
        packet = XmpPacket(read_sidecar(path))
        # `made_by` and `caption` are empty if a person has edited the words.
        is_present = packet.made_by == self.made_by and packet.caption == sentence
        if is_present and _describes(packet, path, photo):
            self.present += 1
            return None
        # Before the confidence: words of a person are counted as kept, whatever the
        # caption.
        if not self.overwrite and words_of_person(photo, packet):
            self.kept.append(photo)
            self._remove_outdated(photo, path, packet)
            return None
        is_low = is_below(confidence, self.minimum)
        if not sentence or is_low:
            if sentence:
                self.left_out += 1
            self._remove_outdated(photo, path, packet)
            return None
        identity = _identity(photo, description)
        packet.set_caption(sentence, self.made_by, confidence, identity)
        packet.set_tags(tags)
        # A sidecar of another program keeps its owner and its links, which a new file
        # would not have.
        if path.exists():
            _rewrite(path, packet)
        else:
            atomic_write(path, packet.to_bytes())
        self.written += 1
        return path

    def _remove_outdated(self, photo: Path, path: Path, packet: XmpPacket) -> None:
        """Remove the caption and the tags in a sidecar if they are of another photo."""
        if not packet.photo:
            return
        found = _identity(photo)
        # The time is left out: a photo that was only touched keeps its caption.
        if found and _content(found) != _content(packet.photo):
            packet.remove_caption()
            packet.set_tags(())
            _rewrite(path, packet)
            self.removed += 1

    def _report(self, photo: Path, error: Exception) -> None:
        """Add a photo to the failures."""
        # The text of an OSError has its number and the path of the sidecar too.
        reason = getattr(error, "strerror", None) or str(error)
        reason = f"{photo}: metadata not written: {reason}"
        self.failures.append(Failure(photo, reason))


def _rewrite(path: Path, packet: XmpPacket) -> None:
    """Replace the content of a sidecar that exists."""
    if is_read_only(path):
        raise CaptionError(f"{path.name} is read-only; make it writable")
    rewrite(path, packet.to_bytes())
