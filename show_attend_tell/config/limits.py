"""Limit an experiment to the first photos of each split, to try it out."""

import dataclasses

from show_attend_tell.config.settings import Experiment


def limit_experiment(experiment: Experiment, limit: int) -> Experiment:
    """Return the experiment with the first photos of each split only.

    Its prepared folder and its run have the suffix ``-first-<limit>``, so that limited
    features and models are never mistaken for complete ones.

    Args:
        experiment: the settings.
        limit: number of photos of each split, in the order of the data set.
    """
    suffix = f"-first-{limit}"
    data = dataclasses.replace(experiment.data, name=experiment.data.name + suffix)
    return dataclasses.replace(experiment, name=experiment.name + suffix, data=data)


def limit_message(experiment: Experiment, limit: int) -> str:
    """Return one line on what a limited experiment uses."""
    return (
        f"limited to the first {limit} photos of each split, in the order of the data "
        f"set: data {experiment.data.name}, run {experiment.name}"
    )
