"""Evaluation of a tiny captioner: captions, scores, notes, files and errors."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from sealed_features import edited
from tiny_evaluation import EXPERIMENT, IDENTITY, PHOTO, Place, make_place

from data_prep.feature_part import write_column
from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.data import manifest, splits
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.region import smooth
from show_attend_tell.evaluation import pointing
from show_attend_tell.evaluation import report as evaluation_report
from show_attend_tell.evaluation.comparison import compare_runs
from show_attend_tell.evaluation.evaluate import evaluate, score_file
from show_attend_tell.evaluation.metrics.ngrams import FILE_TOKEN_BLEU, file_token_bleu
from show_attend_tell.evaluation.pointing import HIDDEN, SCORES
from show_attend_tell.evaluation.report import METRICS, table
from show_attend_tell.evaluation.validation import generate_captions
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_captioner, load_generator
from show_attend_tell.runtime.errors import (
    DataError,
    EvaluationError,
    ModelFileError,
)

pytestmark = pytest.mark.usefixtures("numpy_searches")


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Place:
    """Return prepared data and a run, made once and not changed by any test."""
    return make_place(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def evaluated(original):
    """Return the report with default settings and the model that was loaded for it."""
    models = []

    def load(files: list[Path], *options) -> Generator:
        generator = load_generator(files, *options)
        models.append(generator.captioner)
        return generator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("show_attend_tell.evaluation.evaluate.load_generator", load)
        patch.setenv("PATH", "")  # no Java: METEOR takes seconds to start
        return original.evaluate(), models[0]


@pytest.fixture(scope="module")
def report(evaluated):
    return evaluated[0]


@pytest.fixture
def place(original, report, tmp_path, no_java) -> Place:
    """Return a copy of the data, the run and its evaluation; without Java."""
    shutil.copytree(original.work, tmp_path / "prepared")
    shutil.copytree(original.runs, tmp_path / "runs")
    return Place(tmp_path / "prepared", tmp_path / "runs")


@pytest.fixture
def loaded(evaluated, monkeypatch):
    """Load every model file as one captioner, to save time."""
    model, load = evaluated[1], "show_attend_tell.evaluation.evaluate.load_generator"
    monkeypatch.setattr(load, lambda *options: model.generator)
    return model


def with_locations(locations, **changes):
    """Return the experiment with greedy captions from these locations."""
    changes |= {"beam": 1, "batch_size": 5, "locations": locations}
    decoding = dataclasses.replace(EXPERIMENT.decoding, **changes)
    return dataclasses.replace(EXPERIMENT, decoding=decoding)


def test_the_validation_split_is_used_unless_test_photos_have_captions(report, place):
    assert (report.split, report.photos) == ("val", 4)
    photos = [
        dataclasses.replace(photo, split="test") if photo.split == "val" else photo
        for photo in manifest.read_manifest(place.manifest)
    ]
    manifest.write_manifest(place.manifest, photos)
    file = place.run / "captions-val.json"
    again = score_file(file, EXPERIMENT, place.work, tokenizer="simple")
    assert (again.split, again.photos) == ("test", 4)


@pytest.mark.parametrize("trained", [True, False])
def test_scores_of_a_file_are_saved_so_that_compare_reads_them(place, trained):
    file = place.run / "captions-val.json"
    other = place.work / "others.json"
    rows = json.loads(file.read_text())
    other.write_text(json.dumps([{**row, "caption": "a red star"} for row in rows]))
    if trained:
        (place.run / runs.SETTINGS).write_text(experiment_to_toml(EXPERIMENT))
    saved = score_file(
        other, EXPERIMENT, place.work, tokenizer="simple", runs_folder=place.runs
    )
    assert saved.file == place.run / "scores-captions-others.json"
    assert table([saved])[-1] == f"scores: {saved.file}"
    compared = compare_runs([saved.file], place.work, place.runs, progress=False)
    (row,) = compared.rows
    assert (row.label, row.seeds) == ("tiny-captions-others", ())
    assert row.means["CIDEr"] == pytest.approx(saved.scores["CIDEr"])


def test_scores_of_another_file_of_the_same_name_are_kept(place):
    options = {"tokenizer": "simple", "runs_folder": place.runs}
    first = place.work / "one" / "results.json"
    second = place.work / "two" / "results.json"
    for file in (first, second):
        file.parent.mkdir()
        file.write_bytes((place.run / "captions-val.json").read_bytes())
    saved = score_file(first, EXPERIMENT, place.work, **options)
    before = saved.file.read_bytes()
    with refused(EvaluationError, "results.json, a file of the same name as"):
        score_file(second, EXPERIMENT, place.work, **options)
    assert saved.file.read_bytes() == before
    score_file(first, EXPERIMENT, place.work, **options)
    first.unlink()
    score_file(second, EXPERIMENT, place.work, **options)


def test_captions_equal_those_generated_for_single_photos(original, loaded):
    model = loaded
    with splits.open_features(EXPERIMENT, original.work, identity=IDENTITY) as reader:
        for entry in original.saved("captions-val.json"):
            features = reader.read([reader.rows[entry["image_id"]]])
            best = model.generate(features, EXPERIMENT.decoding)
            words = model.vocabulary.decode(best.tokens[0, 0].tolist())
            assert entry["caption"] == " ".join(words)
            assert entry["log_prob"] == pytest.approx(best.log_probs[0, 0], abs=1e-4)


def test_scores_json_has_every_metric_and_the_origin_of_the_scores(original, report):
    scores = original.saved("scores.json")
    assert list(scores)[: len(METRICS)] == list(METRICS)
    assert {n: scores[n] for n in report.scores} == pytest.approx(
        dict(report.scores), nan_ok=True
    )
    expected = {"split": "val", "photos": 4, "tokenizer": "simple", "beam": 2}
    expected |= {"length_normalisation": 0.5, "experiment": "tiny", "max_words": 6}
    assert {key: scores[key] for key in expected} == expected
    counts = {"mean_length", "distinct", "repeated_nouns"}
    assert {"revision", "notes"} | counts <= scores.keys()
    assert {"keras", "tensorflow", "pycocoevalcap"} <= scores["versions"].keys()
    assert scores["locations"] == "expected"
    assert "seed" not in scores
    assert "exact_match" not in scores
    assert "pointing" not in scores
    captions = [row["caption"] for row in original.saved("captions-val.json")]
    assert report.mean_length == np.mean([len(c.split()) for c in captions])
    assert report.distinct == len(set(captions)) / 4


def test_scores_have_the_mean_entropy_of_attention_over_words(original, report, loaded):
    experiment = EXPERIMENT
    identity = loaded.generator.encoder_identity
    with splits.open_features(experiment, original.work, identity=identity) as reader:
        (data,) = splits.load_splits(experiment, original.work, ["val"], reader)
        rows, decoding = data.rows, experiment.decoding
        parts = list(generate_captions(loaded.generator, reader, rows, decoding))
    terms = []
    for part in parts:
        for alpha, length in zip(part.alpha[:, 0], part.lengths[:, 0], strict=True):
            for a in alpha[:length].astype(float):  # (L,) of one word
                terms.append(-(a * np.log(a)).sum() / np.log(len(a)))
    assert report.made["attention_entropy"] == pytest.approx(np.mean(terms), rel=1e-6)
    assert 0 < report.to_dict()["attention_entropy"] <= 1


def test_every_score_has_an_interval(original, report):
    saved = original.saved("scores.json")["intervals"]
    assert (saved["level"], saved["resamples"]) == (0.95, 1000)
    numbers = {name for name, value in report.scores.items() if value is not None}
    assert saved["scores"].keys() == numbers
    for low, high in saved["scores"].values():
        assert 0 <= low <= high
    low, high = saved["scores"]["BLEU-1"]
    assert low < report.scores["BLEU-1"] < high
    assert (
        f"{report.scores['BLEU-1']:.2f} [{low:.2f}, {high:.2f}]" in table([report])[2]
    )


def test_bleu_of_the_tokens_in_the_files_is_a_second_labelled_set(original, report):
    photos = manifest.read_manifest(original.manifest)
    references = {p.id: list(p.captions) for p in photos if p.split == "val"}
    scores, _ = file_token_bleu(report.captions, references)
    for name in FILE_TOKEN_BLEU:
        assert report.scores[name] == scores[name].value
    assert original.saved("scores.json")["period_appended"] is True
    lines = table([report])
    title = next(k for k, line in enumerate(lines) if "tokens in the files" in line)
    assert "period appended" in lines[title]
    names = [line.split()[0] for line in lines[title + 1 : title + 9]]
    assert names == [name.removesuffix("-files") for name in FILE_TOKEN_BLEU]


def test_scores_without_java_or_periods_are_left_out_with_a_note(place, report):
    photos = [
        dataclasses.replace(p, captions=[text.rstrip(".") for text in p.captions])
        for p in manifest.read_manifest(place.manifest)
    ]
    manifest.write_manifest(place.manifest, photos)
    again = score_file(place.run / "captions-val.json", EXPERIMENT, place.work)
    assert not set(FILE_TOKEN_BLEU) & again.scores.keys()
    assert any(n.startswith("no BLEU of the tokens in the files") for n in again.notes)
    assert again.scores["METEOR"] is again.to_dict()["METEOR"] is None
    assert any(note.startswith("no METEOR") for note in again.notes)
    assert again.scores["BLEU-4"] == report.scores["BLEU-4"]


def test_captions_are_saved_before_they_are_scored(place, loaded, monkeypatch):
    for name in ("captions-val.json", "scores.json"):
        (place.run / name).unlink()

    def fail(*arguments):
        assert len(place.saved("captions-val.json")) == 4
        raise EvaluationError("the scorer broke")

    monkeypatch.setattr(evaluation_report, "score", fail)
    with pytest.raises(EvaluationError, match="the scorer broke"):
        place.evaluate()
    assert not (place.run / "scores.json").exists()


def test_scores_of_another_beam_have_files_and_a_column_of_their_own(place, loaded):
    (place.run / "scores.json").unlink()
    reports = [place.evaluate(beam=beam) for beam in (1, 2)]
    assert [one.label for one in reports] == ["beam 1", "beam 2"]
    assert place.saved("scores.json")["beam"] == 2
    greedy = place.saved("scores-beam-1.json")
    assert (greedy["beam"], greedy["length_normalisation"]) == (1, 0.0)
    assert len(place.saved("captions-val-beam-1.json")) == 4
    lines = table(reports)
    assert lines[1].split() == ["beam", "1", "beam", "2"]
    assert [line.split()[0] for line in lines[2 : 2 + len(METRICS)]] == list(METRICS)


def test_a_photo_without_features_is_skipped_with_a_note(place, loaded):
    path = feature_path(place.data, EXPERIMENT.encoder)
    with edited(path) as file:
        row = list(file["image_ids"].asstr()).index("photo-14")
        problems = file["problems"].asstr()[:].tolist()
        problems[row] = "cut short"
        del file["problems"]
        write_column(file, "problems", problems)
        file["written"][row] = False
    report = place.evaluate()
    assert report.photos == 3
    assert any("1 photos of val" in n and "photo-14" in n for n in report.notes)


def with_objects(place: Place, captions: dict[str, str], box: list[float]) -> None:
    """Give each validation photo an object named by its caption's last word."""
    photos = []
    for photo in manifest.read_manifest(place.manifest):
        if words := captions.get(photo.id, "").split():
            item = {"name": words[-1], "box": box}
            exact = (captions[photo.id],) if photo.id == "photo-12" else ()
            photo = dataclasses.replace(
                photo, objects=(item,), captions=photo.captions + exact
            )
        photos.append(photo)
    manifest.write_manifest(place.manifest, photos)


