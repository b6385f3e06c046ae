"""Load captioners and generators from their model files."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from show_attend_tell.models.captioner import Captioner, layout_of
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference import captioner, generator, model_file


def load_captioner(path: str | Path) -> Captioner:
    """Load a captioner from its model file.

    Raises:
        ModelFileError: the file is absent, damaged or not a captioner's, or its
            weights are not finite.
    """
    return Captioner.from_saved(read_captioner(path))


def read_captioner(path: str | Path) -> captioner.Captioner:
    """Read a captioner of any decoder, see :func:`reference.model_file.read_captioner`.

    Keras knows the weights of a decoder without equations in NumPy.
    """
    return model_file.read_captioner(path, layout_of)


def load_generator(
    files: Sequence[str | Path],
    mirror: bool = False,
    reranker: str | Path | None = None,
) -> Generator:
    """Load Keras captioners, see :func:`reference.generator.load_generator`."""
    loaded = generator.load_generator(
        files, mirror, reranker, load_captioner, Generator
    )
    return cast(Generator, loaded)  # of the class that it was given
