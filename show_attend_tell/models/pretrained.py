"""Find the trained captioners of the package, and write any as a hub's folder.

A folder holds the model, ``model.safetensors``, and its card, ``README.md``, whose
first lines are metadata in YAML: https://huggingface.co/docs/hub/model-cards. For
``keras.saving.load_model`` it has KerasHub's layout too: ``config.json``,
``metadata.json`` and ``model.weights.h5``, which nothing here reads.
"""

import json
import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np

from show_attend_tell.config.captioner import DECODERS, SavedConfig
from show_attend_tell.reference.captioner import Captioner
from show_attend_tell.reference.decoder import WeightLayout
from show_attend_tell.reference.model_file import (
    CAPTIONER,
    PARTS,
    Part,
    part_of,
    read_captioner,
)
from show_attend_tell.reference.tensor_file import (
    SUFFIX,
    open_tensors,
    require_current,
)
from show_attend_tell.runtime.errors import (
    ModelFileError,
    SetupError,
    nearest,
    quote,
)
from show_attend_tell.runtime.files import atomic_path

SHIPPED = Path(str(files(__package__))) / "weights" / "everyday.safetensors"
SHIPPED_LSTM = SHIPPED.with_name("everyday_lstm.safetensors")
# Trained on Flickr8k alone, for comparisons; in a checkout only.
# parents[3] is the root of the checkout.
FLICKR8K = SHIPPED.parents[3] / "experiments" / "models" / "flickr8k.safetensors"
FLICKR8K_LSTM = FLICKR8K.with_name("flickr8k_lstm.safetensors")
CARD = SHIPPED.with_name("MODEL_CARD.md")
DEFAULT = "shipped"
_MODEL = "model.safetensors"  # in a folder
# In place of a file or a run, and of a preset.
PRESETS = {
    DEFAULT: SHIPPED,
    "shipped-lstm": SHIPPED_LSTM,
    "flickr8k": FLICKR8K,
    "flickr8k-lstm": FLICKR8K_LSTM,
}
NAMES = tuple(PRESETS)
PACKAGED = (DEFAULT, "shipped-lstm")  # also outside of a checkout
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


def shipped_model(name: str = DEFAULT) -> Path:
    """Return the path of a model in the package.

    Args:
        name: ``shipped``, the model with the best scores, a Transformer;
            ``shipped-lstm``, the paper's decoder; or ``flickr8k`` or
            ``flickr8k-lstm``, the same of Flickr8k alone, in a checkout.

    Raises:
        SetupError: the installation has no such model.
    """
    path = PRESETS[name]
    if not path.is_file():
        raise SetupError(
            f"{path}: this installation has no model {name!r}; name another, or train "
            "one and pass its file as --model"
        )
    return path


def model_path(name: str, runs_folder: str | Path) -> Path:
    """Return the file of a model.

    Args:
        name: one of :data:`NAMES`, or see :func:`config.runs.find_model`.
        runs_folder: the folder of all runs.

    Raises:
        SetupError: the installation has no such model.
        ModelFileError: there is no such file and no such run.
    """
    if name in NAMES:
        return shipped_model(name)
    from show_attend_tell.config import runs  # slow, and packaged models need none

    path = runs.find_model(name, runs_folder)
    # Before the check that the file exists: a path of version 0.3 gets the advice to
    # convert it, whether or not it is there.
    require_current(path, ModelFileError)
    models = Path(runs_folder).glob("*/*.safetensors")
    known = [*NAMES, *(model.parent.name for model in models)]
    if not path.exists() and (close := nearest(name, known)):
        raise ModelFileError(
            f"`model` must be a .safetensors file, a run or one of {', '.join(NAMES)}. "
            f"Received: {quote(name)}{close}; correct the name"
        )
    if not path.exists() and not name.endswith(SUFFIX):
        raise ModelFileError(
            f"{name!r}: no such model: no file, no folder of a run and no run in "
            f"{runs_folder}; name a .safetensors file, train the run, or choose one of "
            f"{', '.join(NAMES)}"
        )
    return path