def remove_attention(place: Place) -> None:
    """Replace the model by one of the mean annotation."""
    model = load_captioner(place.run / "model.safetensors")
    settings = dataclasses.replace(model.settings, attention="mean")
    arguments = {**model.get_config(), "settings": settings}
    Captioner.from_config(arguments).save(place.run / "model.safetensors")


@pytest.mark.nightly
def test_without_attention_scenes_have_no_regions_or_pointing(place, report):
    with_objects(place, report.captions, [0, 0, *PHOTO])
    remove_attention(place)
    found = place.evaluate().to_dict()
    absent = {"region_control", "pointing", "pointing_centre", "attention_entropy"}
    assert not absent & found.keys()
    assert "exact_match" in found


@pytest.mark.nightly
def test_boxes_need_attention(place, report):
    remove_attention(place)
    boxes = place.work / "people.jsonl"
    name = next(iter(report.captions))
    boxes.write_text(json.dumps({"file": name, "people": [[0, 0, 1, 1]]}))
    again = place.evaluate(boxes=boxes)
    assert "no pointing: the model has no attention" in again.notes
    assert "pointing" not in again.scores


def test_scenes_also_have_exact_match_and_pointing(place, report, loaded):
    left = [0, 0, PHOTO[0] / 2, PHOTO[1]]
    with_objects(place, report.captions, left)
    hits = []
    with FeatureReader(feature_path(place.data, EXPERIMENT.encoder)) as reader:
        for photo, caption in report.captions.items():
            words = caption.split()
            features = reader.read([reader.rows[photo]])
            best = loaded.generate(features, EXPERIMENT.decoding)
            for step, word in enumerate(words):
                if word == words[-1]:
                    drawn = smooth(best.alpha[0, 0, step], (2, 3))
                    hits.append(drawn.argmax() % 3 == 0)
    again = place.evaluate()
    assert again.captions == report.captions
    assert hits
    assert again.scores["pointing"] == pytest.approx(np.mean(hits))
    assert again.scores["exact_match"] >= 1 / 4
    assert again.scores["pointing_random"] == pytest.approx(1 / 3)
    assert again.scores["pointing_centre"] == 0  # x1 is exclusive
    saved = place.saved("scores.json")
    assert {name: saved[name] for name in SCORES} == {
        name: again.scores[name] for name in SCORES
    }
    assert saved["intervals"]["scores"].keys() >= {*SCORES, *HIDDEN}


