"""Read and write the XMP packets inside photo files with the program exiftool.

exiftool runs as a process of its own; PyExifTool keeps it open for all photos.
"""

import os
import shutil
import tempfile
from pathlib import Path

import exiftool
from exiftool.exceptions import ExifToolException

from show_attend_tell.inference.metadata.existing_words import (
    words_in_photo,
    words_in_sidecars,
)
from show_attend_tell.runtime.errors import MetadataError, one_line
from show_attend_tell.runtime.files import atomic_path


class PhotoFiles:
    """XMP packets inside the files of photos.

    Raises:
        MetadataError: exiftool is absent, or cannot be run.
    """

    def __init__(self):
        self._process = None
        try:
            self._process = exiftool.ExifTool(common_args=[])
            self._process.run()
        except (ExifToolException, OSError) as error:
            raise MetadataError(
                f"exiftool cannot be run: {one_line(error)}; install it (Debian: "
                "libimage-exiftool-perl), or write sidecars"
            ) from None

    def read(self, photo: Path) -> bytes | None:
        """Return the packet of a photo, None if it has none."""
        return self._execute(b"-b", b"-XMP", _argument(photo)) or None

    def words(self, photo: Path) -> str:
        """Return the words of a person, wherever a photo program looks for them."""
        return words_in_photo(photo) or words_in_sidecars(photo)

    def write(self, photo: Path, packet: bytes) -> Path:
        """Replace the packet of a photo; a link is followed, the file is atomic.

        Pixels and other metadata are copied as they are.
        """
        target = Path(os.path.realpath(photo))
        with (
            tempfile.NamedTemporaryFile(suffix=".xmp") as file,
            atomic_path(target) as temporary,
        ):
            file.write(packet)
            file.flush()
            changes = b"-XMP<=" + os.fsencode(file.name)
            self._execute(changes, b"-o", _argument(temporary), _argument(target))
            if not temporary.exists() or self.read(temporary) is None:
                raise MetadataError("exiftool cannot write XMP into this format")
            shutil.copymode(target, temporary)
        return photo

    def close(self) -> None:
        """Stop exiftool."""
        self._process.terminate()

    def _execute(self, *arguments: bytes) -> bytes:
        """Run a command of exiftool and return its output."""
        options = (b"-q", b"-charset", b"filename=utf8")
        try:
            output = self._process.execute(*options, *arguments, raw_bytes=True)
        except (ExifToolException, OSError, UnicodeDecodeError) as error:
            raise MetadataError(f"exiftool failed: {one_line(error)}") from None
        errors = self._process.last_stderr or b""
        if self._process.last_status:
            text = errors.decode("utf-8", "replace")
            raise MetadataError(f"exiftool: {one_line(text or 'failed')}")
        return output


def _argument(path: Path) -> bytes:
    """Return a path as an argument; PyExifTool separates arguments by line breaks."""
    name = os.fsencode(os.path.abspath(path))
    if b"\n" in name or b"\r" in name:
        raise MetadataError("its name has a line break, which exiftool cannot read")
    return name
