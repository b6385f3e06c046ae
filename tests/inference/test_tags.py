"""Tags: scores of hand-made candidates, the calibration, and where tags appear."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from tiny_calibration import tagged_pipeline
from tiny_pipeline import tiny_pipeline

from show_attend_tell.cli.main import cli
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.inference.batch import caption_into_file
from show_attend_tell.inference.metadata import MetadataWriter, sidecar_of
from show_attend_tell.inference.pipeline import CaptioningPipeline, load
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.inference.tags import (
    Tag,
    TagCalibration,
    noun_scores,
    noun_statistics,
    tag_calibration_of,
    tags_of,
)
from show_attend_tell.inference.xmp import XmpPacket
from show_attend_tell.reference.hypotheses import Hypotheses
from show_attend_tell.runtime.errors import CaptionError

WORDS = ("a", "dog", "dogs", "cat", "grass", "runs", "on", "two", "group", "of")
VOCABULARY = Vocabulary((*SPECIAL, *WORDS))
CALIBRATION = TagCalibration(np.array([0.6, 0.9, -0.5, 0.2, -0.1]))


def candidates(*captions, log_probs) -> Hypotheses:
    """Return hypotheses of one photo from texts; an empty text is an absent one."""
    W = len(captions)
    T = 8
    tokens = np.zeros((W, T), np.int32)
    lengths = np.zeros(W, np.int32)
    for w, caption in enumerate(captions):
        words = [*VOCABULARY.encode(caption.split()), 2] if caption else []
        tokens[w, : len(words)] = words
        lengths[w] = len(words)
    zeros = np.zeros((W, T))
    return Hypotheses(
        tokens=tokens,
        lengths=lengths,
        log_probs=np.array(log_probs),
        scores=np.array(log_probs),
        word_log_probs=zeros,
        alpha=zeros,
        beta=zeros,
        locations=zeros,
        finished=np.ones(W, bool),
    )


def test_a_score_is_the_sum_of_the_shares_of_the_candidates_with_the_noun():
    p = np.array([0.02, 0.01, 0.005, 0.0])
    found = noun_scores(
        candidates(
            *("a dog runs on grass", "two dogs on a cat", "a cat", ""),
            log_probs=[*np.log(p[:3]), -np.inf],
        ),
        VOCABULARY,
    )
    shares = p / p.sum()
    expected = {
        "dog": shares[0] + shares[1],  # one tag for dog and dogs
        "grass": shares[0],
        "cat": shares[1] + shares[2],
    }
    assert found == pytest.approx(expected)
    assert list(found) == sorted(found, key=lambda noun: -found[noun])


def test_a_noun_that_a_candidate_repeats_counts_once():
    found = noun_scores(candidates("a dog on a dog", log_probs=[-3.0]), VOCABULARY)
    assert found == {"dog": 1.0}


@pytest.mark.parametrize("caption", ["two of a group", "", "runs on"])
def test_candidates_without_a_noun_have_no_tags(caption):
    scores = noun_scores(candidates(caption, log_probs=[-1.0]), VOCABULARY)
    assert scores == {}
    assert tags_of(scores, CALIBRATION(noun_statistics(scores, {}))) == ()


def test_very_improbable_candidates_have_finite_shares():
    found = noun_scores(
        candidates("a dog", "a cat", log_probs=[-2000.0, -2000.0]), VOCABULARY
    )
    assert found == {"cat": 0.5, "dog": 0.5}  # equal scores by name


def test_the_confidence_is_the_logistic_regression_of_the_statistics():
    scores = {"dog": 0.9, "violin": 0.3}
    x = noun_statistics(scores, {"dog": (0.5, 0.1)})
    z = [
        0.6 * np.log(0.901 / 0.101) + 0.9 * np.log(0.5) - 0.5 * np.log(0.1) - 0.1,
        0.6 * np.log(0.301 / 0.701) + 0.2 - 0.1,
    ]
    np.testing.assert_allclose(CALIBRATION(x), 1 / (1 + np.exp(-np.array(z))))


def test_tags_are_sorted_by_their_confidence():
    tags = tags_of(["cat", "dog", "grass"], np.array([0.1, 0.45, 0.25]))
    assert tags == (Tag("dog", 0.45), Tag("grass", 0.25), Tag("cat", 0.1))


def test_a_higher_score_never_lowers_the_probability():
    scores = {str(k): k / 50 for k in range(51)}
    values = CALIBRATION(noun_statistics(scores, {}))
    assert (np.diff(values) > 0).all()
    assert np.isfinite(values).all()


def test_the_calibration_survives_json():
    again = tag_calibration_of(json.loads(json.dumps(CALIBRATION.to_dict())))
    np.testing.assert_array_equal(again.coefficients, CALIBRATION.coefficients)


NUMBERS = [0.6, 0.9, -0.5, 0.2, -0.1]


@pytest.mark.parametrize(
    "changes",
    [
        {"statistics": ["score"]},
        {"statistics": None},
        {"coefficients": None},
        {"coefficients": []},
        {"coefficients": NUMBERS[:4]},
        {"coefficients": [-0.1, *NUMBERS[1:]]},
        {"coefficients": [*NUMBERS[:4], float("nan")]},
        {"coefficients": [*NUMBERS[:4], float("inf")]},
        {"coefficients": [*NUMBERS[:4], "0.1"]},
        {"coefficients": [*NUMBERS[:4], True]},
    ],
)
def test_a_malformed_calibration_is_refused(changes):
    with pytest.raises(ValueError, match="tags"):
        tag_calibration_of(CALIBRATION.to_dict() | changes)
    with pytest.raises(ValueError, match="tags"):
        tag_calibration_of([])


@pytest.fixture(scope="module")
def tagged():
    """The tiny pipeline with a calibration under which every noun is a tag."""
    return tagged_pipeline()


@pytest.fixture
def caption_tagged(monkeypatch, tagged, command):
    """Run the verb ``caption --tags`` with the tagged pipeline."""
    load = "show_attend_tell.inference.pipeline.load_requested"
    monkeypatch.setattr(load, lambda _: tagged)
    return lambda *arguments: command("--tags", *arguments)


def test_a_caption_has_tags_if_they_are_asked_for(tagged, photo):
    plain = tagged.caption(photo)
    found = tagged.caption(photo, tags=True, min_tag_confidence=0)
    assert plain.tags is None
    assert "tags" not in plain.to_dict()
    assert plain.to_dict() == {
        key: value for key, value in found.to_dict().items() if key != "tags"
    }
    nouns = {word for caption in (found, *found.alternatives) for word in caption.words}
    assert set(found.tag_names) == nouns
    assert found.to_dict()["tags"] == [dataclasses.asdict(tag) for tag in found.tags]
    assert [tag.confidence for tag in found.tags] == sorted(
        (tag.confidence for tag in found.tags), reverse=True
    )


def test_both_engines_have_the_same_tags(tagged, eager_searches):
    numpy = tagged.engine.generator
    keras = load(tagged.file, engine="keras").generator
    shape = (1, numpy.grid[0] * numpy.grid[1], numpy.annotation_width)
    features = np.random.default_rng(3).random(shape, np.float32) * 60
    found = []
    for generator in (numpy, keras):
        hypotheses = generator.generate(features, keras.decoding)
        photo = hypotheses.map(lambda field: field[0])
        found.append(noun_scores(photo, generator.vocabulary))
    assert len(found[0]) > 1
    assert list(found[0]) == list(found[1])
    assert found[0] == pytest.approx(found[1], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tags": True, "region": "0,0,20,20"}, "`tags` are of the whole photo"),
        ({"tags": True, "method": "sample"}, "Received: method = 'sample'"),
        ({"tags": True, "min_tag_confidence": 1.5}, "must be from 0 to 1"),
        ({"min_tag_confidence": 0.5}, "`min_tag_confidence` needs `tags`"),
    ],
)
def test_options_that_contradict_tags_are_one_line(tagged, photo, options, text):
    with refused(CaptionError, text):
        tagged.caption(photo, **options)


def test_a_single_caption_below_the_minimum_is_no_fault_of_the_photo(tagged, photo):
    with refused(CaptionError, "left out, its confidence"):
        tagged.caption(photo, min_confidence=1)


def test_a_model_without_a_calibration_of_tags_names_the_remedy(photo):
    with refused(CaptionError, "run `show-attend-tell calibrate"):
        tiny_pipeline().caption(photo, tags=True)


@pytest.mark.parametrize(
    "request_", [CaptionRequest(tags=True), CaptionRequest(min_confidence=0.5)]
)
def test_mirror_images_and_several_models_have_no_calibration(tagged, request_):
    several = CaptioningPipeline(
        tagged.engine, file=(Path("a.safetensors"), Path("b.safetensors"))
    )
    with pytest.raises(CaptionError, match=r"one model without mirror .*Received: a\."):
        several.require_calibration(request_)


def test_lines_and_json_have_the_tags(caption_tagged, tagged, photo):
    expected = tagged.caption(photo, tags=True)
    _, (line,), _ = caption_tagged(photo)
    assert expected.tag_names
    assert line.endswith(f") [{', '.join(expected.tag_names)}]")
    _, (line,), _ = caption_tagged("--json", photo)
    assert json.loads(line)["tags"] == expected.to_dict()["tags"]
    code, (line,), _ = caption_tagged("--min-tag-confidence", 1, photo)
    assert (code, line.endswith(") []")) == (0, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--min-tag-confidence", 2], "is not in the range 0<=x<=1"),
        (["--region", "0,0,9,9"], "`tags` are of the whole photo"),
        (["--out", "a.csv", "--exiftool-columns"], "--write-metadata adds them"),
    ],
)
def test_wrong_options_of_the_verb_are_one_line(caption_tagged, photo, options, text):
    code, out, err = caption_tagged(*options, photo)
    assert code == 2
    assert out == []
    assert text in err


def test_a_minimum_of_tags_that_nobody_asked_for_is_wrong_usage(run, photo):
    code, out, err = run("--min-tag-confidence", 0.5, photo)
    assert (code, out) == (2, [])
    assert "\nError: `min_tag_confidence` needs `tags`" in err


def test_rows_and_tables_have_tags_only_if_they_are_asked_for(tagged, folder, tmp_path):
    request = CaptionRequest(tags=True)
    (tmp_path / "plain").mkdir()
    with_tags = tmp_path / "captions.csv"
    without = tmp_path / "plain" / "captions.csv"
    caption_into_file(tagged, [folder], with_tags, request)
    caption_into_file(tagged, [folder], without)
    with with_tags.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if not row["error"]]
    lines = with_tags.with_suffix(".jsonl").read_text("utf-8").splitlines()
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        assert row["tags"] == ", ".join(tag["name"] for tag in line["tags"])
    assert any(row["tags"] for row in rows)
    assert "tags" not in without.read_text("utf-8").partition("\n")[0]
    assert "tags" not in without.with_suffix(".jsonl").read_text("utf-8")


def test_a_file_is_continued_with_the_same_tags_alone(tagged, photo, tmp_path):
    out = tmp_path / "captions.csv"
    request = CaptionRequest(tags=True)
    caption_into_file(tagged, [photo], out, request)
    report = caption_into_file(tagged, [photo], out, request)
    assert (report.written, report.present) == (0, 1)
    higher = dataclasses.replace(request, min_tag_confidence=0.9)
    for other in (None, higher):
        with refused(CaptionError, "tags from 0."):
            caption_into_file(tagged, [photo], out, other)


@pytest.mark.parametrize("tags", ["5", "[5]", '[{"name": 5, "confidence": 0.5}]'])
def test_malformed_tags_of_a_row_are_one_line(tagged, photo, tmp_path, tags):
    out = tmp_path / "captions.jsonl"
    request = CaptionRequest(tags=True)
    caption_into_file(tagged, [photo], out, request)
    row = json.loads(out.read_text("utf-8"))
    row["tags"] = json.loads(tags)
    out.write_text(json.dumps(row) + "\n", "utf-8")
    with refused(CaptionError, "must be absent, or JSON Lines"):
        caption_into_file(tagged, [photo], out, request)


def test_the_gallery_shows_tags(tagged, photo, tmp_path):
    out = tmp_path / "captions.html"
    caption_into_file(tagged, [photo], out, CaptionRequest(tags=True))
    names = ", ".join(tagged.caption(photo, tags=True).tag_names)
    assert f'<small class="tags">{names}</small>' in out.read_text("utf-8")


@pytest.mark.parametrize("through_file", [False, True])
def test_metadata_have_the_tags_and_a_second_run_changes_nothing(
    caption_tagged, tagged, photo, tmp_path, through_file
):
    copied = tmp_path / "a photo.png"
    copied.write_bytes(photo.read_bytes())
    arguments = ["--write-metadata", "--min-confidence", 0, copied]
    if through_file:
        arguments += ["--out", tmp_path / "captions.jsonl"]
    for _ in range(2):
        code, _, _ = caption_tagged(*arguments)
        assert code == 0
    packet = XmpPacket(sidecar_of(copied).read_bytes())
    assert packet.tags == packet.keywords == tagged.caption(copied, tags=True).tag_names
    assert sidecar_of(copied).read_bytes().count(b"<dc:subject") == 1


def test_captions_that_are_present_are_printed_with_their_tags(
    caption_tagged, photo, tmp_path
):
    copied = tmp_path / "a photo.png"
    copied.write_bytes(photo.read_bytes())
    sidecars = [caption_tagged("--write-metadata", copied) for _ in range(2)]
    assert sidecars[0][1] == sidecars[1][1]
    assert sidecars[1][1][0].endswith("]")


def test_a_run_without_tags_removes_its_own_and_keeps_those_of_a_person(
    photo, tmp_path
):
    copied = tmp_path / "a photo.png"
    copied.write_bytes(photo.read_bytes())
    MetadataWriter("model, tags from 0.5").write(copied, "a dog", 0.9, ["dog", "lake"])
    packet = XmpPacket(sidecar_of(copied).read_bytes())
    packet.set_tags(["dog"])  # as if a person had written the other
    MetadataWriter("model").write(copied, "a dog", 0.9)
    assert XmpPacket(sidecar_of(copied).read_bytes()).keywords == ()


def test_the_help_names_the_options():
    verb = cli.get_command(None, "caption")
    assert {"tags", "min_tag_confidence"} <= {one.name for one in verb.params}
