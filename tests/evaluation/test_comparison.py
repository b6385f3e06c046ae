"""Comparison of evaluated runs: rows, p-values, formats and errors."""

import csv
import io
import json
from unittest import mock

import numpy as np
import pytest
from random_captions import draw_corpus, joined
from refusals import refusal
from tiny_run import experiment

from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.data import manifest
from show_attend_tell.data.manifest import Photo
from show_attend_tell.evaluation import comparison
from show_attend_tell.evaluation.comparison import (
    FORMATS,
    compare_runs,
    format_comparison,
)
from show_attend_tell.evaluation.metrics import bootstrap
from show_attend_tell.evaluation.metrics.scoring import score
from show_attend_tell.runtime.errors import EvaluationError

METRICS = ("BLEU-1", "BLEU-4", "CIDEr")
PHOTOS = 40


class Runs:
    """Prepared data, and runs with captions of which a share is random."""

    def __init__(self, root):
        self.work, self.folder = root / "prepared", root / "runs"
        self.rng = np.random.default_rng(8)
        self.captions, texts = joined(*draw_corpus(self.rng, PHOTOS, 3))
        self.photos = [
            Photo(f"{k}.jpg", f"{k}.jpg", "val", [f"{text} ." for text in of_photo])
            for k, of_photo in enumerate(texts)
        ]
        (self.work / "made-up").mkdir(parents=True)
        manifest.write_manifest(self.work / "made-up" / "manifest.jsonl", self.photos)

    def add(self, name, share, seed=1, photos=PHOTOS, suffix="", **changes):
        """Evaluate captions of which a share is that of another photo."""
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        chosen = experiment(folder.name, training={"seed": seed}, **changes)
        (folder / runs.SETTINGS).write_text(experiment_to_toml(chosen))
        wrong = self.rng.random(PHOTOS) < share
        captions = {
            photo.id: self.captions[(k + wrong[k]) % PHOTOS]
            for k, photo in enumerate(self.photos[:photos])
        }
        references = {p.id: list(p.captions) for p in self.photos[:photos]}
        scores = score(captions, references, "simple").scores
        rows = [{"image_id": k, "caption": text} for k, text in captions.items()]
        runs.write_json(folder / f"captions-val{suffix}.json", rows)
        made = {"split": "val", "tokenizer": "simple", "experiment": name, "beam": 2}
        runs.write_json(folder / f"scores{suffix}.json", {**scores, **made})
        return captions

    def compare(self, *names, metrics=METRICS):
        return compare_runs(names, self.work, self.folder, metrics)

    def rows(self, *names):
        return [(row.label, row.seeds) for row in self.compare(*names).rows]

    def refusal(self, *names, **changes):
        return refusal(EvaluationError, self.compare, *names, **changes)

    def scores(self, name, file="scores.json"):
        return json.loads((self.folder / name / file).read_text())

    def change(self, name, **changes):
        path = self.folder / name / "scores.json"
        runs.write_json(path, {**self.scores(name), **changes})


@pytest.fixture
def made(tmp_path, no_java):
    return Runs(tmp_path)


@pytest.fixture
def four(made):
    """Two seeds of one experiment, a clearly worse one, and the first again."""
    for seed in (1, 2):
        made.add(f"good-seed-{seed}", 0.1, seed)
    made.add("bad", 0.9, model={"dropout": 0.3})
    return made


def test_runs_share_a_row_by_their_settings_and_are_labelled_by_name_or_folder(made):
    for name, seed in (("first", 1), ("second", 2), ("again", 1)):
        made.add(name, 0.1, seed)
    rows = made.rows("first", "second", "again")
    assert rows == [("first", (1, 2)), ("again", (1,))]
    made.change("second", beam=5)
    made.add("other-rate", 0.1, 2, encoder={"seed": 3})
    assert len(made.rows("first", "second", "other-rate")) == 3
    made.add("a/tiny", 0.1, 1)
    made.add("b/tiny", 0.2, 1, model={"dropout": 0.3})
    made.add("c/tiny", 0.2, 2)
    a, b = (str(made.folder / name) for name in ("a/tiny", "b/tiny"))
    assert made.rows("a/tiny", "b/tiny", "c/tiny") == [(a, (1, 2)), (b, (1,))]


