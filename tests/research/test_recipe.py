"""The stages of the recipe run in order, once, and go on after an interruption."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import recipe
import shown_head
from tensor_files import unpacked

from show_attend_tell.cli.main import cli
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.runtime.errors import DataError

ROOT = Path(__file__).resolve().parents[2]
STAGES = recipe.read_stages("everyday")
VALUES = recipe.values_of("everyday", 1, "/data")
TRAINED = [
    f"everyday_{name}" for name in ("all", "balanced", "reward", "lstm", "lstm_reward")
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage["name"])
def test_each_stage_is_a_valid_command(stage):
    words = recipe.words_of(stage, VALUES)
    if "program" in stage:
        assert (ROOT / words[0]).is_file()
        return
    verb, *arguments = words[2:]
    given = cli.commands[verb].make_context(verb, arguments).params
    if "experiment" in given:
        load_experiment(given["experiment"], given["changes"])


@pytest.mark.parametrize("name", TRAINED)
def test_the_recipe_uses_every_experiment_of_the_everyday_models(name):
    assert any(f"-e {name} " in stage.get("command", "") for stage in STAGES)


def test_initial_models_and_teachers_are_runs_of_earlier_stages():
    made = set()
    for stage in STAGES:
        words = recipe.words_of(stage, VALUES)
        if "train" not in words:
            continue
        options = dict(zip(words, words[1:], strict=False))
        needed = [options["--init-from"]] if "--init-from" in options else []
        for word in words:
            if word.startswith("distillation.teachers="):
                needed += json.loads(word.partition("=")[2].replace("'", '"'))
        assert made >= set(needed), stage["name"]
        name = options.get("--name", options["-e"])
        made |= {f"{name}-seed-{seed}" for seed in options["--seeds"].split(",")}
    assert len(made) == 5


@pytest.mark.parametrize(
    ("own", "options"),
    [
        (True, "--set data.source=folder --data {}/everyday"),
        (False, "--set data.source=everyday --data {}"),
    ],
)
def test_everyday_photos_are_those_of_the_list_unless_there_is_a_folder(
    tmp_path, own, options
):
    if own:
        (tmp_path / "everyday").mkdir()
    values = recipe.values_of("everyday", 1, str(tmp_path))
    assert values["everyday"] == options.format(tmp_path)


def test_boxes_of_people_are_those_beside_the_photos(tmp_path):
    (tmp_path / "everyday").mkdir()
    assert recipe.values_of("everyday", 1, str(tmp_path))["boxes"] == ""
    boxes = tmp_path / "everyday" / "people_boxes.jsonl"
    boxes.touch()
    values = recipe.values_of("everyday", 1, str(tmp_path))
    assert values["boxes"] == f"--boxes {boxes}"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return the commands that are run, of a recipe of four stages."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    stages = [
        {"name": "data", "command": "prepare -e a --data $data/b"},
        {"name": "shown", "program": "research/x.py $runs"},
        {"name": "model", "command": "train -e a --set b=$seed --resume"},
        {
            "name": "scores",
            "command": "eval -e a --name e-seed-$seed",
            "scores": "on b",
        },
    ]
    called = []

    def run(code, check, stdout):
        assert check
        command = " ".join(code[1:]).removeprefix("-m show_attend_tell ")
        called.append(command.replace(str(tmp_path / "data"), "DIR"))
        if called[-1].startswith(fault.get("verb", "none")):
            raise subprocess.CalledProcessError(1, code)
        if "eval" in code:
            folder = recipe.RUNS / "e-seed-3"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "scores.json").write_text('{"CIDEr": 50.12346}')
        return subprocess.CompletedProcess(code, 0, '{"layer": 2}')

    fault = {}
    monkeypatch.setattr(recipe, "read_stages", lambda name: stages)
    monkeypatch.setattr(recipe.subprocess, "run", run)
    monkeypatch.setattr(recipe, "git_revision", lambda: "r1")
    return stages, called, fault


COMMANDS = [
    "prepare -e a --data DIR/b",
    "research/x.py experiments/runs",
    "train -e a --set b=3 --resume",
    "eval -e a --name e-seed-3",
]


def test_stages_run_in_order_and_finished_ones_are_skipped(small):
    _, called, _ = small
    first = recipe.run_recipe("r", 3, "data")
    assert called == COMMANDS
    (run,) = first
    assert (run["seed"], run["label"], run["revision"]) == (3, "on b", "r1")
    assert run["scores"] == {"CIDEr": 50.1235}
    assert run["commands"][0] == "show-attend-tell prepare -e a --data DIR/b"
    assert run["commands"][1] == "python research/x.py experiments/runs"
    called.clear()
    assert recipe.run_recipe("r", 3, "data") == first
    assert called == []


def test_the_folder_of_the_data_may_be_the_current_one(small):
    _, called, _ = small
    first = recipe.run_recipe("r", 3, ".")
    assert first[0]["commands"][0] == "show-attend-tell prepare -e a --data DIR/b"
    assert first[0]["commands"][2] == "show-attend-tell train -e a --set b=3 --resume"
    called.clear()
    assert recipe.run_recipe("r", 3, str(Path.cwd())) == first
    assert called == []


def test_a_stage_sees_the_files_that_an_earlier_one_has_written(small, monkeypatch):
    stages, called, _ = small
    stages[3]["command"] += " $boxes"
    run, boxes = recipe.subprocess.run, recipe.WORK / "everyday" / "people_boxes.jsonl"

    def prepare(code, **options):
        if "prepare" in code:
            boxes.parent.mkdir(parents=True)
            boxes.touch()
        return run(code, **options)

    monkeypatch.setattr(recipe.subprocess, "run", prepare)
    first = recipe.run_recipe("r", 3, "data")
    assert called[-1] == f"{COMMANDS[-1]} --boxes {boxes}"
    assert recipe.run_recipe("r", 3, "data") == first


def test_a_recipe_continues_after_the_stage_that_failed(small):
    _, called, fault = small
    fault["verb"] = "train"
    with pytest.raises(subprocess.CalledProcessError):
        recipe.run_recipe("r", 3, "data")
    fault.clear()
    called.clear()
    recipe.run_recipe("r", 3, "data")
    assert called == COMMANDS[2:]


def test_the_seconds_of_interrupted_attempts_count(small, monkeypatch):
    _, _, fault = small
    seconds = iter(range(0, 1000, 10))
    monkeypatch.setattr(recipe.time, "time", lambda: next(seconds))
    fault["verb"] = "train"
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            recipe.run_recipe("r", 3, "data")
    fault.clear()
    (run,) = recipe.run_recipe("r", 3, "data")
    assert run["seconds"] == 10 + 10 + 3 * 10 + 10


def test_outside_of_a_git_repository_a_recipe_has_no_revision(small, monkeypatch):
    monkeypatch.setattr(recipe, "git_revision", lambda: None)
    (run,) = recipe.run_recipe("r", 3, "data")
    assert run["revision"] is None


def test_a_stage_that_ended_with_another_command_is_refused(small):
    stages, called, _ = small
    recipe.run_recipe("r", 3, "data")
    stages[2] = {"name": "model", "command": "train -e c --resume"}
    called.clear()
    with pytest.raises(DataError, match="stage .model. ended as .*remove"):
        recipe.run_recipe("r", 3, "data")
    assert called == []


def test_a_stage_that_has_not_ended_may_have_another_command(small):
    stages, called, fault = small
    fault["verb"] = "train"
    with pytest.raises(subprocess.CalledProcessError):
        recipe.run_recipe("r", 3, "data")
    fault.clear()
    called.clear()
    stages[2] = {"name": "model", "command": "train -e c --resume"}
    recipe.run_recipe("r", 3, "data")
    assert called == ["train -e c --resume", COMMANDS[3]]


@pytest.mark.parametrize("data", ["", "absent"])
def test_without_its_data_a_recipe_says_what_to_name(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="DATA must be the folder of the data sets"):
        recipe.run_recipe("everyday", 1, data)
    assert not Path("experiments").exists()


WORDS = Vocabulary((*SPECIAL, "a", "dog", "runs"))


class TwoHeads:
    """Its word "dog" depends on the last of 4 places; head 2 of layer 2 looks there."""

    grid, vocabulary = (2, 2), WORDS
    encoder_identity = None

    class settings:  # noqa: D106
        decoder = "tiny"

    def attention_heads(self, annotations, tokens):
        B, T = tokens.shape
        heads = np.zeros((B, 2, 3, T, 4))
        heads[..., 0] = 1
        heads[:, 1, 1] = np.eye(4)[3]
        return heads

    def __call__(self, inputs):
        B, T = inputs["tokens"].shape
        logits = np.zeros((B, T, len(WORDS)))
        logits[:, :, WORDS.encode(["dog"])[0]] = inputs["annotations"][:, 3, :1]
        return {"logits": logits, "alpha": np.zeros((B, T, 4))}


class Reader:
    """Annotations of 5 only at the last place."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def read(self, rows):
        annotations = np.zeros((len(rows), 4, 2), np.float16)
        annotations[:, 3] = 5
        return annotations


