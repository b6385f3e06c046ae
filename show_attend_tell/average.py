"""One model from several: the mean of their weights.

Models that were trained further from the same start lie close together, and the mean
of their weights tends to write better captions than each of them, at the cost of one
(model soups, Wortsman et al., ICML 2022).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.captioner import Captioner
from show_attend_tell.model_file import ModelFileError, copy_weights, load_captioner
from show_attend_tell.runs import SETTINGS, write_text


def average_models(paths: Sequence[str | Path], out: str | Path) -> Captioner:
    """Write the mean of models; settings and decoding are the first one's.

    The settings file of the first one's run is copied beside it.

    Args:
        paths: two model files or more, of the same words, encoder and widths.
        out: the ``.keras`` file to write; all or nothing.

    Returns:
        The model written.

    Raises:
        ModelFileError: there are fewer than two models, one cannot be read or does
            not go with the first, or ``out`` does not end in ``.keras``.
    """
    if len(paths) < 2:
        raise ModelFileError(
            f"`models` must be two or more. Received: {len(paths)}; name the models of "
            "several trainings from the same start"
        )
    out = Path(out)
    if out.suffix != ".keras":
        raise ModelFileError(f"`out` must end in .keras. Received: {out}; rename it")
    model = load_captioner(paths[0])
    sums = [np.asarray(weight, np.float64) for weight in model.weights]
    other = Captioner.from_config(model.get_config())
    for path in paths[1:]:
        copy_weights(path, other)
        sums = [s + np.asarray(w) for s, w in zip(sums, other.weights, strict=True)]
    for weight, total in zip(model.weights, sums, strict=True):
        weight.assign(total / len(paths))
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name("saving-" + out.name)
    model.save(temporary)
    temporary.replace(out)
    settings = Path(paths[0]).with_name(SETTINGS)
    if settings.is_file() and settings.parent != out.parent:
        write_text(out.with_name(SETTINGS), settings.read_text(encoding="utf-8"))
    return model
