"""The benchmarks compute what they claim, at any speed."""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import contenders
import keras
import numpy as np
import pytest
from click import ClickException
from click.testing import CliRunner
from new_process import python

from benchmarks import (
    cluster,
    compile_time,
    cost,
    end_to_end,
    engines,
    feature_file,
    gpu,
    ours,
    rates,
    speedrun,
    synthetic,
    table,
    turns,
)
from benchmarks.row import Bar, Row
from benchmarks.sizes import TINY, Sizes
from benchmarks.turns import Contender, ContenderError, Times
from show_attend_tell.cluster import captions as cluster_captions
from show_attend_tell.config.settings import EncoderSettings
from show_attend_tell.data.features import FeatureReader
from show_attend_tell.inference.photos import Failure
from show_attend_tell.training import maximum_likelihood

MACHINE = {"rates": {"float32": 1e9, "bfloat16": 4e9, "bandwidth": 1e8}}
FIELDS = (
    "work ours baseline ratio limit share_of_limit unit bar reached machine".split()
)


ON_JAX = """
import dataclasses
from benchmarks import gpu_ours
from benchmarks.sizes import TINY
sizes = dataclasses.replace(TINY, words=2)
gpu_ours.train_step(sizes, "bfloat16", steps=2).run()
work = gpu_ours.decode(sizes, "float32", beam=2, words=2)
work.run()
assert not work.facts()["tensorflow"]
"""


def test_the_common_design():
    if not find_spec("torch"):
        pytest.skip("PyTorch is absent")
    # In a process of its own: PyTorch 2.15 and TensorFlow abort each other.
    cases = Path(__file__).parent / "support" / "common_design.py"
    options = ("-q", "--noconftest", "-p", "no:cacheprovider")
    done = python("-m", "pytest", *options, cases)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["flickr8k_soft", "flickr8k_transformer"])
def test_sizes_become_the_settings_that_the_decoder_has(name):
    settings = ours.experiment(TINY, name)
    lstm = settings.model.decoder == "lstm"
    width = settings.model.lstm_width if lstm else settings.transformer.width
    assert (width, settings.training.batch_size) == (TINY.lstm_width, TINY.batch)


