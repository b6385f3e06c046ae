"""Small settings of a captioner, and the message that refuses wrong ones."""

import dataclasses
import functools

from refusals import refusal

from show_attend_tell.config.settings import Experiment, experiment_from_dict
from show_attend_tell.runtime.errors import ConfigError

CAPTION = {
    "name": "small",
    "data": {"name": "small", "source": "scenes"},
    "encoder": {"weights": "none"},
    "model": {"lstm_width": 8},
    "training": {"epochs": 2},
    "decoding": {},
}
# The tables that an experiment may leave out.
CAPTION |= {
    field.name: {}
    for field in dataclasses.fields(Experiment)
    if field.default is not dataclasses.MISSING
}


def changed(values, table, **keys):
    """Return settings with some keys of one table replaced."""
    return {**values, table: {**values[table], **keys}}


line_of = functools.partial(refusal, ConfigError)


def message_of(values):
    """Return the line that refuses settings."""
    return line_of(experiment_from_dict, values, "file.toml")