def reranker_file(name: str | os.PathLike[str] | None) -> str | None:
    """Return the file of a reranker.

    Args:
        name: a file, ``none``, or one of :data:`NAMES`, whose file may have one; None
            for the reranker of the model.

    Raises:
        SetupError: the installation has no such model.
    """
    if name is None:
        return None
    text = os.fspath(name)
    return str(shipped_model(text)) if text in NAMES else text


def read_preset(
    preset: str | Path,
    layout_of: Callable[[SavedConfig], list[WeightLayout]],
) -> Captioner:
    """Read a captioner of the package or of a folder.

    Args:
        preset: a key of :data:`PRESETS`, or a folder.
        layout_of: see :func:`read_captioner`.

    Raises:
        SetupError: the installation has no such model.
        ModelFileError: there is none; or see :func:`read_captioner`, which reads the
            folder as it reads a model file.
    """
    # A name of the package comes before a folder of the same name.
    if str(preset) in PRESETS:
        return read_captioner(shipped_model(str(preset)), layout_of)
    file = Path(preset) / _MODEL
    if not file.is_file():
        if (old := Path(preset) / "model.weights.h5").is_file():
            require_current(old, ModelFileError)
        raise ModelFileError(
            f"`preset` must be {' or '.join(PRESETS)}, or a folder that "
            f"`save_to_preset` wrote. Received: {str(preset)!r}"
        )
    return read_captioner(file, layout_of)


def save_preset(model, folder: str | Path) -> None:
    """Write a captioner and its card to a new folder, atomically.

    A captioner with the weights of a model in the package gets that model's card.

    Args:
        model: a Captioner of Keras.
        folder: absent or empty.

    Raises:
        OSError: the folder has files or cannot be written.
    """
    import keras

    # Absolute: Keras joins a relative path with a folder of its own.
    with atomic_path(Path(folder).absolute()) as temporary:
        # Keras' own form, unzipped a folder; the captioner's `save` would take a name
        # with the suffix .safetensors for a file.
        keras.Model.save(model, temporary, zipped=False)
        (temporary / "assets").rmdir()  # a captioner has none
        file = temporary / "metadata.json"
        metadata = json.loads(file.read_bytes())
        # KerasHub writes this entry too; Keras does not.
        metadata["parameter_count"] = model.count_params()
        file.write_text(json.dumps(metadata, indent=4), "utf-8")
        title = Path(folder).name
        card = {"license": "other"}
        rest = _UNFINISHED
        parts = {}
        # The reranker and the calibration hold for exactly these weights.
        if (shipped := _shipped(model)) is not None:
            parts = _parts(PRESETS[shipped])
            title = shipped
            rest = CARD.read_text("utf-8")
            card["license_name"] = "research-and-education"
            card["license_link"] = "README.md#licence"
        model.save_with(parts, temporary / _MODEL)
        (temporary / "README.md").write_text(_card(model, title, card) + rest, "utf-8")


def _parts(file: Path) -> dict[str, Part]:
    """Return the reranker and the calibration of a model in the package."""
    with open_tensors(file, CAPTIONER) as opened:
        return {name: part_of(opened, name) for name in PARTS if name in opened.about}


def _card(model, title: str, metadata: dict) -> str:
    """Return the card's metadata and its first paragraphs."""
    metadata |= {
        "library_name": "keras",
        "pipeline_tag": "image-to-text",
        "language": "en",
        "tags": ["image-captioning", "show-attend-and-tell"],
    }
    # Values in JSON are YAML, too.
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in metadata.items()]
    body = _BODY.format(
        title=title,
        decoder=DECODERS[model.settings.decoder].title,
        parameters=model.count_params(),
        words=len(model.vocabulary),
    )
    return f"---\n{''.join(lines)}---\n\n{body}"


def _shipped(model) -> str | None:
    """Return the name of the model in the package with the same weights, if any."""
    for name, file in PRESETS.items():
        # The models of Flickr8k alone are in a checkout only.
        weights = read_captioner(file).weights if file.is_file() else ()
        if len(weights) == len(model.weights) and all(
            np.array_equal(np.asarray(own), other)
            for own, other in zip(model.weights, weights, strict=True)
        ):
            return name
    return None
