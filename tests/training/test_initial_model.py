"""Trainings from a model with other words than the data, and means of models."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from tiny_captioner import build
from tiny_run import experiment
from tiny_training import assert_resumes, go, score_in_turn, skip_graphs
from tiny_transformer import build as build_transformer

from show_attend_tell.cli.main import main
from show_attend_tell.config.runs import lock_run
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.models.pretrained import PACKAGED, model_path, shipped_model
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ModelFileError, TrainingError
from show_attend_tell.training import initial_model
from show_attend_tell.training.initial_model import average_models, extend_vocabulary

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def start(work, tmp_path_factory):
    """A model whose words are `extra` and those of the data but for star."""
    path = work / "made-up" / "vocabulary.json"
    words = Vocabulary.load(path).words
    kept = (*words[:4], "extra", *(w for w in reversed(words[4:]) if w != "star"))
    Vocabulary(kept).save(path)
    with pytest.MonkeyPatch.context() as patch:
        skip_graphs(patch)
        done = go(work, tmp_path_factory.mktemp("start"), training={"epochs": 1})
    Vocabulary(words).save(path)
    return done.model, kept


def test_the_model_s_words_are_kept_and_new_ones_are_added(
    work, start, tmp_path, caplog
):
    caplog.set_level("INFO", initial_model.logger.name)
    model, kept = start
    settings = {"init_from": str(model), "epochs": 1, "learning_rate": 1e-9}
    done = go(work, tmp_path / "runs", training=settings)
    ours, theirs = (load_captioner(path) for path in (done.model, model))
    assert ours.vocabulary.words == (*kept, "star")
    np.testing.assert_allclose(
        ours.decoder.embedding[:-1], theirs.decoder.embedding, atol=1e-6
    )
    assert f"{len(kept)} words are kept, 1 are new: star" in caplog.text
    assert Vocabulary.load(done.folder / "vocabulary.json") == ours.vocabulary


@pytest.mark.nightly
def test_a_resumed_training_needs_the_initial_model_no_more(work, start, tmp_path):
    model = Path(shutil.copy(start[0], tmp_path))
    settings = {"init_from": str(model), "average_decay": 0.9, "initial_share": 0.4}

    def train(folder, resume=False):
        if resume:
            model.unlink()
        go(work, folder, resume, training=settings)

    assert_resumes(train, tmp_path, 5)


def test_the_saved_model_has_its_share_of_the_initial_weights(
    work, start, tmp_path, monkeypatch
):
    model, _ = start
    settings = {"init_from": str(model), "epochs": 1, "validate_every": 1}
    files = [model]
    for share in (0.0, 0.5):
        score_in_turn(monkeypatch, itertools.count(1.0))  # the last is the best
        changes = {**settings, "initial_share": share}
        files.append(go(work, tmp_path / str(share), training=changes).model)
    models = list(map(load_captioner, files))
    old = len(models[0].vocabulary)
    initial, trained, mixed = (np.asarray(m.decoder.embedding)[:old] for m in models)
    assert np.abs(trained - initial).max() > 1e-3
    np.testing.assert_allclose(mixed, (initial + trained) / 2, rtol=1e-4, atol=1e-6)


def test_the_shipped_model_is_found_by_its_name(tmp_path):
    for name in PACKAGED:
        start = load_captioner(path := model_path(name, tmp_path))
        assert path == shipped_model(name)
        kind = type(start.decoder).__name__
        assert kind == ("TransformerDecoder" if name == "shipped" else "LstmDecoder")
    words = start.vocabulary.words
    ours = Vocabulary((*words[:9], "rex"))
    assert extend_vocabulary(path, start, ours).words == (*words, "rex")
    assert experiment(training={"init_from": "shipped"}).training.init_from == "shipped"


@pytest.fixture
def models(tmp_path):
    """The files of three models, and the models."""
    built = [build(np.random.default_rng(seed)) for seed in range(3)]
    paths = [tmp_path / f"model-{k}.safetensors" for k in range(3)]
    for model, path in zip(built, paths, strict=True):
        model.save(path)
    return paths, built


def test_every_weight_is_the_mean_and_decoding_is_the_experiments(models, tmp_path):
    paths, built = models
    out = average_models(paths, experiment(decoding={"beam": 4}), tmp_path / "runs")
    mean = load_captioner(out)
    for weights in zip(mean.weights, *(m.weights for m in built), strict=True):
        ours, *parts = (np.asarray(w) for w in weights)
        np.testing.assert_allclose(ours, np.mean(parts, axis=0), rtol=1e-6, atol=1e-7)
    assert mean.decoding.beam == 4
    names = sorted(p.name for p in (tmp_path / "runs" / "tiny").iterdir())
    assert names == ["experiment.toml", "model.safetensors"]


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (build, {"prev2out": False}, "prev2out must be True. Received: False"),
        (build, {"attention": "mean"}, "attention must be 'soft'. Received: 'mean'"),
        (build_transformer, {"heads": 1}, "heads must be 2. Received: 1"),
    ],
)
def test_models_whose_equal_weights_compute_something_else_are_not_averaged(
    tmp_path, make, changes, message
):
    paths = [tmp_path / "one.safetensors", tmp_path / "two.safetensors"]
    for path, switches in zip(paths, ({}, changes), strict=True):
        make(np.random.default_rng(1), **switches).save(path)
    with refused(ModelFileError, f"two.safetensors: its {message}"):
        average_models(paths, experiment(), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    # A rate of dropout has no effect on a caption.
    make(np.random.default_rng(1), dropout=0.4).save(paths[1])
    assert average_models(paths, experiment(), tmp_path / "runs").is_file()


def test_average_prints_its_model_and_replaces_a_run_on_demand_only(
    models, tmp_path, capsys
):
    runs, (paths, _), again = tmp_path / "runs", models, experiment("scenes")
    with pytest.raises(ModelFileError, match="must be two or more. Received: 1"):
        average_models(paths[:1], again, runs)
    assert not runs.exists()
    main(["average", *map(str, paths), "-e", "scenes", "--runs", str(runs)])
    out = runs / "scenes" / "model.safetensors"
    assert capsys.readouterr().out == f"{out}: the mean of 3 models\n"
    before = out.read_bytes()
    with pytest.raises(TrainingError, match="--overwrite"):
        average_models(paths[:2], again, runs)
    with (
        lock_run(again, runs),
        pytest.raises(TrainingError, match="another process is training this run"),
    ):
        average_models(paths[:2], again, runs, overwrite=True)
    assert out.read_bytes() == before
    average_models(paths[:2], again, runs, overwrite=True)
    assert out.read_bytes() != before
    build(np.random.default_rng(4), lstm_width=6).save(paths[2])
    with pytest.raises(ModelFileError, match=r"model-2.*: its weights must have"):
        average_models(paths, again, runs, overwrite=True)
