"""Convert models of digits and words of version 0.3."""

import tempfile
from pathlib import Path

import h5py
import numpy as np

from show_attend_tell.conversion.faults import conversion_of
from show_attend_tell.conversion.keras_files import OLD_SCALE, OldModel
from show_attend_tell.reference.tensor_file import SCALE, write_tensors
from show_attend_tell.runtime.files import atomic_path
from show_attend_tell.siblings.common.layers import SiblingModel, named_weights
from show_attend_tell.siblings.common.models import TaskModels


def convert_model(
    models: TaskModels, old: OldModel, source: Path, target: Path
) -> None:
    """Write a model of version 0.3 as a file of this version.

    Args:
        models: the models of its task.
        old: the model, opened from `source`.
        source: its file.
        target: path of the new file.

    Raises:
        ModelFileError: the file is damaged, or older.
        OSError: the new file cannot be written.
    """
    with atomic_path(target) as temporary, conversion_of(source, temporary):
        model_class = models.class_named(old.class_name)
        # Files of version 0.3 have no `texts`, which have defaults.
        known = ("settings", "seed", *model_class.sizes)
        config = {name: old.values[name] for name in known if name in old.values}
        shapes = models.shapes_of(model_class, config)
        # The file has the state of the optimiser too, which stays behind.
        stored = old.arrays.shapes("optimizer")
        weights = {name for name in stored if not name.endswith(OLD_SCALE)}
        if len(weights) != len(shapes):
            raise ValueError(f"it must have {len(shapes)} weights, not {len(weights)}")
        arrays = {}
        for name, path in _places(models.make(model_class, config)).items():
            arrays[name] = old.arrays.read(path, shapes[name])
            if arrays[name].dtype == np.int8:
                scale = old.arrays.read(path + OLD_SCALE, shapes[name][-1:])
                arrays[name + SCALE] = scale.astype(np.float32)
        write_tensors(temporary, {"class": old.class_name, "config": config}, arrays)
        models.load(temporary)  # verifies it


def _places(model: SiblingModel) -> dict[str, str]:
    """Return the path of each weight in a file of Keras, by its name.

    Keras writes a file in which each weight is filled with its own number.
    """
    names = list(named_weights(model))
    for number, weight in enumerate(model.weights):
        weight.assign(np.full(weight.shape, number, np.float32))
    places: dict[str, str] = {}

    def visit(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            places[names[int(item[()].flat[0])]] = path

    # Keras names the arrays of a file by its own rules. It applies them here itself, so
    # that this module need not repeat them.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.weights.h5"
        model.save_weights(file)
        with h5py.File(file, "r") as content:
            content.visititems(visit)
    return places
