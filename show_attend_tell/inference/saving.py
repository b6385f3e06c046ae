"""Save a captioner as a model file, with the files that belong to it beside it."""

import shutil
from pathlib import Path

from show_attend_tell.inference.confidence import calibration_path, find_calibration
from show_attend_tell.reference.captioner import Generator
from show_attend_tell.reference.reranker import reranker_beside
from show_attend_tell.runtime.errors import CalibrationError, CaptionError
from show_attend_tell.runtime.files import atomic_path


def save_model(
    generator: Generator, source: Path | tuple[Path, ...] | None, file: str | Path
) -> None:
    """Write the captioner, and beside it what its own file has there.

    These are the reranker, the encoder's weights if they are a file, and the
    calibration. A calibration holds for its model only: after changes of the weights,
    none is written.

    Args:
        generator: of one captioner of Keras.
        source: the model file that it was loaded from, if any.
        file: ends with ``.keras``; replaced if it exists.

    Raises:
        CaptionError: there are several models, or `file` has another ending.
        OSError: a file cannot be written.
    """
    file = Path(file)
    if generator.captioner is None or file.suffix != ".keras":
        raise CaptionError(
            "`save` needs one model without mirror images, and a file that ends with "
            f".keras. Received: {len(generator.members)} models, mirror="
            f"{generator.mirror}, {str(file)!r}; correct it"
        )
    beside = {reranker_beside(file): generator.reranker and generator.reranker.file}
    beside[calibration_path(file)] = None
    if isinstance(source, Path):
        try:
            if find_calibration(generator, source) is not None:
                beside[calibration_path(file)] = calibration_path(source)
        except CalibrationError:  # for other weights than these
            pass
        weights = source.with_name(generator.encoder_identity["weights"])
        if weights.is_file():
            beside[file.with_name(weights.name)] = weights
    with atomic_path(file) as temporary:
        generator.captioner.save(temporary)
    for path, original in beside.items():
        if original is None:
            path.unlink(missing_ok=True)  # of a model that was here
        elif Path(original).resolve() != path.resolve():
            shutil.copyfile(original, path)
