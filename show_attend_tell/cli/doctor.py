"""Check the machine and the installation, and report problems."""

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from show_attend_tell import __version__
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.models.pretrained import NAMES, shipped_model
from show_attend_tell.runtime.errors import (
    BackendError,
    EncoderError,
    PretrainedModelError,
)
from show_attend_tell.runtime.processor import instruction_sets
from show_attend_tell.runtime.tensorflow_startup import start_keras

_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("tensorflow", "keras", "numpy", "h5py", "hdf5plugin", "pillow")
_PACKAGES += ("nltk", "pycocoevalcap", "pydantic", "matplotlib", "tensorboard")
_LITTLE_DISK = 5e9  # bytes; Flickr8k and its features need more
_LITTLE_MEMORY = 4e9  # bytes


class Finding(NamedTuple):
    """A line of the report: ``OK``, ``note`` (a missing feature) or ``problem``."""

    level: Literal["OK", "note", "problem"]
    text: str


def examine() -> Iterator[Finding]:
    """Yield the findings, one after the other."""
    yield from _check_python()
    yield from _check_packages()
    yield from _check_processor()
    yield from _check_space()
    yield from _check_java()
    yield from _check_tensorflow()
    yield from _check_packaged_encoder()
    yield from _check_imagenet_weights()


def _check_python() -> Iterator[Finding]:
    version = platform.python_version()
    supported = sys.version_info >= _OLDEST_PYTHON
    yield Finding(
        "OK" if supported else "problem",
        f"show-attend-tell {__version__}, Python {version} on {platform.platform()}",
    )


def _check_packages() -> Iterator[Finding]:
    versions, missing = [], []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    yield Finding("OK", ", ".join(versions))
    if missing:
        yield Finding("problem", f"not installed: {', '.join(missing)}; pip install .")


def _check_processor() -> Iterator[Finding]:
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    yield Finding("OK", f"{count} processor cores ({platform.machine()})")
    sets = instruction_sets()
    if sets is None:
        yield Finding("note", "cannot determine whether bfloat16 is fast here")
    elif "amx_bf16" in sets:
        yield Finding("OK", "amx_bf16: photos are encoded in bfloat16")
    else:
        yield Finding(
            "OK", "no matrix units for bfloat16: photos are encoded in float32"
        )


def _check_space() -> Iterator[Finding]:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        level = "OK" if memory >= _LITTLE_MEMORY else "note"
        yield Finding(level, f"{memory / 1e9:.1f} GB of memory")
    free = shutil.disk_usage(Path.cwd()).free
    level = "OK" if free >= _LITTLE_DISK else "note"
    yield Finding(level, f"{free / 1e9:.1f} GB free in {Path.cwd()}")


def _check_java() -> Iterator[Finding]:
    lost = "METEOR, SPICE and the PTB tokenizer are not available; other scores are"
    java = shutil.which("java")
    if java is None:
        yield Finding("note", f"no Java on the PATH: {lost}")
        return
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("note", f"{java} does not run ({error}): {lost}")
        return
    if done.returncode:
        yield Finding("note", f"{java} -version fails with {done.returncode}: {lost}")
    else:
        yield Finding(
            "OK", f"Java: {(done.stderr or done.stdout or java).splitlines()[0]}"
        )


def _check_tensorflow() -> Iterator[Finding]:
    try:
        start_keras()
    except BackendError as error:
        yield Finding("problem", str(error))
        return
    import tensorflow as tf

    from show_attend_tell.models.encoder.scene_net import WEIGHTS

    yield Finding("OK", "Keras runs on TensorFlow")
    devices = tf.config.list_physical_devices("GPU")
    names = ", ".join(device.name for device in devices) or "none, the CPU is used"
    yield Finding("OK", f"GPUs: {names}")
    if WEIGHTS.is_file():
        yield Finding("OK", f"SceneNet weights: {WEIGHTS}")
    else:
        yield Finding("problem", f"{WEIGHTS} is missing; install the package again")


def _check_packaged_encoder() -> Iterator[Finding]:
    """Yield whether the pretrained models and the encoder's weights are complete.

    The files beside the default model must be present; their content is not read.
    """
    from show_attend_tell.models.encoder.quantised_weights import (
        WEIGHTS,
        read_quantised,
    )

    try:
        for name in NAMES:
            network = _pretrained_network(name)
        read_quantised()
        for ending in (".reranker.npz", ".confidence.npz"):
            if not (beside := shipped_model().with_suffix(ending)).is_file():
                raise OSError(f"{beside} is missing")
    except PretrainedModelError as error:
        yield Finding("note", str(error))
    except EncoderError as error:
        yield Finding("problem", str(error))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        yield Finding(
            "problem", f"damaged pretrained model ({error}); install the package again"
        )
    else:
        yield Finding(
            "OK",
            f"encoder of the pretrained models, {network} with 8 bits per weight: "
            f"{WEIGHTS}, {WEIGHTS.stat().st_size / 1e6:.1f} MB",
        )


def _check_imagenet_weights() -> Iterator[Finding]:
    """Yield whether Keras has downloaded the weights of the default encoder."""
    network = EncoderSettings().network
    home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    files = sorted(home.glob(f"models/{network.lower()}_weights*notop*"))
    what = f"ImageNet weights of {network} (the default of [encoder])"
    if files:
        yield Finding("OK", f"{what}: {files[0]}")
    else:
        yield Finding(
            "note",
            f"{what} are not in {home / 'models'}: Keras downloads them on first use, "
            "or pass --encoder-weights FILE",
        )


def _pretrained_network(name: str) -> str:
    """Return the encoder network of a pretrained model, without loading Keras."""
    with zipfile.ZipFile(shipped_model(name)) as archive:
        config = json.loads(archive.read("config.json"))["config"]
    return config["encoder_identity"]["network"]
