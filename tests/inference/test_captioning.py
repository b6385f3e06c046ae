"""Captions of photos: loading, batches, failures, JSON, figures, fresh processes."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from speaking_captioner import DECODING, ENCODER, make_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference.captioning import (
    caption_paths,
    caption_photos,
    decoding_of,
    load,
)
from show_attend_tell.inference.photo_files import find_photos
from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import CaptionError


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(ENCODER)


@pytest.fixture(scope="module")
def captioner(encoder) -> Captioner:
    return make_captioner(encoder)


@pytest.fixture(scope="module")
def model_file(captioner, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    captioner.save(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Nested photos of several formats, one of them damaged, and other files."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "nested" / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    rng = np.random.default_rng(5)
    for name in ("b.JPG", "a.png", "nested/deeper/c.webp", "nested/a.tif", "d.Gif"):
        pixels = rng.integers(0, 256, (5, 7, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((48, 40), Image.Resampling.NEAREST)
        picture.save(folder / name)
    (folder / "broken.jpeg").write_bytes(b"\xff\xd8\xff not really")
    (folder / "notes.txt").write_text("no photo")
    Image.new("RGB", (9, 9)).save(folder / ".hidden" / "h.png")
    Image.new("RGB", (9, 9)).save(folder / "._a.png")
    return folder


@pytest.fixture(scope="module")
def results(captioner, encoder, folder) -> list[Caption | Failure]:
    return list(caption_photos(captioner, encoder, [folder]))


@pytest.fixture(scope="module")
def captions(results) -> list[Caption]:
    return [one for one in results if isinstance(one, Caption)]


def test_folders_are_walked_in_order_and_only_for_photos(folder):
    found = [path.relative_to(folder).as_posix() for path in find_photos([folder])]
    assert found == [
        "a.png",
        "b.JPG",
        "broken.jpeg",
        "d.Gif",
        "nested/a.tif",
        "nested/deeper/c.webp",
    ]


def test_a_file_that_is_named_is_taken_whatever_its_ending(folder):
    path = folder / "notes.txt"
    assert list(find_photos([str(path), path])) == [path, path]


def test_unreadable_photos_are_reported_in_place_and_stop_nothing(results, folder):
    assert [one.path.name for one in results] == [
        "a.png",
        "b.JPG",
        "broken.jpeg",
        "d.Gif",
        "a.tif",
        "c.webp",
    ]
    (failure,) = (one for one in results if isinstance(one, Failure))
    assert failure.reason.startswith(f"{folder / 'broken.jpeg'}: cannot be read")
    assert failure.to_dict() == {
        "path": str(folder / "broken.jpeg"),
        "error": failure.reason,
    }


def test_only_unreadable_photos_give_only_failures(captioner, encoder, folder):
    paths = [folder / "broken.jpeg", folder / "absent.jpg"]
    found = list(caption_photos(captioner, encoder, paths))
    assert [type(one) for one in found] == [Failure, Failure]
    assert "no such photo" in found[1].reason


def test_details_belong_to_the_words(captions, encoder):
    assert len({one.text for one in captions}) > 1
    for one in captions:
        T = len(one.words)
        assert one.text == " ".join(one.words)
        assert one.word_log_probs.shape == one.beta.shape == (T,)
        assert one.attention.shape == (T, *encoder.grid)
        np.testing.assert_allclose(one.attention.sum((1, 2)), 1, rtol=1e-5)
        assert not {"<pad>", "<start>", "<end>", "<unk>"} & set(one.words)


def test_log_probabilities_sum_to_that_of_the_caption(captions):
    for one in captions:
        total = one.word_log_probs.sum() + (one.end_log_prob or 0)
        assert one.log_prob == pytest.approx(total, abs=1e-4)
        length = len(one.words) + (one.end_log_prob is not None)
        normalised = one.log_prob / length ** DECODING["length_normalisation"]
        assert one.score == pytest.approx(normalised, rel=1e-4)


def test_a_caption_that_is_cut_has_no_end(captioner, encoder, captions):
    decoding = DecodingSettings(beam=1, max_words=1)
    (one,) = caption_photos(captioner, encoder, [captions[0].path], decoding)
    assert len(one.words) == 1
    assert one.end_log_prob is None
    assert one.log_prob == pytest.approx(float(one.word_log_probs[0]))


def test_alternatives_are_the_rest_of_the_beam_best_first(captions):
    for one in captions:
        scores = [one.score, *(other.score for other in one.alternatives)]
        assert 2 <= len(scores) <= DECODING["beam"]  # only those that ended
        assert scores == sorted(scores, reverse=True)
        assert one.text not in {other.text for other in one.alternatives}


def test_json_keeps_every_detail_but_the_pixels(captions):
    for one in captions:
        values = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert values["path"] == str(one.path)
        assert tuple(values["words"]) == one.words
        assert values["text"] == one.text
        assert values["alternatives"][0]["text"] == one.alternatives[0].text
        assert "square" not in values
        attention = np.reshape(values["attention"], one.attention.shape)
        np.testing.assert_allclose(attention, one.attention, atol=1e-6)
        np.testing.assert_allclose(values["beta"], one.beta, atol=1e-6)


def test_a_photo_alone_gets_the_caption_it_gets_among_others(
    captioner, encoder, captions
):
    for one in captions[:2]:
        (alone,) = caption_photos(captioner, encoder, [one.path])
        assert alone.text == one.text
        np.testing.assert_allclose(alone.attention, one.attention, atol=1e-4)
        assert alone.log_prob == pytest.approx(one.log_prob, abs=1e-3)


def test_more_photos_than_a_batch_keep_their_order(captioner, encoder, captions):
    paths = [one.path for one in captions] * 5
    found = list(caption_photos(captioner, encoder, paths))
    assert [one.path for one in found] == paths
    assert [one.text for one in found] == [one.text for one in captions] * 5


def test_a_beam_of_one_writes_greedily_and_has_no_alternatives(
    captioner, encoder, captions
):
    decoding = decoding_of(captioner, 1)
    (one,) = caption_photos(captioner, encoder, [captions[0].path], decoding)
    features = encoder.encode(captions[0].square[None])
    greedy = captioner.generate(
        features, DecodingSettings(method="greedy", max_words=6, batch_size=1)
    )
    assert list(one.words) == captioner.vocabulary.decode(greedy.tokens[0, 0].tolist())
    assert one.alternatives == ()


def test_decoding_is_that_saved_with_the_model_unless_a_beam_is_given(captioner):
    assert decoding_of(captioner) == DecodingSettings(**DECODING)
    assert decoding_of(captioner, 7).beam == 7
    assert decoding_of(captioner, 7).max_words == 6


def test_a_beam_below_one_is_refused(captioner):
    with pytest.raises(CaptionError, match="`beam` at least 1 .*Received: .*'beam': 0"):
        decoding_of(captioner, 0)


FRESH = """
import json, sys
from show_attend_tell.inference.captioning import caption_paths
for one in caption_paths(sys.argv[1], sys.argv[2:]):
    print(json.dumps(one.to_dict()))