def test_other_evaluations_of_a_run_are_named_by_their_files(made):
    for seed in (1, 2):
        made.add(f"run-seed-{seed}", 0.3, seed)
        made.add(f"run-seed-{seed}", 0.1, seed, suffix="-reranked")
    files = [f"run-seed-{seed}/scores-reranked.json" for seed in (1, 2)]
    names = "run-seed-1", "run-seed-2", *files
    assert made.rows(*names) == [("run", (1, 2)), ("run-reranked", (1, 2))]
    whole = [made.scores(file, "")["BLEU-4"] for file in files]
    rows = made.compare(*names).rows
    assert rows[1].means["BLEU-4"] == pytest.approx(np.mean(whole))
    refused = made.refusal("run-seed-1", files[0], str(made.folder / files[0]))
    assert "named twice" in refused
    refused = made.refusal("run-seed-1", "run-seed-1/scores-absent.json")
    assert "scores-absent.json: no such file" in refused
    refused = made.refusal("run-seed-1", "rum-seed-2")
    assert "no such run, nearest: run-seed-" in refused


def test_runs_that_differ_in_the_seed_share_a_row(four):
    table = four.compare("good-seed-1", "bad", "good-seed-2")
    assert (table.split, table.photos, table.tokenizer) == ("val", PHOTOS, "simple")
    rows = [(row.label, row.seeds) for row in table.rows]
    assert rows == [("good", (1, 2)), ("bad", (1,))]
    for name in METRICS:
        each = [four.scores(f"good-seed-{seed}")[name] for seed in (1, 2)]
        assert table.rows[0].means[name] == pytest.approx(np.mean(each))
        assert table.rows[0].deviations[name] == pytest.approx(np.std(each, ddof=1))
        assert table.rows[1].means[name] == pytest.approx(four.scores("bad")[name])
    assert table.rows[1].deviations == table.rows[0].p_values == {}
    (row,) = four.compare("bad", metrics=None).rows  # no Java, no METEOR
    assert list(row.means) == ["BLEU-1", "BLEU-4", "CIDEr"]


def test_the_settings_that_differ_follow_the_table_in_every_format(four):
    four.change("bad", beam=5)
    table = four.compare("good-seed-1", "good-seed-2", "bad")
    changes = {"model.dropout": 0.3, "decoding.beam": 5}
    assert table.rows[0].settings == {}
    assert table.rows[1].settings == changes
    line = "bad differs from good in model.dropout = 0.3 (not 0.2), decoding.beam = 5"
    for style in ("text", "markdown"):
        assert f"{line} (not 2)" in format_comparison(table, style)
    (_, row) = csv.DictReader(io.StringIO(format_comparison(table, "csv")))
    assert row["settings that differ"] == "model.dropout = 0.3; decoding.beam = 5"


def test_a_bar_names_the_run_that_is_scored(four, capsys):
    four.compare("good-seed-1", "bad")
    printed = capsys.readouterr().err
    assert "good-seed-1" in printed
    assert "bad" in printed
    assert "2/2" in printed
    compare_runs(["bad"], four.work, four.folder, METRICS, progress=False)
    assert "scoring" not in capsys.readouterr().err


def test_p_values_are_those_of_resampled_differences(four):
    table = four.compare("bad", "good-seed-1", "good-seed-2", metrics=["CIDEr"])
    references = {p.id: list(p.captions) for p in four.photos}
    resampled = []
    for name in ("bad", "good-seed-1", "good-seed-2"):
        rows = four.scores(name, "captions-val.json")
        captions = {row["image_id"]: row["caption"] for row in rows}
        each = score(captions, references, "simple").statistics["CIDEr"].values[:, 0]
        counts = np.concatenate(list(bootstrap.draw_counts(PHOTOS)))
        resampled.append(counts @ each / PHOTOS)
    differences = (resampled[1] + resampled[2]) / 2 - resampled[0]
    expected = bootstrap.paired_p(differences)
    assert table.rows[1].p_values == {"CIDEr": pytest.approx(expected)}
    assert expected < 0.01