def test_boxes_of_people_measure_attention_at_words_for_people(
    place, report, loaded, monkeypatch
):
    words = " ".join(report.captions.values()).split()
    monkeypatch.setattr(pointing, "PEOPLE", set(words))
    boxes = place.work / "people.jsonl"
    rows = [{"file": name, "people": [[0, 0, 1, 1]]} for name in report.captions]
    boxes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = place.evaluate(boxes=boxes)
    assert again.captions == report.captions
    assert [again.scores[name] for name in SCORES] == pytest.approx(
        [1, 1, 1, 1], abs=1e-4
    )
    assert "exact_match" not in again.scores
    assert any(line.startswith("pointing_mass") for line in table([again]))


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("unreadable", "score", "note"),
    [
        (["photo-13"], 1, "pointing leaves out 1 photos that cannot be read: "),
        (["photo-12", "photo-13"], None, "no pointing: 2 photos that cannot be read: "),
    ],
)
def test_unreadable_photos_are_left_out_of_pointing_with_a_note(
    place, report, unreadable, score, note
):
    captions = {
        k: v for k, v in report.captions.items() if k in ("photo-12", "photo-13")
    }
    with_objects(place, captions, [0, 0, *PHOTO])
    for name in unreadable:
        (place.data / f"{name}.png").write_bytes(b"not a photo")
    again = place.evaluate()
    assert again.scores["pointing"] == score  # the box is the whole photo
    assert again.scores["exact_match"] is not None
    (shown,) = [note for note in again.notes if "pointing" in note]
    assert shown.startswith(note)
    assert unreadable[0] in shown


