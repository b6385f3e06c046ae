"""The page of reproduced claims is made from the rows' result files."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from random_weights import randomised

from show_attend_tell.config.experiments import (
    load_experiment,
    rename,
    shipped_experiments,
)
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.runtime import plugins

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "research"))
TOOL = runpy.run_path(str(ROOT / "research" / "reproduction.py"))
CLAIMS, ROWS = TOOL["read_table"]()
RESULTS = TOOL["read_results"]()


def test_the_page_is_made_from_the_results():
    page = TOOL["page"](CLAIMS, ROWS, RESULTS)
    assert TOOL["PAGE"].read_text("utf-8") == page, "run `make reproduce ARGS=--write`"
    # Its other row is an evaluation.
    assert "jax_training.py read_words_wide --seeds 1\n" in page
    assert "jax_training.py read_words_wide_iiit5k" not in page
    assert "reproduction.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
    log = (ROOT / "experiments" / "LOG.md").read_text("utf-8")
    for result in RESULTS.values():
        for part in (result, *result["runs"]):
            section = part.get("source", "").removeprefix("LOG.md, section ")
            assert not section or f"## {section}\n" in log


@pytest.mark.parametrize("key", CLAIMS)
def test_the_verdict_of_a_claim_follows_from_rows(key):
    claim = CLAIMS[key]
    own = [name for name, row in ROWS.items() if row["claim"] == key]
    measured = [name for name in own if name in RESULTS]
    assert own
    assert claim["verdict"] in (*TOOL["VERDICTS"], TOOL["NOT_RUN"])
    if claim["verdict"] == TOOL["NOT_RUN"]:
        assert measured != own
    else:
        assert bool(measured) == (claim["verdict"] != "untestable here")
    assert not re.search(r"\d\.\d", claim["reason"]), "figures belong in result files"
    for name in measured:
        for run in RESULTS[name]["runs"]:
            assert any(score in run["scores"] for score in claim["scores"]), name


def require_experiment(name):
    """Skip a test of an experiment of plug-ins that the package lacks."""
    if name not in shipped_experiments() and not plugins.installed():
        pytest.skip(f"{name} needs a plug-in")


@pytest.mark.parametrize("name", ROWS)
def test_the_command_of_a_row_is_valid(name):
    row = ROWS[name]
    require_experiment(row["experiment"])
    assert row["claim"] in CLAIMS
    load_experiment(row["experiment"], TOOL["changes_of"](name, ROWS))
    verbs = TOOL["commands"](name, ROWS, row.get("seeds", [None]))
    assert ("train" in verbs) == (not {"of", "model", "script"} & row.keys())
    if "script" in row:
        assert (ROOT / row["script"].split()[0]).exists()
    for other in (row.get("of"), row.get("after")):
        assert other is None or other in ROWS
    assert ROWS.keys() >= set(CLAIMS[row["claim"]].get("beside", []))


def test_a_row_prepares_the_data_and_features_that_its_settings_name():
    verbs = TOOL["commands"]("people_lambda", ROWS, [1])
    assert "data.name=more" in verbs["prepare"]
    verbs = TOOL["commands"]("flickr8k_14x14", ROWS, [1])
    assert "encoder.layer=block5_conv3" in verbs["features"]


def test_each_seed_starts_from_its_own_run():
    verbs = TOOL["commands"]("flickr8k_hard", ROWS, [2])
    model = "experiments/runs/flickr8k_soft-seed-2/model.safetensors"
    assert f"training.init_from={model}" in verbs["train"]


def test_the_table_of_a_claim_begins_with_rows_of_others():
    row = {"experiment": "scenes", "claim": "b", "what": "this"}
    claims = {"b": {**CLAIMS["gate"], "scores": ["BLEU-4"], "beside": ["a"]}}
    rows = {"a": {**row, "claim": "a", "what": "that"}, "c": row}
    text = TOOL["page"](claims, rows, {})
    assert text.index("| that (`a`)") < text.index("| this (`c`)")
    assert "ROWS=c" in text
    assert "ROWS=a" not in text


def test_a_seed_measured_after_one_of_the_log_has_its_revision_and_command():
    row = {"what": "", "seeds": [1, 2]}
    second = {"seed": 2, "scores": {}, "revision": "b"}
    result = {"source": "LOG.md, section S", "revision": "a", "commands": ["train"]}
    result["runs"] = [{"seed": 1, "scores": {}}, second]
    origins = [line[-1] for line in TOOL["_cells_of"]("row", row, [], result)]
    assert origins == ["[LOG, S](../experiments/LOG.md#s), a", "b"]
    commands = ["    train", "    make reproduce ROWS=row"]
    assert TOOL["_commands_of"]("row", {"row": row}, result) == commands


def test_every_result_has_a_row():
    assert RESULTS.keys() <= ROWS.keys()


def test_a_row_is_trained_and_each_seed_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = []

    def run(command, **options):
        if command[0] == "git":
            return subprocess.CompletedProcess(command, 1)
        called.append(command[3:])
        if command[3] == "eval":
            folder = Path("experiments/runs") / command[command.index("--name") + 1]
            folder.mkdir(parents=True)
            scores = {"BLEU-4": 12.34567, "intervals": {"scores": {"BLEU-4": [11, 13]}}}
            (folder / "scores.json").write_text(json.dumps(scores))

    monkeypatch.setattr(subprocess, "run", run)
    row = {"experiment": "scenes", "seeds": [1, 2], "set": ["training.epochs=3"]}
    first, second = TOOL["run_row"]("a", {"a": row}, [1, 2], "", ("--cluster", "auto"))
    monkeypatch.undo()
    verbs = [arguments[0] for arguments in called]
    assert verbs == ["prepare", "features", "train", "eval", "eval"]
    train = "-e scenes --name a --seeds 1,2 --resume --set training.epochs=3"
    assert called[2][1:] == [*train.split(), "--cluster", "auto"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["scores"] == {"BLEU-4": 12.3457}
    assert first["intervals"] == {"BLEU-4": [11, 13]}
    assert second["commands"][-1].endswith("--name a-seed-2 --set training.epochs=3")
    assert TOOL["missing_seeds"](row, {"runs": [first]}) == [2]
    claims = {"c": {**CLAIMS["soft"], "scores": ["BLEU-4"]}}
    rows = {"a": {**row, "claim": "c", "what": "this", "minutes": 3}}
    text = TOOL["page"](claims, rows, {"a": {"runs": [first]}})
    assert "| this (`a`) | 1 | 12.35 [11.00, 13.00] |" in text
    assert "| this (`a`) | 2 | - | not run; 3 min |" in text


@pytest.mark.parametrize(
    ("mirror", "verbs"),
    [("false", ["train", "eval"]), ("true", ["features", "train", "eval"])],
)
def test_absent_features_of_mirrored_photos_are_extracted(
    tmp_path, monkeypatch, mirror, verbs
):
    monkeypatch.chdir(tmp_path)
    Path("prepared/flickr8k").mkdir(parents=True)
    Path("prepared/flickr8k/features-VGG16-block5_conv3.h5").touch()
    called = []

    def run(verb, arguments):
        called.append(verb)
        return verb

    monkeypatch.setitem(TOOL["run_row"].__globals__, "_run", run)
    row = {"experiment": "flickr8k_transformer", "seeds": [1]}
    row["set"] = [f"encoder.mirror={mirror}"]
    assert TOOL["run_row"]("a", {"a": row}, [1]) == []
    assert called == verbs
    called.clear()
    TOOL["run_row"]("b", {"a": row, "b": {**row, "of": "a"}}, [1])
    assert called == ["eval"]


@pytest.mark.parametrize(
    ("experiment", "file"),
    [("flickr8k_transformer", ".prepare.lock"), ("read_words", "words.jsonl")],
)
def test_data_are_prepared_unless_they_are_those_of_the_row(
    tmp_path, monkeypatch, experiment, file
):
    require_experiment(experiment)
    monkeypatch.chdir(tmp_path)
    folder = Path("prepared") / load_experiment(experiment).data.name
    folder.mkdir(parents=True)
    (folder / file).touch()
    called = []
    monkeypatch.setitem(
        TOOL["run_row"].__globals__, "_run", lambda verb, _: called.append(verb) or verb
    )
    TOOL["run_row"]("a", {"a": {"experiment": experiment}}, [1])
    assert called[0] == "prepare"


def test_a_run_trained_on_jax_is_only_evaluated(tmp_path, monkeypatch):
    require_experiment("ram_mnist")
    monkeypatch.chdir(tmp_path)
    folder, called = Path("experiments/runs/a-seed-1"), []
    folder.mkdir(parents=True)
    (folder / TOOL["TRAINED"]).write_text('{"machine": "a GPU"}')

    def run(verb, arguments):
        called.append(verb)
        (folder / "scores.json").write_text('{"error": 1.5}')
        return verb

    monkeypatch.setitem(TOOL["run_row"].__globals__, "_run", run)
    row = {"experiment": "ram_mnist", "seeds": [1], "claim": "c", "what": "this"}
    experiment = rename(load_experiment("ram_mnist"), "a-seed-1")
    (folder / "experiment.toml").write_text(experiment_to_toml(experiment))
    with pytest.raises(SystemExit, match="other settings"):
        TOOL["run_row"]("a", {"a": {**row, "set": ["training.epochs=3"]}}, [1])
    called.clear()
    (found,) = TOOL["run_row"]("a", {"a": row}, [1])
    assert called == ["prepare", "eval"]
    claims = {"c": {**CLAIMS["ram"], "scores": ["error"]}}
    text = TOOL["page"](claims, {"a": row}, {"a": {"runs": [found]}})
    assert re.search(r"\| this \(`a`\) \| 1 \| 1.50 \| .*, trained on a GPU \|", text)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a folder with results of a row in it, and the values measured next."""
    name, values = "scenes_soft", {}
    first = RESULTS[name]
    (tmp_path / f"{name}.json").write_text(json.dumps(first))
    shutil.copy(TOOL["RESULTS"] / "rows.toml", tmp_path)

    def run_row(name, rows, seeds, *options):
        (seed,) = seeds
        (run,) = (run for run in first["runs"] if run["seed"] == seed)
        intervals = {**run.get("intervals", {})}
        intervals |= {k: [x - 1, x + 1] for k, x in values.items()}
        scores = run["scores"] | values
        return [{**run, "revision": "b", "scores": scores, "intervals": intervals}]

    own = TOOL["main"].__globals__
    monkeypatch.setitem(own, "RESULTS", tmp_path)
    monkeypatch.setitem(own, "PAGE", tmp_path / "page.md")
    monkeypatch.setitem(own, "run_row", run_row)
    monkeypatch.setattr(sys, "argv", ["reproduction.py", name])
    return tmp_path, values


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({}, "agrees"), ({"BLEU-4": 50.0, "CIDEr": 400.0}, "differs in BLEU-4 (seed ")],
)
def test_a_second_measurement_is_kept_beside_the_first(
    measured, capsys, changed, verdict
):
    folder, values = measured
    values |= changed
    before = (folder / "scenes_soft.json").read_bytes()
    TOOL["main"]()
    printed = capsys.readouterr().out
    assert f"verdict: {verdict}" in printed
    run = RESULTS["scenes_soft"]["runs"][0]
    low, high = run["intervals"]["BLEU-4"]
    assert f"{run['scores']['BLEU-4']:.4g} [{low:.4g}, {high:.4g}]" in printed
    second = json.loads((folder / "again" / "scenes_soft.json").read_text())
    assert len(second["runs"]) == len(RESULTS["scenes_soft"]["runs"])
    assert (folder / "scenes_soft.json").read_bytes() == before
    TOOL["main"]()  # nothing is measured a third time
    printed = capsys.readouterr().out
    assert "measured twice" in printed
    assert f"verdict: {verdict}" in printed


