"""Save captioners as folders in KerasHub's layout, with a card for a model hub.

``config.json``, ``metadata.json`` and ``model.weights.h5`` are those of a ``.keras``
file; ``README.md`` is the card, whose first lines are metadata in YAML:
https://huggingface.co/docs/hub/model-cards. Reranker and calibration of a model in the
package are beside the weights, as they are beside a ``.keras`` file.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from show_attend_tell.models.pretrained import (
    CARD,
    FLICKR8K,
    FLICKR8K_LSTM,
    SHIPPED,
    SHIPPED_LSTM,
)
from show_attend_tell.reference.model_file import WEIGHTS, Captioner, read_captioner
from show_attend_tell.runtime.errors import ModelFileError, PretrainedModelError
from show_attend_tell.runtime.files import atomic_path

# The models of Flickr8k alone are in a checkout only.
PRESETS = {path.stem: path for path in (SHIPPED, SHIPPED_LSTM, FLICKR8K, FLICKR8K_LSTM)}
# On Flickr8k's photos of a split, as the card in the package has them.
_METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "CIDEr")
SCORES = {
    "everyday": ("dev", 65.56, 47.63, 34.0, 23.71, 21.37, 59.27),
    "everyday_lstm": ("dev", 63.61, 45.02, 31.3, 21.28, 19.93, 53.88),
    "flickr8k": ("test", 65.7, 48.0, 34.5, 24.33, 21.78, 64.0),
    "flickr8k_lstm": ("test", 63.7, 45.8, 32.2, 22.05, 20.83, 58.0),
}
_TASK = "image-to-text"  # the hub's name
_DECODERS = {"lstm": "An LSTM", "transformer": "A Transformer"}
_BODY = """\
# {title}

{decoder} of {parameters:,} parameters and {words:,} words, after *Show, Attend and
Tell* ([arXiv:1502.03044](https://arxiv.org/abs/1502.03044)).

```python
import show_attend_tell as sat

pipeline = sat.load("the folder of this card")
print(pipeline.caption("photo.jpg").sentence)
captioner = sat.Captioner.from_preset("the folder of this card")  # a Keras model
```

"""
_UNFINISHED = "Add its training data, intended use and limits here.\n"


def read_preset(preset: str | Path) -> Captioner:
    """Read a captioner of the package or of a folder.

    Args:
        preset: a key of :data:`PRESETS`, or a folder.

    Raises:
        ModelFileError: there is none; or see :func:`read_captioner`, which reads the
            folder as it reads a model file.
        PretrainedModelError: the installation has no such model.
    """
    if preset in PRESETS:
        file = PRESETS[preset]
        if not file.is_file():
            raise PretrainedModelError(
                f"{file}: this installation has no such model; take it from a checkout"
            )
        return read_captioner(file)
    file = Path(preset) / WEIGHTS
    if not file.is_file():
        raise ModelFileError(
            f"`preset` must be {' or '.join(PRESETS)}, or a folder that "
            f"`save_to_preset` wrote. Received: {str(preset)!r}"
        )
    return read_captioner(file)


def save_preset(model, folder: str | Path) -> None:
    """Write a captioner and its card to a new folder, atomically.

    A captioner with the weights of a model in the package gets that model's card.

    Args:
        model: a Captioner of Keras.
        folder: absent or empty.

    Raises:
        OSError: the folder has files or cannot be written.
    """
    with atomic_path(folder) as temporary:
        model.save(temporary, zipped=False)
        (temporary / "assets").rmdir()  # a captioner has none
        file = temporary / "metadata.json"
        metadata = json.loads(file.read_bytes())
        metadata["parameter_count"] = model.count_params()
        file.write_text(json.dumps(metadata, indent=4), "utf-8")
        title, rest, card = Path(folder).name, _UNFINISHED, {"license": "other"}
        if (shipped := _shipped(model)) is not None:
            source = PRESETS[shipped]
            for other in source.parent.glob(f"{source.stem}.*.npz"):
                name = other.name.removeprefix(source.stem)
                shutil.copyfile(other, temporary / f"{Path(WEIGHTS).stem}{name}")
            title, rest = shipped, CARD.read_text("utf-8")
            card["license_name"] = "research-and-education"
            card["license_link"] = "README.md#licence"
            card["model-index"] = [{"name": title, "results": [_result(title)]}]
        (temporary / "README.md").write_text(_card(model, title, card) + rest, "utf-8")


def _result(title: str) -> dict:
    """Return the scores of a model in the package as the hub's metadata."""
    split, *values = SCORES[title]
    return {
        "task": {"type": _TASK, "name": "Image captioning"},
        "dataset": {"type": "flickr8k", "name": "Flickr8k", "split": split},
        "metrics": [
            {"type": name.lower(), "name": name, "value": value}
            for name, value in zip(_METRICS, values, strict=True)
        ],
    }


def _card(model, title: str, metadata: dict) -> str:
    """Return the card's metadata and its first paragraphs."""
    metadata |= {
        "library_name": "keras",
        "pipeline_tag": _TASK,
        "language": "en",
        "tags": ["image-captioning", "show-attend-and-tell"],
    }
    # Values in JSON are YAML, too.
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in metadata.items()]
    body = _BODY.format(
        title=title,
        decoder=_DECODERS[model.settings.decoder],
        parameters=model.count_params(),
        words=len(model.vocabulary),
    )
    return f"---\n{''.join(lines)}---\n\n{body}"


def _shipped(model) -> str | None:
    """Return the name of the model in the package with the same weights, if any."""
    for name in PRESETS:
        try:
            weights = read_preset(name).weights
        except PretrainedModelError:  # an installation may have no models
            continue
        if len(weights) == len(model.weights) and all(
            np.array_equal(np.asarray(own), other)
            for own, other in zip(model.weights, weights, strict=True)
        ):
            return name
    return None
