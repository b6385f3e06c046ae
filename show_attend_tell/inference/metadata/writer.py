"""Write captions into the metadata of photos, in sidecars or in the files."""

import contextlib
import shutil
from pathlib import Path
from types import TracebackType
from typing import Literal

from show_attend_tell.inference.metadata.existing_words import (
    read_sidecar,
    sidecar_of,
    words_in_photo,
    words_in_sidecars,
)
from show_attend_tell.inference.metadata.xmp import XmpPacket
from show_attend_tell.inference.result import Failure
from show_attend_tell.inference.sentence import as_sentence
from show_attend_tell.runtime.errors import MetadataError
from show_attend_tell.runtime.files import atomic_path

Target = Literal["sidecar", "file"]


class Sidecars:
    """XMP packets in files beside the photos."""

    def read(self, photo: Path) -> bytes | None:
        """Return the packet of a photo, None if it has no sidecar."""
        return read_sidecar(sidecar_of(photo))

    def words(self, photo: Path) -> str:
        """Return the words of a person, wherever a photo program looks for them."""
        return words_in_sidecars(photo) or words_in_photo(photo)

    def write(self, photo: Path, packet: bytes) -> Path:
        """Write the sidecar of a photo atomically and return its path."""
        path = sidecar_of(photo)
        with atomic_path(path) as temporary:
            temporary.write_bytes(packet)
            if path.exists():
                shutil.copymode(path, temporary)
        return path

    def close(self) -> None:
        """Do nothing; no process runs."""


class MetadataWriter:
    """Write the captions of photos into their metadata; a context manager.

    Words of a person are kept: in the packet, in the photo's EXIF and IPTC fields, and
    in its sidecars. Captions of this package are renewed unless the same model and
    settings wrote them.

    Attributes:
        written: number of photos whose metadata were written.
        present: number of photos that had the caption already.
        kept: photos that have words of a person.
        failures: photos whose metadata cannot be read or written.
    """

    def __init__(self, made_by: str, into: Target = "sidecar", overwrite: bool = False):
        """Start the writer.

        Args:
            made_by: the model and settings, from ``inference.batch.made_by``.
            into: ``sidecar``, or ``file``, which needs exiftool.
            overwrite: whether to replace words of a person.

        Raises:
            MetadataError: `into` is ``file``, and exiftool or PyExifTool is absent.
        """
        self.made_by, self.overwrite = made_by, overwrite
        self.written = self.present = 0
        self.kept: list[Path] = []
        self.failures: list[Failure] = []
        self._packets = Sidecars() if into == "sidecar" else _photo_files()

    def __enter__(self) -> "MetadataWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._packets.close()

    def find_caption(self, photo: Path) -> str:
        """Return the caption that the same model and settings wrote, empty for none."""
        with contextlib.suppress(MetadataError, OSError):
            packet = XmpPacket(self._packets.read(photo))
            return packet.caption if packet.made_by == self.made_by else ""
        return ""

    def write(self, photo: Path, text: str) -> Path | None:
        """Write a caption unless the photo has it, or words of a person.

        Args:
            photo: path of the photo.
            text: the caption; its sentence is written.

        Returns:
            The file written, None for none. :attr:`failures` has the reason if the
            metadata cannot be read or written.
        """
        try:
            return self._write(photo, as_sentence(text))
        except (MetadataError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            self.failures.append(
                Failure(photo, f"{photo}: metadata not written: {reason}")
            )
            return None

    def summary(self) -> str:
        """Return the counts in one line."""
        parts = [f"metadata: {self.written} captions written"]
        if self.present:
            parts.append(f"{self.present} already present")
        if self.kept:
            parts.append(
                f"{len(self.kept)} photos keep their own description "
                "(--overwrite-metadata replaces it)"
            )
        if self.failures:
            parts.append(f"{len(self.failures)} not written")
        return ", ".join(parts)

    def _write(self, photo: Path, sentence: str) -> Path | None:
        packet = XmpPacket(self._packets.read(photo))
        if packet.made_by == self.made_by and packet.caption == sentence:
            self.present += 1
            return None
        if not self.overwrite and (packet.words() or self._packets.words(photo)):
            self.kept.append(photo)
            return None
        if not sentence:
            return None
        packet.set_caption(sentence, self.made_by)
        path = self._packets.write(photo, packet.to_bytes())
        self.written += 1
        return path


def _photo_files():
    """Return the packets inside photo files, which need an extra."""
    try:
        from show_attend_tell.inference.metadata.exiftool_packets import PhotoFiles
    except ImportError:
        raise MetadataError(
            "metadata inside photo files need PyExifTool; run "
            "pip install PyExifTool, or write sidecars"
        ) from None
    return PhotoFiles()
