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
import reproduction
import reproduction_figures as figures
import reproduction_page as pages
import reproduction_rows as rows_of
import second_measurement
from random_weights import randomised

from show_attend_tell.config.experiments import (
    load_experiment,
    shipped_experiments,
)
from show_attend_tell.data.splits import vocabulary_settings
from show_attend_tell.data.vocabulary import Vocabulary
from show_attend_tell.runtime import plugins

ROOT = Path(__file__).resolve().parents[2]
CLAIMS, ROWS = rows_of.read_table()
RESULTS = rows_of.read_results()


def test_the_page_is_made_from_the_results():
    page = pages.page(CLAIMS, ROWS, RESULTS)
    assert pages.PAGE.read_text("utf-8") == page, "run `make reproduce ARGS=--write`"
    # Its other row is an evaluation.
    assert "# at f42220bddcea (seeds 1 of read_words_wide):\n" in page
    assert "of read_words_wide_iiit5k):" not in page
    assert "reproduction.md" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_the_page_opens_with_a_line_for_each_claim():
    page = pages.page(CLAIMS, ROWS, RESULTS)
    first_screen, _, sections = page.partition("\n## ")
    for claim in CLAIMS.values():
        (line,) = [x for x in first_screen.splitlines() if f"[{claim['title']}]" in x]
        assert f"| {claim['verdict']} |" in line
        assert line.endswith(f"| {claim['sentence']} |")
        assert claim["sentence"].count(".") == 1
        assert f"## {claim['title']}\n" in sections
    assert "{" not in first_screen
    assert len(first_screen.split()) < 1500


@pytest.mark.parametrize("key", CLAIMS)
def test_a_claim_shows_a_short_paragraph_and_folds_the_rest(key):
    claim = CLAIMS[key]
    lines = pages.section(key, claim, ROWS, RESULTS)
    start, end = lines.index("<details markdown>"), lines.index("</details>")
    shown, folded = lines[:start], lines[start:end]
    assert len(claim["reason"].split()) <= 75
    assert sum(line.startswith("| ") for line in shown) <= 14
    own = [name for name, row in ROWS.items() if row["claim"] == key]
    for name in own:
        assert any(f"`{name}`" in line for line in folded)
        assert any("make reproduce" in x and name in x for x in folded)
    assert not any(line.startswith("    ") for line in shown)


@pytest.mark.parametrize("key", [key for key in CLAIMS if "plot" in CLAIMS[key]])
def test_the_figure_of_a_claim_shows_its_results(key):
    shown = figures.plotted(CLAIMS[key], RESULTS)
    path = figures.FIGURES / figures.figure_name(key)
    assert shown
    assert figures.is_current(path, shown), "run `make reproduce ARGS=--write`"
    assert path.stat().st_size < 50_000


def test_no_figure_is_left_of_a_claim_without_one():
    files = {path.name for path in figures.FIGURES.iterdir()}
    shown = {key for key, claim in CLAIMS.items() if figures.plotted(claim, RESULTS)}
    assert files == {figures.figure_name(key) for key in shown}


