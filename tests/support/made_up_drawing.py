"""A small experiment that generates the digits of :mod:`made_up_digits`."""

from show_attend_tell.config.settings import experiment_from_dict

_TABLES = {
    "data": {"name": "made-up", "source": "mnist", "validation": 16},
    "training": {
        "epochs": 3,
        "batch_size": 8,
        "jit_compile": False,
        "warmup_steps": 0,
        "learning_rate": 0.01,
    },
    "draw": {"steps": 2, "read": 3, "write": 4, "latent": 5, "width": 16},
}


def experiment(name="tiny", **changes):
    """Return a small experiment; keywords are tables of changed settings."""
    tables = {key: {**table, **changes.get(key, {})} for key, table in _TABLES.items()}
    return experiment_from_dict({"name": name, "task": "generate", **tables})