def test_a_beam_of_sampled_words_is_refused(place):
    decoding = dataclasses.replace(EXPERIMENT.decoding, method="sample")
    experiment = dataclasses.replace(EXPERIMENT, decoding=decoding)
    with refused(EvaluationError, "`beam` has no effect with decoding.method"):
        evaluate(experiment, place.work, place.runs, beam=2)


@pytest.mark.nightly
@pytest.mark.usefixtures("loaded")
def test_files_and_labels_contain_the_locations_and_the_seed(place):
    sampled = with_locations("sampled", seed=3)
    how = {"tokenizer": "simple", "progress": False}
    report = evaluate(sampled, place.work, place.runs, **how)
    assert report.label == "beam 1, sampled, seed 3"
    scores = place.saved("scores-sampled-seed-3.json")
    assert (scores["locations"], scores["seed"]) == ("sampled", 3)
    assert len(place.saved("captions-val-sampled-seed-3.json")) == 4
    assert place.saved("scores.json")["locations"] == "expected"  # not overwritten


@pytest.mark.nightly
def test_samples_of_photos_do_not_depend_on_their_batches(original, loaded):
    with splits.open_features(EXPERIMENT, original.work, identity=IDENTITY) as reader:
        rows = np.repeat(reader.rows["photo-12"], 5)

        def sample(size, seed=3):
            decoding = with_locations("sampled", seed=seed).decoding
            decoding = dataclasses.replace(decoding, batch_size=size)
            parts = list(generate_captions(loaded, reader, rows, decoding))
            return np.concatenate([part.locations for part in parts]).tolist()

        samples = sample(1)
        assert samples == sample(5) != sample(5, seed=4)
    assert len(set(map(str, samples))) > 2  # distinct samples of one photo


def test_files_that_do_not_fit_and_wrong_settings_are_one_line(place):
    file = place.run / "captions-val.json"
    with refused(DataError, "split 'test' has no photo"):
        place.evaluate(split="test")
    with refused(DataError, "split 'test' has no photo"):
        score_file(file, EXPERIMENT, place.work, "test", "simple")
    with refused(ValueError, "`beam` must be at least 1"):
        place.evaluate(beam=0)
    with edited(feature_path(place.data, EXPERIMENT.encoder)) as features:
        features.attrs["identity"] = json.dumps({**IDENTITY, "weights_digest": "1"})
    with refused(DataError, "another encoder: weights_digest"):
        place.evaluate()
    (place.run / "model.safetensors").unlink()
    with refused(ModelFileError, "model.safetensors: "):
        place.evaluate()
