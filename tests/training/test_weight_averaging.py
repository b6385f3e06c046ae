"""Averaging the weights of several models."""

import numpy as np
import pytest
from tiny_captioner import build
from tiny_run import experiment

from show_attend_tell.cli.main import main
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError, RunError
from show_attend_tell.training.weight_averaging import average_models


@pytest.fixture
def models(tmp_path):
    """The files of three models, and the models."""
    built = [build(np.random.default_rng(seed)) for seed in range(3)]
    paths = [tmp_path / f"model-{k}.keras" for k in range(3)]
    for model, path in zip(built, paths, strict=True):
        model.save(path)
    return paths, built


def test_every_weight_is_the_mean_and_decoding_is_the_experiments(models, tmp_path):
    paths, built = models
    out = average_models(paths, experiment(decoding={"beam": 4}), tmp_path / "runs")
    assert out == tmp_path / "runs" / "tiny" / "model.keras"
    found = load_captioner(out)
    for weights in zip(found.weights, *(m.weights for m in built), strict=True):
        mean, *parts = (np.asarray(w) for w in weights)
        np.testing.assert_allclose(mean, np.mean(parts, axis=0), rtol=1e-6, atol=1e-7)
    assert found.decoding.beam == 4
    names = sorted(p.name for p in out.parent.iterdir())
    assert names == ["experiment.toml", "model.keras"]


def test_a_model_of_other_widths_is_refused_and_nothing_is_written(models, tmp_path):
    paths, _ = models
    build(np.random.default_rng(4), lstm_width=6).save(paths[2])
    with pytest.raises(ModelFileError, match=r"model-2.keras: its weights must have"):
        average_models(paths, experiment(), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_one_model_is_refused(models, tmp_path):
    with pytest.raises(ModelFileError, match="must be two or more. Received: 1"):
        average_models(models[0][:1], experiment(), tmp_path / "runs")


def test_a_run_is_replaced_on_demand_only(models, tmp_path):
    paths, _ = models
    first = average_models(paths, experiment(), tmp_path / "runs").read_bytes()
    with pytest.raises(RunError, match="--overwrite"):
        average_models(paths[:2], experiment(), tmp_path / "runs")
    again = average_models(paths[:2], experiment(), tmp_path / "runs", overwrite=True)
    assert again.read_bytes() != first


def test_the_command_writes_the_mean(models, tmp_path, capsys):
    arguments = ["-e", "scenes", "--runs", str(tmp_path / "runs")]
    main(["average", *map(str, models[0]), *arguments])
    out = tmp_path / "runs" / "scenes" / "model.keras"
    assert capsys.readouterr().out == f"{out}: the mean of 3 models\n"
    assert out.exists()