def test_equal_captions_have_p_one(made):
    captions = made.add("one", 0.3, 1)
    made.add("two", 0.3, 1, model={"dropout": 0.3})
    rows = [{"image_id": k, "caption": text} for k, text in captions.items()]
    runs.write_json(made.folder / "two" / "captions-val.json", rows[::-1])
    table = made.compare("one", "two")
    assert set(table.rows[1].p_values.values()) == {1.0}


def test_every_format_has_the_numbers_of_every_row(four):
    table = four.compare("good-seed-1", "good-seed-2", "bad")
    mean, deviation = table.rows[0].means["CIDEr"], table.rows[0].deviations["CIDEr"]
    p = table.rows[1].p_values["CIDEr"]
    for style in FORMATS:
        text = format_comparison(table, style)
        assert "bad" in text
        if style != "csv":
            assert f"{mean:.2f} ± {deviation:.2f}" in text
            assert f"({p:.3f})" in text
            assert "40 photos of val" in text
    markdown = format_comparison(table, "markdown").splitlines()
    assert {line.count("|") for line in markdown[:4]} == {6}
    rows = list(csv.DictReader(io.StringIO(format_comparison(table, "csv"))))
    assert float(rows[0]["CIDEr"]) == mean
    assert float(rows[0]["CIDEr deviation"]) == deviation
    assert float(rows[1]["CIDEr p"]) == p
    assert rows[0]["seeds"] == "1 2"


def test_shares_have_three_decimals_as_in_the_table_of_eval(four):
    names = ("good-seed-1", "good-seed-2", "bad")
    table = four.compare(*names, metrics=["invented_people"])
    row = table.rows[0]
    (mean,) = row.means.values()
    (deviation,) = row.deviations.values()
    assert f" {mean:.3f} ± {deviation:.3f}\n" in format_comparison(table)


def test_an_unknown_score_is_refused_once_a_run_is_scored(four, monkeypatch):
    scored = mock.Mock(wraps=comparison.score_photos)
    monkeypatch.setattr(comparison, "score_photos", scored)
    four.refusal("good-seed-1", "good-seed-2", "bad", metrics=["F1"])
    scored.assert_called_once()


def test_runs_that_cannot_be_compared_are_one_line(four):
    assert "show-attend-tell eval" in four.refusal("bad", "unknown")
    assert "named twice" in four.refusal("bad", str(four.folder / "bad"))
    assert "must be one of BLEU-1" in four.refusal("bad", metrics=["F1"])
    four.add("fewer", 0.1, photos=30)
    assert "Received: 30 of 'made-up'" in four.refusal("bad", "fewer")
    four.change("good-seed-1", split="test")
    four.refusal("good-seed-1")  # no captions of test
    (four.folder / "good-seed-1" / "captions-val.json").rename(
        four.folder / "good-seed-1" / "captions-test.json"
    )
    assert "split must be 'val'" in four.refusal("bad", "good-seed-1")
    four.change("good-seed-2", tokenizer="ptb")
    assert "tokenizer must be 'simple'" in four.refusal("bad", "good-seed-2")
    file = four.folder / "bad" / "scores.json"
    for text in ("[]", '{"experiment": "ram_mnist", "split": "val", "error": 1.0}'):
        file.write_text(text)
        assert "of an evaluated captioner" in four.refusal("bad")
    file.write_text("{")
    assert "cannot be read" in four.refusal("bad")


def test_runs_without_settings_or_photos_are_one_line(four):
    four.change("bad", experiment="shipped")
    (four.folder / "bad" / runs.SETTINGS).unlink()
    refused = four.refusal("good-seed-1", "bad")
    assert "scores.json: cannot be read: `experiment`" in refused
    manifest.write_manifest(four.work / "made-up" / "manifest.jsonl", four.photos[1:])
    assert "1 photos of" in four.refusal("good-seed-1")
