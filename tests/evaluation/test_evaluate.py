"""Evaluation of a tiny captioner: captions, scores, notes, files and errors."""

import dataclasses
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from tiny_evaluation import EXPERIMENT, GRID, IDENTITY, SIDE, Place, make_place

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data import manifest, splits
from show_attend_tell.data.features import FeatureReader, feature_path
from show_attend_tell.data.manifest import Photo
from show_attend_tell.data.region import smooth
from show_attend_tell.data.vocabulary import tokenize
from show_attend_tell.evaluation import pointing
from show_attend_tell.evaluation import report as evaluation_report
from show_attend_tell.evaluation.evaluate import (
    default_split,
    evaluate,
    score_file,
)
from show_attend_tell.evaluation.metrics import (
    FILE_TOKEN_BLEU,
    file_token_bleu,
    validation_scores,
)
from show_attend_tell.evaluation.pointing import SCORES
from show_attend_tell.evaluation.report import METRICS
from show_attend_tell.evaluation.validation import generate_captions
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_generator
from show_attend_tell.runtime.errors import (
    FeatureError,
    ManifestError,
    MetricsError,
    ModelFileError,
)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Place:
    """Return prepared data and a run, made once and not changed by any test."""
    return make_place(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def evaluated(original):
    """Return the report with default settings and the model that was loaded for it."""
    loaded = []

    def load(files: list[Path], *options) -> Generator:
        generator = load_generator(files, *options)
        loaded.append(generator.captioner)
        return generator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("show_attend_tell.evaluation.evaluate.load_generator", load)
        patch.setenv("PATH", "")  # no Java: METEOR takes seconds to start
        return original.evaluate(), loaded[0]


@pytest.fixture(scope="module")
def report(evaluated):
    return evaluated[0]


@pytest.fixture
def place(original, report, tmp_path) -> Place:
    """Return a copy of the data, the run and its evaluation."""
    shutil.copytree(original.work, tmp_path / "prepared")
    shutil.copytree(original.runs, tmp_path / "runs")
    return Place(tmp_path / "prepared", tmp_path / "runs")


@pytest.fixture
def compiled(evaluated, monkeypatch):
    """Load every model file as one captioner, whose graphs are compiled already."""
    model = evaluated[1]
    monkeypatch.setattr(
        "show_attend_tell.evaluation.evaluate.load_generator",
        lambda *options: model.generator,
    )
    return model


def with_locations(locations, **changes):
    """Return the experiment with greedy captions from these locations."""
    changes |= {"beam": 1, "batch_size": 5, "locations": locations}
    decoding = dataclasses.replace(EXPERIMENT.decoding, **changes)
    return dataclasses.replace(EXPERIMENT, decoding=decoding)


def references(place: Place) -> dict[str, list[str]]:
    photos = manifest.read_manifest(place.manifest)
    return {p.id: list(p.captions) for p in photos if p.split == "val"}


def test_without_test_photos_the_validation_split_is_used(report):
    assert (report.split, report.photos) == ("val", 5)


def test_the_test_split_is_the_default_where_it_has_captions():
    photo = Photo("a", Path("a"), "test", ("a dog",))
    assert default_split([photo]) == "test"
    assert default_split([dataclasses.replace(photo, captions=())]) == "val"


def test_captions_equal_those_generated_for_single_photos(original, compiled):
    model = compiled
    with splits.open_features(EXPERIMENT, original.work, identity=IDENTITY) as reader:
        for entry in original.saved("captions-val.json"):
            one = reader.read([reader.rows[entry["image_id"]]])
            best = model.generate(
                one,
                DecodingSettings(
                    beam=2, max_words=6, length_normalisation=0.5, batch_size=2
                ),
            )
            words = model.vocabulary.decode(best.tokens[0, 0].tolist())
            assert entry["caption"] == " ".join(words)
            assert entry["log_prob"] == pytest.approx(best.log_probs[0, 0], abs=1e-4)


def test_scores_json_has_every_metric_and_the_origin_of_the_scores(original, report):
    scores = original.saved("scores.json")
    assert list(scores)[: len(METRICS)] == list(METRICS)
    assert {n: scores[n] for n in report.scores} == pytest.approx(
        dict(report.scores), nan_ok=True
    )
    expected = {"split": "val", "photos": 5, "tokenizer": "simple", "beam": 2}
    expected |= {"length_normalisation": 0.5, "experiment": "tiny", "max_words": 6}
    assert {key: scores[key] for key in expected} == expected
    assert {"revision", "notes", "mean_length", "distinct"} <= scores.keys()
    assert {"keras", "tensorflow", "pycocoevalcap"} <= scores["versions"].keys()
    assert scores["locations"] == "expected"
    assert "seed" not in scores
    assert "exact_match" not in scores
    assert "pointing" not in scores


def test_every_score_has_an_interval(original, report):
    saved = original.saved("scores.json")["intervals"]
    assert (saved["level"], saved["resamples"]) == (0.95, 1000)
    numbers = {name for name, value in report.scores.items() if value is not None}
    assert saved["scores"].keys() == numbers
    for low, high in saved["scores"].values():
        assert 0 <= low <= high
    low, high = saved["scores"]["BLEU-1"]
    assert low < report.scores["BLEU-1"] < high
    assert f"{report.scores['BLEU-1']:.2f} [{low:.2f}, {high:.2f}]" in report.lines()[2]


def test_bleu_of_the_tokens_in_the_files_is_a_second_labelled_set(original, report):
    own = file_token_bleu(report.captions, references(original))
    assert {n: report.scores[n] for n in FILE_TOKEN_BLEU} == own.scores
    assert original.saved("scores.json")["period_appended"] is True
    lines = report.lines()
    title = next(k for k, line in enumerate(lines) if "tokens in the files" in line)
    assert "period appended" in lines[title]
    names = [line.split()[0] for line in lines[title + 1 : title + 9]]
    assert names == [name.removesuffix("-files") for name in FILE_TOKEN_BLEU]


@pytest.mark.usefixtures("no_java")
def test_captions_without_periods_leave_out_the_second_set_with_a_note(place):
    photos = [
        dataclasses.replace(p, captions=[text.rstrip(".") for text in p.captions])
        for p in manifest.read_manifest(place.manifest)
    ]
    manifest.write_manifest(place.manifest, photos)
    again = score_file(place.run / "captions-val.json", EXPERIMENT, place.work)
    assert not set(FILE_TOKEN_BLEU) & again.scores.keys()
    assert any(n.startswith("no BLEU of the tokens in the files") for n in again.notes)


def test_mean_length_and_distinct_share_describe_the_captions(original, report):
    captions = [row["caption"] for row in original.saved("captions-val.json")]
    assert report.mean_length == np.mean([len(c.split()) for c in captions])
    assert report.distinct == len(set(captions)) / 5


def test_scores_agree_with_the_validation_scores_of_the_same_tokens(original, report):
    captions = {k: v.split() for k, v in report.captions.items()}
    truth = {k: list(map(tokenize, v)) for k, v in references(original).items()}
    expected = validation_scores(captions, truth)
    for name in ("BLEU-4", "CIDEr"):
        assert report.scores[name] == pytest.approx(expected[name], abs=1e-6)


def test_scores_agree_with_pycocoevalcap_called_directly(original, report):
    captions = {k: [v] for k, v in report.captions.items()}
    truth = {
        k: [" ".join(tokenize(text)) for text in texts]
        for k, texts in references(original).items()
    }
    bleu, _ = Bleu(4).compute_score(truth, captions, verbose=0)
    cider, _ = Cider().compute_score(truth, captions)
    for n in range(4):
        assert report.scores[f"BLEU-{n + 1}"] == pytest.approx(100 * bleu[n], abs=1e-6)
    assert report.scores["CIDEr"] == pytest.approx(100 * cider, abs=1e-6)


def test_captions_are_saved_before_they_are_scored(place, compiled, monkeypatch):
    for name in ("captions-val.json", "scores.json"):
        (place.run / name).unlink()

    def fail(*arguments):
        assert len(place.saved("captions-val.json")) == 5
        raise MetricsError("the scorer broke")

    monkeypatch.setattr(evaluation_report.metrics, "score", fail)
    with pytest.raises(MetricsError, match="the scorer broke"):
        place.evaluate()
    assert not (place.run / "scores.json").exists()


@pytest.mark.usefixtures("no_java")
def test_a_score_that_needs_java_is_null_with_a_note(place, report):
    again = score_file(place.run / "captions-val.json", EXPERIMENT, place.work)
    assert again.scores["METEOR"] is None
    assert again.to_dict()["METEOR"] is None
    assert any(note.startswith("no METEOR") for note in again.notes)
    assert again.scores["BLEU-4"] == report.scores["BLEU-4"]


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_with_java_every_score_is_a_number(place):
    file = place.run / "captions-val.json"
    again = score_file(file, EXPERIMENT, place.work, tokenizer="ptb")
    assert all(isinstance(value, float) for value in again.scores.values())
    assert again.made["tokenizer"] == "ptb"


@pytest.mark.usefixtures("no_java")
def test_scores_of_another_beam_have_files_and_a_column_of_their_own(place, compiled):
    (place.run / "scores.json").unlink()
    reports = [place.evaluate(beam=beam) for beam in (1, 2)]
    assert [one.label for one in reports] == ["beam 1", "beam 2"]
    assert place.saved("scores.json")["beam"] == 2
    greedy = place.saved("scores-beam-1.json")
    assert (greedy["beam"], greedy["length_normalisation"]) == (1, 0.0)
    assert len(place.saved("captions-val-beam-1.json")) == 5
    table = evaluation_report.table(reports)
    assert table[1].split() == ["beam", "1", "beam", "2"]
    assert [line.split()[0] for line in table[2 : 2 + len(METRICS)]] == list(METRICS)


@pytest.mark.usefixtures("no_java")
def test_a_photo_without_features_is_skipped_with_a_note(place, compiled):
    path = feature_path(place.work / "tiny", EXPERIMENT.encoder)
    with h5py.File(path, "r+") as file:
        row = list(file["image_ids"].asstr()).index("3.png")
        file["written"][row] = False
    report = place.evaluate()
    assert report.photos == 4
    assert any("1 photos of val" in n and "3.png" in n for n in report.notes)


def with_objects(place: Place, captions: dict[str, str], box: list[float]) -> None:
    """Give each validation photo an object named by its caption's last word."""
    photos = []
    for photo in manifest.read_manifest(place.manifest):
        if words := captions.get(photo.id, "").split():
            item = {"name": words[-1], "box": box}
            exact = (captions[photo.id],) if photo.id == "1.png" else ()
            photo = dataclasses.replace(
                photo, objects=(item,), captions=photo.captions + exact
            )
        photos.append(photo)
    manifest.write_manifest(place.manifest, photos)


@pytest.mark.usefixtures("no_java")
def test_scenes_also_have_exact_match_and_pointing(place, report, compiled):
    left_half = [0, 0, SIDE / 2, SIDE]
    with_objects(place, report.captions, left_half)
    hits = []
    with FeatureReader(feature_path(place.work / "tiny", EXPERIMENT.encoder)) as reader:
        for photo, caption in report.captions.items():
            words = caption.split()
            best = compiled.generate(
                reader.read([reader.rows[photo]]),
                DecodingSettings(
                    beam=2, max_words=6, length_normalisation=0.5, batch_size=2
                ),
            )
            for step, word in enumerate(words):
                if word == words[-1]:
                    drawn = smooth(best.alpha[0, 0, step], GRID)
                    hits.append(drawn.argmax() % GRID[1] == 0)
    again = place.evaluate()
    assert again.captions == report.captions
    assert hits
    assert again.scores["pointing"] == pytest.approx(np.mean(hits))
    assert again.scores["exact_match"] >= 1 / 5
    assert again.scores["pointing_random"] == 0.5
    assert again.scores["pointing_centre"] == 0  # x1 is exclusive
    saved = place.saved("scores.json")
    assert {name: saved[name] for name in SCORES} == {
        name: again.scores[name] for name in SCORES
    }
    assert saved["intervals"]["scores"].keys() >= set(SCORES)


@pytest.mark.usefixtures("no_java")
def test_boxes_of_people_measure_attention_at_words_for_people(
    place, report, compiled, monkeypatch
):
    words = " ".join(report.captions.values()).split()
    monkeypatch.setattr(pointing, "PEOPLE", set(words))
    boxes = place.work / "people.jsonl"
    rows = [{"file": name, "people": [[0, 0, 1, 1]]} for name in report.captions]
    boxes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = place.evaluate(boxes=boxes)
    assert again.captions == report.captions
    assert [again.scores[name] for name in SCORES] == pytest.approx([1, 1, 1, 1])
    assert "exact_match" not in again.scores
    assert any(line.startswith("pointing_mass") for line in again.lines())


@pytest.mark.usefixtures("no_java")
def test_an_unreadable_photo_is_left_out_of_pointing_with_a_note(
    place, report, compiled
):
    captions = {k: v for k, v in report.captions.items() if k in ("1.png", "2.png")}
    with_objects(place, captions, [0, 0, SIDE, SIDE])
    (place.work / "tiny" / "photos" / "2.png").write_bytes(b"not a photo")
    again = place.evaluate()
    assert again.scores["pointing"] == 1  # of 1.png, whose box is the whole photo
    (note,) = [note for note in again.notes if "pointing" in note]
    assert note.startswith("pointing leaves out 1 photos that cannot be read: ")
    assert "2.png" in note


@pytest.mark.usefixtures("no_java")
def test_without_readable_photos_pointing_is_null_with_a_note(place, report, compiled):
    with_objects(place, report.captions, [0, 0, SIDE, SIDE])
    for photo in (place.work / "tiny" / "photos").iterdir():
        photo.unlink()
    again = place.evaluate()
    assert again.scores["pointing"] is None
    assert again.scores["exact_match"] is not None
    (note,) = [note for note in again.notes if "pointing" in note]
    assert note.startswith("no pointing: 4 photos that cannot be read: ")


@pytest.mark.usefixtures("no_java", "compiled")
def test_files_and_labels_contain_the_locations_and_the_seed(place):
    sampled = with_locations("sampled", seed=3)
    how = {"tokenizer": "simple", "progress": False}
    report = evaluate(sampled, place.work, place.runs, **how)
    assert report.label == "beam 1, sampled, seed 3"
    scores = place.saved("scores-sampled-seed-3.json")
    assert (scores["locations"], scores["seed"]) == ("sampled", 3)
    assert len(place.saved("captions-val-sampled-seed-3.json")) == 5
    assert place.saved("scores.json")["locations"] == "expected"  # not overwritten


def test_labels_of_the_most_likely_location_have_no_seed():
    decoding = with_locations("likeliest").decoding
    assert evaluation_report.location_parts(decoding) == ("likeliest",)
    assert evaluation_report.decoding_label(decoding) == "beam 1, likeliest"
    record = evaluation_report.decoding_record(decoding)
    assert record["locations"] == "likeliest"
    assert "seed" not in record


def test_samples_of_photos_do_not_depend_on_their_batches(original, compiled):
    with splits.open_features(EXPERIMENT, original.work, identity=IDENTITY) as reader:
        rows = np.repeat(reader.rows["1.png"], 5)

        def sample(size, seed=3):
            decoding = with_locations("sampled", seed=seed).decoding
            decoding = dataclasses.replace(decoding, batch_size=size)
            parts = list(generate_captions(compiled, reader, rows, decoding))
            return np.concatenate([part.locations for part in parts]).tolist()

        found = sample(1)
        assert found == sample(5) != sample(5, seed=4)
    assert len(set(map(str, found))) > 2  # distinct samples of one photo


def test_features_of_another_encoder_raise_an_error(place):
    path = feature_path(place.work / "tiny", EXPERIMENT.encoder)
    with h5py.File(path, "r+") as file:
        file.attrs["identity"] = json.dumps({**IDENTITY, "weights_digest": "1"})
    with pytest.raises(FeatureError, match="another encoder: weights_digest"):
        place.evaluate()


@pytest.mark.parametrize("content", [None, b"not a model"])
def test_a_model_that_cannot_be_read_is_a_one_line_error(place, content):
    path = place.run / "model.keras"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match="model.keras: ") as caught:
        place.evaluate()
    assert "\n" not in str(caught.value)


def test_a_split_without_captions_raises_an_error(place, compiled):
    file = place.run / "captions-val.json"
    with pytest.raises(ManifestError, match="split 'test' has no photo"):
        place.evaluate(split="test")
    with pytest.raises(ManifestError, match="split 'test' has no photo"):
        score_file(file, EXPERIMENT, place.work, "test", "simple")


def test_a_beam_below_one_raises_an_error(original):
    with pytest.raises(ValueError, match="`beam` must be at least 1"):
        original.evaluate(beam=0)