def test_a_figure_is_drawn_again_only_when_its_results_change(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    claim = {"shown": {"a": "this"}, "plot": {"score": "CIDEr"}}
    run = {"seed": 1, "scores": {"CIDEr": 50.0}, "intervals": {"CIDEr": [47.0, 53.0]}}
    figures.write_figures({"c": claim}, {"a": {"runs": [run]}}, str)
    text = (tmp_path / "c.svg").read_text("utf-8")
    assert ">this</text>" in text
    (tmp_path / "c.svg").write_text(text + "<!-- kept -->")
    figures.write_figures({"c": claim}, {"a": {"runs": [run]}}, str)
    assert (tmp_path / "c.svg").read_text("utf-8").endswith("<!-- kept -->")
    run["scores"]["CIDEr"] = 51.0
    figures.write_figures({"c": claim}, {"a": {"runs": [run]}}, str)
    assert not (tmp_path / "c.svg").read_text("utf-8").endswith("<!-- kept -->")


def test_curves_have_the_positions_of_their_labels():
    labels = ["after 10 steps, b", "after 2 steps, b", "after 2 steps, c", "another"]
    runs = [{"label": x, "scores": {"s": k}} for k, x in enumerate(labels)]
    plot = {"score": "s", "axis": "steps", "x": r"after (?P<x>\d+) steps, (?P<line>.*)"}
    claim = {"shown": {"a|another": ""}, "plot": plot}
    curves = figures.plotted(claim, {"a": {"runs": runs}})["curves"]
    assert curves == [
        {"label": "b", "points": [[2, 1], [10, 0]]},
        {"label": "c", "points": [[2, 2]]},
    ]


def test_a_headline_has_every_seed_and_says_what_was_not_measured():
    runs = [
        {"seed": 1, "scores": {"BLEU-4": 20.034}},
        {"seed": 2, "label": "x", "scores": {"BLEU-4": 1}},
        {"seed": 3, "scores": {"BLEU-4": "20.30"}},
    ]
    results = {"a": {"revision": "r1", "runs": runs}}
    template = "BLEU-4 {a|BLEU-4}, x {a|x|BLEU-4} at {a|revision}; {b|BLEU-4}"
    text = pages.headline(template, results)
    assert text == "BLEU-4 20.03, 20.30, x 1.00 at r1; not measured"
    assert pages.headline("{b|BLEU-4} % and {c|BLEU-4} %", results) == "not measured"
    results["a"]["revision"] = None
    assert pages.headline("at {a|revision}", results) == "at no git repository"


def test_a_line_joins_the_scores_of_two_rows_by_seed():
    first = [{"seed": s, "scores": {"CIDEr": s, "BLEU-4": s}} for s in (1, 2)]
    second = [{"seed": s, "scores": {"CIDEr": 9, "pointing": s / 10}} for s in (2, 1)]
    results = {"a": {"runs": first}, "b": {"runs": second}}
    claim = {"shown": {"a + b": "both"}, "columns": ["CIDEr", "pointing"]}
    line = ["both", "1.00, 2.00", "0.100, 0.200"]
    assert pages.small_table(claim, results)[1] == line


@pytest.mark.parametrize("key", CLAIMS)
def test_the_verdict_of_a_claim_follows_from_rows(key):
    claim = CLAIMS[key]
    own = [name for name, row in ROWS.items() if row["claim"] == key]
    measured = [name for name in own if name in RESULTS]
    assert own
    assert claim["verdict"] in (*rows_of.VERDICTS, rows_of.NOT_MEASURED)
    if claim["verdict"] == rows_of.NOT_MEASURED:
        assert measured != own
    else:
        assert bool(measured) == (claim["verdict"] != "untestable here")
    text = " ".join(claim.get(part, "") for part in ("sentence", "reason", "detail"))
    assert not re.search(r"\d\.\d", text), "figures belong in result files"
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
    load_experiment(row["experiment"], rows_of.changes_of(name, ROWS))
    verbs = rows_of.commands(name, ROWS, row.get("seeds", [None]))
    untrained = {"of", "model", "script", "recipe"} & row.keys()
    assert ("train" in verbs) == (not untrained)
    if "script" in row:
        assert (ROOT / row["script"].split()[0]).exists()
    for other in (row.get("of"), row.get("after")):
        if other is not None:
            assert set(row.get("seeds", [None])) <= set(ROWS[other]["seeds"])


def test_a_row_prepares_the_data_and_features_that_its_settings_name():
    verbs = rows_of.commands("people_lambda", ROWS, [1])
    assert "data.name=more" in verbs["prepare"]
    verbs = rows_of.commands("flickr8k_14x14", ROWS, [1])
    assert "encoder.layer=block5_conv3" in verbs["features"]


def test_each_seed_starts_from_its_own_run():
    verbs = rows_of.commands("flickr8k_hard", ROWS, [2])
    model = "experiments/runs/flickr8k_soft-seed-2/model.safetensors"
    assert f"training.init_from={model}" in verbs["train"]


def test_a_seed_measured_after_one_of_the_log_has_its_revision():
    row = {"what": "", "seeds": [1, 2]}
    second = {"seed": 2, "scores": {}, "revision": "b"}
    result = {"source": "experiments/LOG.md of 9d31cb6, S", "revision": "a"}
    result["runs"] = [{"seed": 1, "scores": {}}, second]
    revisions = [line[-1] for line in pages.cells_of("row", row, [], result)]
    assert revisions == ["a ²", "b"]


def test_a_figure_of_others_is_marked():
    run = {"source": "measured outside this repository", "revision": "a"}
    assert pages.source_of(run) == "a ³"


def test_rows_of_one_data_set_are_one_command():
    rows = {
        "a": {"experiment": "scenes", "data": "mnist"},
        "b": {"experiment": "scenes"},
        "c": {"experiment": "scenes", "data": "mnist"},
    }
    assert pages.commands_of(list(rows), rows, {}) == [
        "    make reproduce ROWS='a c' DATA=DIR    # DIR: mnist",
        "    make reproduce ROWS=b",
    ]


def test_the_lines_of_a_claim_are_those_of_rows():
    for key, claim in CLAIMS.items():
        shown = claim.get("shown", {})
        assert set(claim.get("plot", {}).get("lines", [])) <= shown.keys()
        for line in shown:
            names = [part.partition("|")[0] for part in line.split(" + ")]
            assert ROWS.keys() >= set(names), key
            found = rows_of.selected_runs(line, RESULTS)
            assert bool(found) == (names[0] in RESULTS), line


def test_every_result_has_a_row():
    assert RESULTS.keys() <= ROWS.keys()


@pytest.mark.parametrize("name", RESULTS)
def test_a_second_measurement_has_seeds_and_labels_of_the_first(name):
    row = ROWS[name]
    first = {(run.get("seed"), run.get("label")) for run in RESULTS[name]["runs"]}
    assert {seed for seed, _ in first} <= set(row.get("seeds", [None]))
    if "script" in row or "recipe" in row:
        return
    labels = [f"beam {beam}" for beam in row.get("beams", [])] or [None]
    assert first >= {(seed, label) for seed, _ in first for label in labels}


def test_an_ensemble_averages_the_runs_of_another_row():
    ((*_, first, second),) = [
        [x for option, x in zip(words, words[1:], strict=False) if option == "--model"]
        for words in rows_of.commands("ensemble", ROWS, [None])["eval"]
    ]
    trained = rows_of.commands("flickr8k_transformer_cider", ROWS, [1, 2])["eval"]
    names = [words[words.index("--name") + 1] for words in trained]
    assert [first, second] == names


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
    first, second = reproduction.run_row(
        "a", {"a": row}, [1, 2], "", ("--cluster", "auto")
    )
    monkeypatch.undo()
    verbs = [arguments[0] for arguments in called]
    assert verbs == ["prepare", "features", "train", "eval", "eval"]
    train = "-e scenes --name a --seeds 1,2 --resume --set training.epochs=3"
    assert called[2][1:] == [*train.split(), "--cluster", "auto"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["scores"] == {"BLEU-4": 12.3457}
    assert first["intervals"] == {"BLEU-4": [11, 13]}
    assert second["commands"][-1].endswith("--name a-seed-2 --set training.epochs=3")
    assert rows_of.missing_seeds(row, {"runs": [first]}) == [2]
    claims = {"c": {**CLAIMS["soft"], "scores": ["BLEU-4"]}}
    rows = {"a": {**row, "claim": "c", "what": "this", "minutes": 3}}
    text = pages.page(claims, rows, {"a": {"runs": [first]}})
    assert "| this (`a`) | 1 | 12.35 [11.00, 13.00] |" in text
    assert "| `a` | 2 | - | not measured; 3 min |" in text


def make_files(data, *names):
    """Write files, empty but for vocabularies, to a prepared folder."""
    folder = Path("prepared") / data
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name.startswith("vocabulary"):
            Vocabulary.build([["dog"]]).save(folder / name)
        else:
            (folder / name).touch()


@pytest.mark.parametrize(
    ("mirror", "verbs"),
    [("false", ["train", "eval"]), ("true", ["features", "train", "eval"])],
)
def test_absent_features_of_mirrored_photos_are_extracted(
    tmp_path, monkeypatch, mirror, verbs
):
    monkeypatch.chdir(tmp_path)
    make_files("flickr8k", "manifest.jsonl", "vocabulary.json")
    make_files("flickr8k", "features-VGG16-block5_conv3.h5")
    called = []

    def run(verb, arguments):
        called.append(verb)
        return verb

    monkeypatch.setattr(reproduction, "_run", run)
    row = {"experiment": "flickr8k_transformer", "seeds": [1]}
    row["set"] = [f"encoder.mirror={mirror}"]
    assert reproduction.run_row("a", {"a": row}, [1]) == []
    assert called == verbs
    called.clear()
    reproduction.run_row("b", {"a": row, "b": {**row, "of": "a"}}, [1])
    assert called == ["eval"]


@pytest.mark.parametrize(
    ("experiment", "files", "prepared"),
    [
        ("flickr8k_transformer", [".prepare.lock"], False),
        ("flickr8k_transformer", ["problems.txt"], False),  # refused
        ("flickr8k_transformer", ["vocabulary.json"], False),  # interrupted
        ("flickr8k_transformer", ["manifest.jsonl"], False),
        ("flickr8k_transformer", ["manifest.jsonl", "vocabulary.json"], True),
        ("flickr8k_paper", ["manifest.jsonl", "vocabulary.json"], False),
        ("flickr8k_paper", ["manifest.jsonl", "vocabulary-keep.json"], True),
        ("ram_mnist", [], False),
        ("ram_mnist", ["digits.npz"], True),
        ("ram_own_pictures", ["problems.txt"], False),
        ("ram_own_pictures", ["pictures.npz"], True),
        ("read_iiit5k", ["words.npy"], False),  # interrupted
        ("read_iiit5k", ["words.npy", "words.jsonl"], True),
        ("read_words", ["words.jsonl"], False),
    ],
)
def test_data_are_prepared_unless_they_are_those_of_the_row(
    tmp_path, monkeypatch, experiment, files, prepared
):
    require_experiment(experiment)
    monkeypatch.chdir(tmp_path)
    make_files(load_experiment(experiment).data.name, *files)
    called = []
    monkeypatch.setitem(
        vars(reproduction), "_run", lambda verb, _: called.append(verb) or verb
    )
    reproduction.run_row("a", {"a": {"experiment": experiment}}, [1])
    assert ("prepare" in called) == (not prepared)


def test_a_vocabulary_of_other_settings_is_prepared_again(tmp_path, monkeypatch):
    require_experiment("flickr8k_minutes")
    monkeypatch.chdir(tmp_path)
    make_files("flickr8k", "manifest.jsonl")
    called = []
    monkeypatch.setattr(
        reproduction, "_run", lambda verb, _: called.append(verb) or verb
    )
    settings = vocabulary_settings(load_experiment("flickr8k_transformer"))
    vocabulary = Vocabulary.build([["dog"]])
    vocabulary.save(Path("prepared/flickr8k/vocabulary.json"), settings)
    for experiment in ("flickr8k_transformer", "flickr8k_minutes"):
        reproduction.run_row("a", {"a": {"experiment": experiment}}, [1])
    assert called.count("prepare") == 1


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a folder with results of a row in it, and the values measured next."""
    name, values = "scenes_soft", {}
    first = RESULTS[name]
    (tmp_path / f"{name}.json").write_text(json.dumps(first))
    shutil.copy(rows_of.RESULTS / "rows.toml", tmp_path)

    def run_row(name, rows, seeds, *options):
        (seed,) = seeds
        (run,) = (run for run in first["runs"] if run["seed"] == seed)
        intervals = {**run.get("intervals", {})}
        intervals |= {k: [x - 1, x + 1] for k, x in values.items()}
        scores = run["scores"] | values
        return [{**run, "revision": "b", "scores": scores, "intervals": intervals}]

    monkeypatch.setattr(rows_of, "RESULTS", tmp_path)
    monkeypatch.setattr(reproduction, "RESULTS", tmp_path)
    monkeypatch.setattr(reproduction, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(reproduction, "run_row", run_row)
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
    reproduction.main()
    printed = capsys.readouterr().out
    assert f"verdict: {verdict}" in printed
    run = RESULTS["scenes_soft"]["runs"][0]
    low, high = run["intervals"]["BLEU-4"]
    assert f"{run['scores']['BLEU-4']:.4g} [{low:.4g}, {high:.4g}]" in printed
    second = json.loads((folder / "again" / "scenes_soft.json").read_text())
    assert len(second["runs"]) == len(RESULTS["scenes_soft"]["runs"])
    assert (folder / "scenes_soft.json").read_bytes() == before
    reproduction.main()  # nothing is measured a third time
    printed = capsys.readouterr().out
    assert "measured twice" in printed
    assert f"verdict: {verdict}" in printed


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("everyday", "everyday-seed-1/stages.json"),
        ("flickr8k_soft6", "flickr8k_soft6-seed-1/model.safetensors"),
        ("people_soft", "flickr8k_soft6-seed-1/model.safetensors"),
    ],
)
def test_a_second_measurement_names_what_it_does_not_make_anew(
    tmp_path, monkeypatch, capsys, name, file
):
    monkeypatch.chdir(tmp_path)
    arguments = (name, ROWS[name], Path("again.json"), [1])
    reproduction._print_second(*arguments)
    assert "remove" not in capsys.readouterr().out
    path = rows_of.RUNS / file
    path.parent.mkdir(parents=True)
    path.touch()
    reproduction._print_second(*arguments)
    assert f"{path.parent}: " in capsys.readouterr().out


def test_scores_without_intervals_have_no_verdict_unless_they_are_equal():
    verdict_of = second_measurement.verdict_of
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scenes_soft", "--seed", "9"], "scenes_soft: no seed 9; it has "),
        (["marginal", "--seed", "1"], "marginal: no seed 1; it has no seeds"),
        (["everyday", "--cluster", "auto"], "everyday: it runs on this machine"),
    ],
)
def test_a_seed_or_a_cluster_that_a_row_cannot_use_is_one_line(
    arguments, message, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["reproduction.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        reproduction.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