def choose(monkeypatch, file, captions):
    """Choose the head of two heads in a file by the nouns of captions."""
    rows = np.arange(len(captions))
    data = Split("val", [None] * len(rows), rows, captions, rows + 1.0, 0 * rows)
    monkeypatch.setattr(shown_head, "load_captioner", lambda file: TwoHeads())
    monkeypatch.setattr(shown_head, "open_features", lambda *_, identity: Reader())
    monkeypatch.setattr(shown_head, "load_splits", lambda *arguments: [data])
    return shown_head.choose(file, load_experiment("everyday_all"), "prepared")


def test_the_head_whose_places_explain_nouns_is_written(monkeypatch, tmp_path):
    captions = [[["a", "dog", "runs"]], [["a", "cat"]]]  # no word of the vocabulary
    file = tmp_path / "model.safetensors"
    shutil.copy(ROOT / "experiments" / "models" / "flickr8k.safetensors", file)
    before, weights = unpacked(file)
    monkeypatch.setattr(shown_head, "HIDDEN", 0.01)  # of 4 places, one at least
    found = choose(monkeypatch, file, captions)
    assert (found["layer"], found["head"], found["nouns"]) == (2, 2, 1)
    after, kept = unpacked(file)
    written = after["config"].pop("transformer")
    assert (written["alpha_layer"], written["alpha_head"]) == (2, 2)
    before["config"].pop("transformer")
    assert {**after, "crc32": 0} == {**before, "crc32": 0}
    assert {"reranker", "confidence"} < set(after)
    assert kept.keys() == weights.keys()
    assert all(kept[name].dtype == weights[name].dtype for name in weights)
    assert all(np.array_equal(kept[name], weights[name]) for name in weights)
    falls = np.array(found["falls"])
    log_p = [5 - np.log(6 + np.exp(5.0)), -np.log(7)]  # before; with the place hidden
    assert falls[1, 1] == pytest.approx(log_p[0] - log_p[1], abs=1e-3)
    assert falls.sum() == pytest.approx(falls[1, 1], abs=1e-3)


def test_without_a_known_noun_no_head_is_chosen(monkeypatch):
    with pytest.raises(DataError, match="no validation caption of everyday_all has"):
        choose(monkeypatch, "model.safetensors", [[["ein", "hund"]]])


def test_a_decoder_without_heads_is_refused():
    model = TwoHeads()
    model.attention_heads = lambda *arguments: None
    mentions = [shown_head.Mention(0, ["a", "dog"], 1)]
    with pytest.raises(SystemExit, match="has no heads"):
        shown_head.falls_by_head(model, Reader(), mentions)
