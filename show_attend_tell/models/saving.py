"""Load captioners and generators from their model files."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference import captioner
from show_attend_tell.reference.model_file import read_captioner


def load_captioner(path: str | Path) -> Captioner:
    """Load a captioner from its model file, see :func:`read_captioner`.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's, or its
            weights are not finite.
    """
    return Captioner.from_saved(read_captioner(path))


def load_generator(
    files: Sequence[str | Path],
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> Generator:
    """Load Keras captioners, see :func:`reference.captioner.load_generator`."""
    generator = captioner.load_generator(
        files, mirror, reranker, load_captioner, Generator
    )
    return cast(Generator, generator)  # of the class that it was given
