"""LiteRT files, run by LiteRT's own interpreter, give the same captions."""

import json

import numpy as np
import pytest
from PIL import Image
from tiny_pipeline import ENCODER, make_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.encoder.network import Encoder


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["lstm", "transformer"])
def test_litert_gives_the_same_captions(tmp_path, decoder):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model = tmp_path / "model.keras"
    make_captioner(Encoder(ENCODER), decoder=decoder).save(model)
    rng = np.random.default_rng(3)
    for number in range(3):
        pixels = rng.integers(0, 256, (5, 7, 3), np.uint8)
        picture = Image.fromarray(pixels).resize((48, 40), Image.Resampling.NEAREST)
        picture.save(tmp_path / f"{number}.png")
    out = tmp_path / "lite" / "model.tflite"
    cli.main(["export", str(model), "--format", "litert", "--out", str(out)])
    metadata = json.loads(out.with_suffix(".json").read_text("utf-8"))
    assert (metadata["side"], metadata["resize"]) == (32, "crop")
    runner = interpreter.Interpreter(str(out)).get_signature_runner()
    photos = [tmp_path / f"{n}.png" for n in range(3)]
    for expected in load(model).caption_photos(photos):
        found = runner(square=expected.square[None])
        words = [metadata["words"][t] for t in found["tokens"][: found["length"]]]
        assert tuple(words) == expected.words
        assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-3)
        alpha = found["alpha"][: found["length"]]
        np.testing.assert_allclose(alpha, expected.attention, atol=1e-3)
