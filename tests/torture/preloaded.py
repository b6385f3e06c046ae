"""Import what every stage imports, before processes are forked."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py  # noqa: F401
import keras  # noqa: F401
import PIL.Image  # noqa: F401
import tensorflow  # noqa: F401
