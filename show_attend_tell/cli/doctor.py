"""Look at the machine and the installation: what works, and what is missing."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from show_attend_tell import __version__
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("tensorflow", "keras", "numpy", "h5py", "hdf5plugin", "pillow")
_PACKAGES += ("nltk", "pycocoevalcap", "pydantic", "matplotlib", "tensorboard")
_LITTLE_ROOM = 5e9  # bytes; less does not hold Flickr8k with its features
_LITTLE_MEMORY = 4e9  # bytes


class Finding(NamedTuple):
    """One line of the report: ``OK``, ``note`` (something is lost) or ``problem``."""

    level: Literal["OK", "note", "problem"]
    text: str


def examine() -> Iterator[Finding]:
    """Yield what is found, one thing at a time."""
    yield from _python()
    yield from _packages()
    yield from _processor()
    yield from _room()
    yield from _java()
    yield from _tensorflow()
    yield _imagenet_weights()


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    fits = sys.version_info >= _OLDEST_PYTHON
    yield Finding(
        "OK" if fits else "problem",
        f"show-attend-tell {__version__}, Python {version} on {platform.platform()}",
    )


def _packages() -> Iterator[Finding]:
    versions, missing = [], []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    yield Finding("OK", ", ".join(versions))
    if missing:
        yield Finding("problem", f"not installed: {', '.join(missing)}; pip install .")


def _processor() -> Iterator[Finding]:
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    yield Finding("OK", f"{count} processor cores ({platform.machine()})")
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        yield Finding("note", "this system does not tell if bfloat16 is fast here")
        return
    fast = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    if fast:
        yield Finding(
            "OK",
            f"{', '.join(fast)}: encoder.precision = 'bfloat16' is the faster choice",
        )
    else:
        yield Finding("OK", "no bfloat16 units: keep encoder.precision = 'float32'")


def _room() -> Iterator[Finding]:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        level = "OK" if memory >= _LITTLE_MEMORY else "note"
        yield Finding(level, f"{memory / 1e9:.1f} GB of memory")
    free = shutil.disk_usage(Path.cwd()).free
    level = "OK" if free >= _LITTLE_ROOM else "note"
    yield Finding(level, f"{free / 1e9:.1f} GB free in {Path.cwd()}")


def _java() -> Iterator[Finding]:
    lost = "METEOR and the PTB tokenizer are left out; other scores still come"
    java = shutil.which("java")
    if java is None:
        yield Finding("note", f"no Java on the PATH: {lost}")
        return
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("note", f"{java} does not run ({error}): {lost}")
        return
    if told.returncode:
        yield Finding("note", f"{java} -version fails with {told.returncode}: {lost}")
    else:
        yield Finding("OK", f"Java: {told.stderr.splitlines()[0]}")


def _tensorflow() -> Iterator[Finding]:
    try:
        start_tensorflow()
        import keras
        import tensorflow as tf

        from show_attend_tell.models.scene_net import WEIGHTS
    except ImportError as error:
        yield Finding("problem", f"TensorFlow or Keras cannot be imported: {error}")
        return
    backend = keras.backend.backend()
    if backend == "tensorflow":
        yield Finding("OK", "Keras runs on TensorFlow")
    else:
        yield Finding(
            "problem", f"Keras runs on {backend}; set KERAS_BACKEND=tensorflow"
        )
    cards = tf.config.list_physical_devices("GPU")
    names = ", ".join(card.name for card in cards) or "none, the processor does it all"
    yield Finding("OK", f"graphics processors: {names}")
    if WEIGHTS.is_file():
        yield Finding("OK", f"SceneNet weights: {WEIGHTS}")
    else:
        yield Finding("problem", f"{WEIGHTS} is missing; install the package again")


def _imagenet_weights() -> Finding:
    """Tell whether Keras has the weights of the default encoder already."""
    network = EncoderSettings().network
    home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    files = sorted(home.glob(f"models/{network.lower()}_weights*notop*"))
    if files:
        return Finding("OK", f"ImageNet weights of {network}: {files[0]}")
    return Finding(
        "note",
        f"ImageNet weights of {network} are not in {home / 'models'}: Keras fetches "
        "them on first use, or name a file with --encoder-weights",
    )