def test_scores_without_intervals_have_no_verdict_unless_they_are_equal():
    verdict_of = TOOL["comparison"].__globals__["verdict_of"]
    one = {"scores": {"error": 1.0}}
    assert verdict_of("error", one, {"scores": {"error": 2.0}}) == "no interval"
    assert verdict_of("error", one, one) == "agrees"
    other = {"scores": {"error": 2.0}, "intervals": {"error": [0.9, 3.0]}}
    assert verdict_of("error", one, other) == "agrees"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["moving baseline", "other samples"])
def test_sampled_gradients_of_the_small_problem_are_the_exact_one_on_average(kind):
    script = runpy.run_path(str(ROOT / "research" / "gradient_noise.py"))
    rng, size = np.random.default_rng(3), script["BATCH"]
    words = [*script["SPECIAL"], *"abcdef"]
    a = 2 * rng.standard_normal((size, 4, 6)).astype("f4")
    targets = rng.integers(4, len(words), (size, script["T"])).astype("i4")
    inputs = np.hstack([np.full((size, 1), 1, "i4"), targets[:, :-1]])
    hard = {"baseline": "samples"} if kind == "other samples" else {}
    model = script["build"](words, 6, **script["PLAIN"], samples=5, **hard)
    randomised(model, rng, 0.9)
    enumerate_batch = script["enumerator"](model, 4, script["T"])
    log_p, reached, exact = enumerate_batch(a, inputs, targets)
    p = np.exp(log_p.astype(float))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-4)
    b = np.float32((p * reached).sum(axis=1).mean())
    sample = script["sampler"](model)
    noise = rng.random((80, size * 5, script["T"]), np.float32)
    drawn = [script["flat"](sample(a, inputs, targets, b, u)) for u in noise]
    along = np.stack(drawn) @ exact / np.linalg.norm(exact)
    error = along.std(ddof=1) / len(along) ** 0.5
    assert abs(along.mean() - np.linalg.norm(exact)) < 4 * error
    assert np.linalg.norm(exact) > 5 * error