"""


def test_a_fresh_process_gives_what_the_saving_process_gave(
    model_file, results, folder
):
    command = [sys.executable, "-c", FRESH, str(model_file), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [json.loads(json.dumps(one.to_dict())) for one in results]


def test_weights_of_a_file_are_found_beside_the_model_or_by_name(
    encoder, captioner, folder, tmp_path
):
    weights = tmp_path / "elsewhere" / "net.weights.h5"
    weights.parent.mkdir()
    encoder._network.save_weights(weights)
    identity = encoder.identity() | {"weights": "net.weights.h5"}
    model = tmp_path / "model.keras"
    make_captioner(encoder, identity).save(model)
    with pytest.raises(CaptionError, match="'net.weights.h5'.* --encoder-weights"):
        load(model)
    named = list(caption_paths(model, [folder / "a.png"], weights))
    os.replace(weights, tmp_path / "net.weights.h5")
    beside = list(caption_paths(model, [folder / "a.png"]))
    expected = list(caption_photos(captioner, encoder, [folder / "a.png"]))
    assert [one.text for one in expected] == [one.text for one in named]
    assert [one.to_dict() for one in named] == [one.to_dict() for one in beside]


@pytest.fixture
def run(capsys, model_file):
    """Run the verb; returns exit code, lines of standard output, standard error."""

    def run(*arguments) -> tuple[int, list[str], str]:
        try:
            cli.main(["caption", "--model", str(model_file), *map(str, arguments)])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


def test_the_verb_prints_a_line_for_each_photo(run, folder, captions):
    code, out, err = run(captions[0].path, captions[1].path)
    assert (code, err) == (0, "")
    assert out == [f"{one.path}: {one.text}" for one in captions[:2]]


def test_the_verb_goes_on_after_failures_and_then_exits_with_1(run, results, folder):
    code, out, err = run(folder)
    assert code == 1
    assert len(out) == 5
    assert err.count("\n") == 1
    assert "broken.jpeg: cannot be read" in err


def test_the_verb_writes_json_lines_also_for_failures(run, results, folder):
    code, out, err = run("--json", folder)
    assert code == 1
    assert "broken.jpeg" in err
    expected = [json.loads(json.dumps(one.to_dict())) for one in results]
    assert [json.loads(line) for line in out] == expected


def test_the_verb_reports_other_weights_in_one_line(run, tmp_path, folder):
    code, out, err = run("--encoder-weights", tmp_path / "no.h5", folder)
    assert (code, out) == (1, [])
    assert err.startswith("error: ")
    assert err.count("\n") == 1