@pytest.mark.slow
def test_our_training_step_is_the_products(monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the product trains on TensorFlow")
    from benchmarks import train_step

    monkeypatch.setattr(
        "show_attend_tell.runtime.tensorflow_startup.start_tensorflow", lambda: None
    )
    called = []
    from show_attend_tell.training import step_tensorflow as module

    real = module.compiled_step
    monkeypatch.setattr(
        module, "compiled_step", lambda *a: called.append(a) or real(*a)
    )
    work = train_step.ours(TINY, "float32", steps=1)
    work.run()
    ((model, settings),) = called
    assert int(model.optimizer.iterations) == 1
    assert (settings.optimizer, settings.precision) == ("adamw", "float32")
    assert model.count_params() - 1 == cost.parameters(TINY)  # the annotations' scale


def test_a_step_is_compiled_for_each_length(monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("needs TensorFlow")
    seen = []

    def step(x, targets):
        seen.append(targets.shape[1])
        return {"loss": 0.0}

    monkeypatch.setattr(maximum_likelihood, "captioner_step", lambda *_: step)
    found = compile_time.compiling(TINY, [8, 10])
    assert found.keys() == {"first", "compiling", "cores"}
    assert sorted(seen) == [8, 8, 10, 10]


def test_the_rate_of_captions_is_that_of_a_chunk_of_the_cluster(monkeypatch, tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("needs TensorFlow")
    for number in range(2):
        (tmp_path / f"{number}.jpg").touch()
    seen = []

    def write(chunk):
        seen.append((len(chunk.photos), chunk.present))
        chunk.shard.write_text("a row\n" * len(chunk.photos))

    encoder = SimpleNamespace(identity=dict)
    loaded = SimpleNamespace(encoder=encoder)
    module = "show_attend_tell.inference"
    monkeypatch.setattr(f"{module}.pipeline.load_requested", lambda request: loaded)
    monkeypatch.setattr(f"{module}.batch.made_by", lambda *_: "a model")
    monkeypatch.setattr(cluster_captions, "shard_writer", lambda *_: write)
    found = rates.captions(str(tmp_path))
    assert seen == [(2, frozenset())] * 2
    assert found["bytes of a caption's row"] == len("a row\n")


def test_vgg19_has_its_published_number_of_operations():
    # 19.5e9 multiply-adds are known of the convolutions of 224 x 224.
    assert cost.vgg19(1, 224, "float32").count == pytest.approx(2 * 19.5e9, rel=0.01)


def test_a_limit_is_the_maximum_of_calculating_and_moving():
    work = cost.Cost({"float32": 1e9, "bfloat16": 4e9}, 1e8)
    found = [of(MACHINE["rates"]) for of in (work.calculating, work.moving)]
    assert found == [2, 1]
    assert work.seconds(MACHINE["rates"]) == 2
    assert cost.total([work, work]).seconds(MACHINE["rates"]) == 4


def row(**changes) -> Row:
    values = {"work": "train_step", "what": "tiny", "unit": "s", "ours": 2.0}
    values |= {"machine": MACHINE, "baseline": 14.0, "ratio": 7.0, **changes}
    return Row(**values)


def test_a_row_has_its_share_of_the_limit_and_whether_the_bar_was_reached():
    one = row(bar=Bar("ratio", least=6)).limited(cost.Cost({"float32": 1e9}, 0), 1)
    values = one.to_json()
    assert set(FIELDS) <= values.keys()
    assert values["share_of_limit"] == 0.5
    assert values["reached"] is True
    assert values["bar"] == "at least 6x"
    assert row(bar=Bar("ratio", most=1.05)).reached is False
    assert row().reached is None
    assert row(bar=Bar("ours", most=3), unit="GiB").to_json()["bar"] == "at most 3 GiB"
    unmeasured = row(machine={"rates": {"bandwidth": 1e8}})
    assert unmeasured.limited(cost.Cost({"float32": 1e9}, 1)).share_of_limit is None


def test_the_table_is_aligned_and_results_are_written_atomically(tmp_path):
    rows = [row(), row(work="compile", baseline=None, ratio=None, note="why")]
    lines = table.table(rows).splitlines()
    assert len({len(line) for line in lines if line.startswith("|")}) == 1
    assert lines[-1] == "- compile: tiny: why"
    path = tmp_path / "results.json"
    path.write_text("an earlier one")
    table.write_results(path, [r.to_json() for r in rows])
    assert [r["work"] for r in json.loads(path.read_text())] == [
        "train_step",
        "compile",
    ]
    assert os.listdir(tmp_path) == ["results.json"]
    with pytest.raises(TypeError):
        table.write_results(path, [{"machine": object()}])
    assert len(json.loads(path.read_text())) == 2


def test_a_row_has_the_medians_and_the_ratio_of_both():
    seconds = {"a": [2.0, 30.0, 8.0], "b": [1.0, 10.0, 2.0]}
    times = Times(seconds, {}, {"a": [1.0, 2.0, 1.5], "b": [0.5, 1.9, 2.0]})
    assert times.ratio("a", "b") == 3
    assert times.median("b") == 2
    assert times.fields("b", "a", units=10) == {
        "ours": 20,
        "baseline": 80,
        "ratio": 3,
        "cores": 1.9,
        "baseline_cores": 1.5,
    }


def test_engines_are_compared_where_the_words_are_equal():
    def caption(word, log_prob, alpha):
        attention = np.full((1, 2, 2), alpha, np.float32)
        return SimpleNamespace(words=(word,), log_prob=log_prob, attention=attention)

    pairs = [
        (caption("a", -1.0, 0.25), caption("a", -1.5, 0.5)),
        (caption("a", -1.0, 0.25), caption("b", -1.0, 0.25)),
    ]
    found = engines.compare(pairs)
    assert (found.photos, found.equal, found.different) == (2, 0.5, pairs[1:])
    assert (found.attention.tolist(), found.log_prob.tolist()) == ([0.25], [0.5])
    assert not found.reached
    assert engines.compare([(pairs[0][0],) * 2]).reached
    damaged = Failure(Path("c.jpg"), "c.jpg: damaged")
    assert engines.compare([*pairs, (damaged, damaged)]).photos == 2
    with pytest.raises(ClickException, match="no photo"):
        engines.compare([(damaged, damaged)])


def test_engines_that_agree_nowhere_are_reported(tmp_path, monkeypatch):
    def load(model, engine):
        caption = SimpleNamespace(
            words=(engine,), text=engine, path=tmp_path / "a.jpg", log_prob=-1.0
        )
        return SimpleNamespace(caption_inputs=lambda photos: [caption])

    monkeypatch.setattr(engines, "load", load)
    done = CliRunner().invoke(engines.main, [str(tmp_path), "--model", "one"])
    assert done.exit_code == 1
    assert "1 photos, 0.00% equal" in done.output
    assert "a.jpg: numpy | keras" in done.output


@pytest.mark.nightly
def test_both_engines_caption_a_folder(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("photos are captioned on TensorFlow")
    from tiny_pipeline import make_captioner, photo_bytes

    from show_attend_tell.models.encoder.network import Encoder

    settings = EncoderSettings("SceneNet", "annotations", "scenes", 112, "squash")
    make_captioner(Encoder(settings)).save(tmp_path / "model.safetensors")
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(photo_bytes(number))
    arguments = [str(tmp_path), "--model", str(tmp_path / "model.safetensors")]
    done = CliRunner().invoke(engines.main, arguments)
    assert "3 photos, 100.00% equal (bar 99.5%)" in done.output
    assert done.exit_code == 0


def test_contenders_run_in_separate_processes_in_turn():
    both = {name: Contender(contenders.prepare, {"answer": name}) for name in "ab"}
    times = turns.compare(both, seconds=0)
    assert times.seconds == {"a": [3.0] * 3, "b": [3.0] * 3}
    assert times.facts["b"] == {"answer": "b"}
    assert all(len(used) == 3 for used in times.cores.values())
    answer = turns.run_in_process(contenders.double, {"SEEN": "yes"}, number=4)
    assert answer == {"double": 8, "seen": "yes"}
    with pytest.raises(ContenderError, match="of no use"):
        turns.compare({"bad": Contender(contenders.fail)}, seconds=0)


def test_features_are_sparse_and_a_file_of_copies_is_read_by_the_product(tmp_path):
    rng = np.random.default_rng(0)
    sizes = Sizes(locations=49, annotation_width=256)
    zeros = (synthetic.features(rng, 20, sizes) == 0).mean()
    assert zeros == pytest.approx(0.95, abs=0.01)
    path = tmp_path / "features.h5"
    size = feature_file.write_feature_file(path, photos=7, distinct=3, sizes=sizes)
    assert size == path.stat().st_size
    with FeatureReader(path, feature_file.identity(sizes)) as reader:
        assert reader.shape == (7, 49, 256)
        values = reader.read(range(7))
    np.testing.assert_array_equal(values[:3], values[3:6])
    assert (values[0] != values[1]).any()


def test_our_contenders_run_on_jax_without_tensorflow():
    if keras.backend.backend() != "jax":
        pytest.skip("runs on JAX, with `make test-jax`")
    # In a new process, as other tests of this one may have imported TensorFlow.
    done = python("-c", ON_JAX, cwd=Path(table.__file__).parents[1])
    assert done.returncode == 0, done.stderr[-2000:]


def test_contenders_that_do_not_fit_together_are_compared_by_their_medians(monkeypatch):
    alone = {"ours": [1.0, 1.0, 9.0], "eager": [4.0] * 2, "compiled": [2.0] * 5}

    def compare(contenders, seconds):
        if len(contenders) > 1:
            raise ContenderError("out of memory")
        return Times({name: alone[name] for name in contenders}, {})

    monkeypatch.setattr(turns, "compare", compare)
    found = gpu._measure(alone, seconds=1)
    row = gpu._row("decode", 4, "tf32", found, cost.Cost({}, 0.0), {"rates": {}})
    assert row["times_faster_than_eager"] == 4
    assert row["times_faster_than_compiled"] == 2
    assert row["failed"] == {}


@pytest.mark.parametrize("batches", ["x", "64,", "0", ""])
def test_batches_of_a_gpu_are_positive_numbers(batches, tmp_path):
    output = str(tmp_path / "gpu.json")
    done = CliRunner().invoke(gpu.main, ["--batches", batches, "--output", output])
    assert done.exit_code == 2
    assert "must be positive integers such as 64,256" in done.output


@pytest.mark.nightly
def test_rows_of_a_gpu_have_equal_precisions_and_run_at_tiny_sizes(tmp_path):
    if keras.backend.backend() != "jax":
        pytest.skip("runs on JAX, with `make test-jax`")
    output = tmp_path / "gpu.json"
    arguments = ["--small", "--ours", "--output", str(output)]
    done = CliRunner().invoke(gpu.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = json.loads(output.read_text(encoding="utf-8"))
    assert all(row["seconds"]["ours"] > 0 for row in rows)
    works = [(row["work"], row["precision"]) for row in rows]
    assert works == [
        ("train_step", "float32"),
        ("decode", "float32"),
        ("extract", "float32"),
        ("train_step", "tf32"),
        ("decode", "tf32"),
        ("extract", "tf32"),
        ("train_step", "bfloat16"),
        ("extract", "bfloat16"),
    ]


def test_the_verbs_of_an_experiment_are_timed_in_order(tmp_path, monkeypatch):
    called = []

    def run_verb(verb, arguments, folder):
        called.append((verb, *arguments))
        return 2.0

    monkeypatch.setattr(end_to_end, "run_verb", run_verb)
    arguments = ["--data", "/photos", "--folder", str(tmp_path / "new"), "--limit", "3"]
    done = CliRunner().invoke(end_to_end.main, arguments, catch_exceptions=False)
    common = ("--experiment", "flickr8k_soft", "--limit", "3")
    assert called == [
        ("prepare", *common, "--data", "/photos"),
        ("features", *common),
        ("train", *common),
        ("eval", *common),
    ]
    assert "| together | 6 s" in done.output  # `prepare` does not count


def test_minutes_are_read_from_the_line_through_the_last_three_scores():
    curve = [(1, 0.0)] + [(60 * m, 10 + 5 * np.log2(m)) for m in (1, 2, 4)]
    assert speedrun.minutes_to(30, curve) == pytest.approx(16)
    assert speedrun.minutes_to(12.5, curve) == pytest.approx(2**0.5)
    assert speedrun.minutes_to(30, [(60, 20), (120, 19)]) is None


@pytest.mark.cluster
def test_two_workers_of_a_cluster_are_measured_against_one():
    pytest.importorskip("ray", reason="needs the packages of '.[cluster]'")
    found = cluster.rows({}, quick=True)
    assert [row.ours > 0 and row.baseline > 0 for row in found] == [True] * 3
