"""The mean of several models."""

import numpy as np
import pytest
from tiny_captioner import build

from show_attend_tell.average import average_models
from show_attend_tell.cli import main
from show_attend_tell.model_file import ModelFileError, load_captioner


@pytest.fixture
def models(tmp_path):
    """Three models' files and the models."""
    built = [build(np.random.default_rng(seed)) for seed in range(3)]
    built[0].decoding = {"beam": 4}
    paths = [tmp_path / f"model-{k}.keras" for k in range(3)]
    for model, path in zip(built, paths, strict=True):
        model.save(path)
    return paths, built


def test_every_weight_is_the_mean_and_decoding_the_firsts(models, tmp_path):
    paths, built = models
    (tmp_path / "experiment.toml").write_text("first")
    out = tmp_path / "new" / "mean.keras"
    average_models(paths, out)
    found = load_captioner(out)
    for weights in zip(found.weights, *(m.weights for m in built), strict=True):
        mean, *parts = (np.asarray(w) for w in weights)
        np.testing.assert_allclose(mean, np.mean(parts, axis=0), rtol=1e-6, atol=1e-7)
    assert found.decoding == {"beam": 4}
    names = sorted(p.name for p in out.parent.iterdir())
    assert names == ["experiment.toml", "mean.keras"]


def test_a_model_of_other_widths_is_refused_and_nothing_is_written(models, tmp_path):
    paths, _ = models
    build(np.random.default_rng(4), lstm_width=6).save(paths[2])
    with pytest.raises(ModelFileError, match=r"model-2.keras: its weights must be"):
        average_models(paths, tmp_path / "mean.keras")
    assert not (tmp_path / "mean.keras").exists()


def test_one_model_and_another_suffix_are_refused(models, tmp_path):
    paths, _ = models
    with pytest.raises(ModelFileError, match="must be two or more. Received: 1"):
        average_models(paths[:1], tmp_path / "mean.keras")
    with pytest.raises(
        ModelFileError, match=r"must end in .keras. Received: .*mean.h5"
    ):
        average_models(paths, tmp_path / "mean.h5")


def test_the_verb_writes_the_mean(models, tmp_path, capsys):
    paths, _ = models
    out = tmp_path / "mean.keras"
    main(["average", *map(str, paths), "--out", str(out)])
    assert capsys.readouterr().out == f"{out}: the mean of 3 models\n"
    assert out.exists()
