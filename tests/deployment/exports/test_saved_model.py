"""SavedModels and LiteRT files: resizing, captions without Keras, refused exports."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from new_process import python
from PIL import Image
from shell import exit_code
from tiny_pipeline import ENCODER, make_captioner, photo_image, rough_pixels

from show_attend_tell.data.preprocessing import to_square
from show_attend_tell.deployment.exports.graphs import resize_to_square
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder.network import Encoder

FRESH = """
import json, sys
import numpy as np
import tensorflow as tf
from PIL import Image
caption = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
for path in sys.argv[2:]:
    found = caption(photo=tf.constant(np.asarray(Image.open(path))))
    print(json.dumps({
        "caption": found["caption"].numpy().decode(),
        "words": [word.decode() for word in found["words"].numpy()],
        "alpha": found["alpha"].numpy().tolist(),
        "log_prob": float(found["log_prob"]),
    }))
assert not any(name.startswith("show_attend_tell") for name in sys.modules)
"""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(4):
        photo_image(number, (70 + 9 * number, 60)).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


def save_model(folder, decoder):
    make_captioner(Encoder(ENCODER), decoder=decoder).save(folder / "model.safetensors")
    return folder / "model.safetensors"


def run(*arguments):
    return exit_code("export", *arguments)


@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize(
    "size", [(32, 32), (224, 224), (20, 20), (97, 61), (61, 97), (400, 33), (36, 41)]
)
def test_pixels_are_those_of_pillow_within_a_level(rng, size, resize):
    pixels = rough_pixels(rng, size)
    found = resize_to_square(tf.constant(pixels), 32, resize).numpy()
    expected = to_square(Image.fromarray(pixels), 32, resize)
    difference = np.abs(found.astype(int) - expected)
    # Pillow resizes some photos higher than wide in another order.
    assert difference.max() <= (10 if size[1] > size[0] else 1)
    assert difference.mean() < (0.6 if size[1] > size[0] else 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_plain_tensorflow_in_a_new_process_gives_the_same_captions(
    photos, tmp_path, decoder
):
    model, out = save_model(tmp_path, decoder), tmp_path / "served" / "1"
    assert run(model, "--format", "saved_model", "--out", out) == 0
    done = python("-c", FRESH, out, *photos, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    log_probs = set()
    captions = load(model).caption_photos(photos)
    for expected, found in zip(captions, lines, strict=True):
        assert found["caption"] == expected.text
        assert tuple(found["words"]) == expected.words
        # Pixels may differ by a level.
        assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-2)
        alpha = np.reshape(found["alpha"], expected.attention.shape)
        np.testing.assert_allclose(alpha, expected.attention, atol=1e-2)
        log_probs.add(found["log_prob"])
    assert len(log_probs) > 1


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_litert_gives_the_same_captions(photos, tmp_path, decoder):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model, out = save_model(tmp_path, decoder), tmp_path / "lite" / "model.tflite"
    assert run(model, "--format", "litert", "--out", out) == 0
    metadata = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert (metadata["side"], metadata["resize"]) == (32, "crop")
    runner = interpreter.Interpreter(str(out)).get_signature_runner()
    for expected in load(model).caption_photos(photos[:3]):
        found = runner(square=expected.square[None])
        words = [metadata["words"][t] for t in found["tokens"][: found["length"]]]
        assert tuple(words) == expected.words
        assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-3)
        alpha = found["alpha"][: found["length"]]
        np.testing.assert_allclose(alpha, expected.attention, atol=1e-3)


@pytest.mark.parametrize("form", ["saved_model", "onnx"])
def test_a_folder_that_is_not_empty_is_left_unchanged(form, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert run("shipped", "--format", form, "--out", tmp_path) == 1
    assert "must be absent or an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("form", "out", "message"),
    [
        ("saved_model", ".", "must not be the current folder"),
        ("onnx", ".", "must not be the current folder"),
        ("litert", ".", "must end with .tflite"),
        ("litert", "model.json", "must end with .tflite"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused(
    form, out, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run("shipped", "--format", form, "--out", out) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["saved_model", "litert"])
@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        ({"locations": "sampled"}, "Received: 'sampled'; train"),
        ({"method": "sample"}, "Received: 'sample'; export it with --beam"),
    ],
)
def test_a_model_that_samples_is_refused(form, drawn, message, tmp_path, capsys):
    captioner = make_captioner(Encoder(ENCODER))
    captioner.decoding = dataclasses.replace(captioner.decoding, **drawn)
    captioner.save(tmp_path / "model.safetensors")
    out = ("--out", tmp_path / "x")
    assert run(tmp_path / "model.safetensors", "--format", form, *out) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
