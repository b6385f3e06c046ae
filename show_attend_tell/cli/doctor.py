"""Define the verb ``doctor``: report missing software and how to install it."""

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Literal, NamedTuple

import click

from show_attend_tell import __version__

_PACKAGES = ("numpy", "pillow", "pydantic", "matplotlib")
_TRAINING = ("tensorflow", "keras", "h5py", "hdf5plugin", "nltk", "pycocoevalcap")


@click.command()
def doctor() -> None:
    """Check this machine and installation; exit with 1 on problems."""
    problems = 0
    for level, text in examine():
        click.echo(f"{level:8}{text}")
        problems += level == "problem"
    if problems:
        sys.exit(1)


class Finding(NamedTuple):
    """A line of the report: ``OK``, ``note`` (a missing feature) or ``problem``."""

    level: Literal["OK", "note", "problem"]
    text: str


def examine() -> Iterator[Finding]:
    """Yield the findings, one after the other."""
    yield from _check_packages()
    if find_spec("tensorflow") is None:
        return  # the plain install: the other findings are about training
    yield from _check_java()
    yield from _check_tensorflow()
    yield from _check_packaged_models()


def _check_packages() -> Iterator[Finding]:
    version = platform.python_version()
    software = f"show-attend-tell {__version__}, Python {version}"
    yield Finding("OK", f"{software} on {platform.platform()}")
    versions, missing = [], []
    for package in (*_PACKAGES, *_TRAINING):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    yield Finding("OK", ", ".join(versions))
    if missing:
        level = "problem" if set(missing) & set(_PACKAGES) else "note"
        remedy = "pip install '.[train]'; captions need pip install . alone"
        yield Finding(level, f"not installed: {', '.join(missing)}; {remedy}")


def _check_java() -> Iterator[Finding]:
    from show_attend_tell.evaluation.metrics.java import java_version
    from show_attend_tell.runtime.errors import JavaError

    try:
        yield Finding("OK", f"Java: {java_version()}")
    except JavaError as error:
        lost = "METEOR, SPICE and the PTB tokenizer are not available; other scores are"
        yield Finding("note", f"{error}: {lost}")


def _check_tensorflow() -> Iterator[Finding]:
    from show_attend_tell.runtime.errors import BackendError
    from show_attend_tell.runtime.tensorflow_startup import start_keras

    try:
        start_keras()
    except BackendError as error:
        yield Finding("problem", str(error))
        return
    import tensorflow as tf

    yield Finding("OK", "Keras runs on TensorFlow")
    devices = tf.config.list_physical_devices("GPU")
    names = ", ".join(device.name for device in devices) or "none, the CPU is used"
    yield Finding("OK", f"GPUs: {names}")


def _check_packaged_models() -> Iterator[Finding]:
    """Yield whether the pretrained models and the encoders' weights are complete.

    The files beside the default model must be present; their content is not read.
    """
    from show_attend_tell.config.captioner import SavedConfig
    from show_attend_tell.models.encoder import quantised_weights, scene_net
    from show_attend_tell.models.pretrained import NAMES, shipped_model
    from show_attend_tell.reference.model_file import read_model
    from show_attend_tell.runtime.errors import EncoderError, PretrainedModelError
    from show_attend_tell.runtime.untrusted import DAMAGED

    weights = quantised_weights.WEIGHTS
    try:
        for name in NAMES:
            saved = read_model(shipped_model(name), {"Captioner": SavedConfig})
            network = saved.config.encoder_identity.network
        quantised_weights.read_quantised()
        endings = (".reranker.npz", ".confidence.npz")
        beside = [shipped_model().with_suffix(ending) for ending in endings]
        for file in (*beside, scene_net.WEIGHTS):
            if not file.is_file():
                raise OSError(f"{file} is missing")
    except PretrainedModelError as error:
        yield Finding("note", str(error))
    except EncoderError as error:
        yield Finding("problem", str(error))
    except DAMAGED as error:
        yield Finding(
            "problem", f"damaged pretrained model ({error}); install the package again"
        )
    else:
        yield Finding(
            "OK",
            f"encoder of the pretrained models, {network} with 8 bits per weight: "
            f"{weights}, {weights.stat().st_size / 1e6:.1f} MB",
        )
