"""ONNX files, run by ONNX Runtime, give the captions and attention of the reference."""

import dataclasses
import io
import json

import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
from shell import exit_code
from tiny_pipeline import make_captioner
from tiny_transformer import EVERY_VARIANT, VARIANT_CASES

from data_prep.scenes.example_pictures import example_pictures
from show_attend_tell.config.captioner import EncoderSettings
from show_attend_tell.data.preprocessing import load_photo, to_square
from show_attend_tell.deployment.exports import onnx_graphs
from show_attend_tell.deployment.exports.half_precision import save_half
from show_attend_tell.deployment.exports.recording import Graph
from show_attend_tell.inference.engine import load_engine
from show_attend_tell.models.encoder.network import Encoder
from show_attend_tell.models.pretrained import SHIPPED, shipped_model
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference.beam import log_softmax
from show_attend_tell.reference.decoder import NextWord
from show_attend_tell.reference.generator import Generator
from show_attend_tell.reference.lstm import argmax_location
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.reference.reranker import (
    descriptors,
    load_reranker,
)
from show_attend_tell.runtime.errors import ModelFileError

runtime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def outputs_of(model, **inputs):
    """Run a model; return its outputs by name."""
    content = model if isinstance(model, str) else model.SerializeToString()
    session = runtime.InferenceSession(content)
    names = {value.name for value in session.get_inputs()}
    read = {name: value for name, value in inputs.items() if name in names}
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, read), strict=True))


class OnnxCaptioner:
    """A captioner for the search of the reference, whose functions are ONNX models.

    Args:
        captioner: the captioner of the reference.
        encode: features (L, D) -> outputs of the first model.
        decoder: the second model.
    """

    def __init__(self, captioner, encode, decoder):
        for name in ("vocabulary", "grid", "annotation_width", "encoder_identity"):
            setattr(self, name, getattr(captioner, name))
        self.settings, self.decoding = captioner.settings, captioner.decoding
        self.read_photo, self._decoder = encode, decoder

    def start(self, photo):
        return {name: x for name, x in photo.items() if name.startswith("state/")}

    def step(self, photo, words, state, choose, bias):
        inputs = {"words": np.asarray(words, np.int64), **photo, **state}
        out = outputs_of(self._decoder, **inputs)
        state = {name: out[name.replace("state", "next")] for name in state}
        beta = out.get("beta", np.ones(len(words), np.float32))
        return NextWord(out["log_probs"], state, out["alpha"], out["alpha"], beta)


def recorded_pair(captioner):
    """Return the models of a captioner, the first from features (L, D)."""
    graph, L = Graph(), np.prod(captioner.grid)
    example = np.zeros((L, captioner.annotation_width), np.float32)
    features = graph.input("features", example)
    photo = onnx_graphs.recorded(captioner, graph).read_photo(features)
    decoder, state = onnx_graphs.decoder_graph(captioner, photo)
    onnx_graphs.add_outputs(graph, decoder, photo, state)
    return graph.model(), decoder


def require_equal(hypotheses, expected):
    np.testing.assert_array_equal(hypotheses.tokens, expected.tokens)
    for name in ("alpha", "beta", "log_probs", "word_log_probs"):
        found, value = getattr(hypotheses, name), getattr(expected, name)
        np.testing.assert_allclose(found, value, atol=1e-4, err_msg=name)


def require_equal_steps(captioner, choose=None):
    """Write random words after three hypotheses, each with a parent of its own."""
    encoder, decoder = recorded_pair(captioner)
    rng = np.random.default_rng(9)
    (features,) = tiny.photos(rng, 1)
    read = outputs_of(encoder, features=features.astype(np.float32))
    photo = captioner.read_photo(features)
    state, parents = captioner.start(photo), np.zeros(3, int)
    own = {name: x for name, x in read.items() if name.startswith("state/")}
    for _ in range(4):
        words = rng.integers(1, tiny.K, 3)
        state = {name: x[parents] for name, x in state.items()}
        own = {name: x[parents] for name, x in own.items()}
        out = captioner.step(photo, words, state, choose)
        found = outputs_of(decoder, words=words, **{**read, **own})
        log_probs = log_softmax(out.logits)
        np.testing.assert_allclose(found["log_probs"], log_probs, atol=1e-4)
        np.testing.assert_allclose(found["alpha"], out.alpha, atol=1e-5)
        if "beta" in found:
            np.testing.assert_allclose(found["beta"], out.beta, atol=1e-5)
        state = out.state
        own = {f"state/{name}": found[f"next/{name}"] for name in state}
        for name, values in state.items():
            np.testing.assert_allclose(own[f"state/{name}"], values, atol=1e-4)
        parents = rng.permutation(3)


@pytest.mark.parametrize("variant", VARIANT_CASES)
def test_every_variant_of_a_decoder_computes_what_the_reference_does(variant, tmp_path):
    design, changes = EVERY_VARIANT[variant]
    model = design.build(np.random.default_rng(3), spread=1.0, **changes)
    model.save(tmp_path / "model.safetensors")
    require_equal_steps(read_captioner(tmp_path / "model.safetensors"))


def test_no_width_is_taken_for_a_length_of_the_example(tmp_path):
    model = tiny_transformer.build(np.random.default_rng(3), spread=0.3, width=104)
    model.save(tmp_path / "model.safetensors")
    require_equal_steps(read_captioner(tmp_path / "model.safetensors"))


def test_words_of_the_argmax_location_are_those_of_the_reference(tmp_path):
    model = tiny.build(np.random.default_rng(8), spread=1.0)
    model.decoding = dataclasses.replace(model.decoding, locations="likeliest")
    model.save(tmp_path / "model.safetensors")
    captioner = read_captioner(tmp_path / "model.safetensors")
    require_equal_steps(captioner, argmax_location)
    with pytest.raises(AssertionError):
        require_equal_steps(captioner)


def stored_types(model):
    """Return the number of weights of each type, by the type's name."""
    counts = {}
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        name = values.dtype.name
        counts[name] = counts.get(name, 0) + values.size
    return counts


@pytest.mark.parametrize("eight_bit", [False, True])
def test_weights_are_stored_as_in_the_model_file(eight_bit, tmp_path):
    tiny_transformer.build(np.random.default_rng(3)).save(tmp_path / "full.safetensors")
    save_half(
        tmp_path / "full.safetensors",
        tmp_path / "small.safetensors",
        eight_bit=eight_bit,
    )
    captioner = read_captioner(tmp_path / "small.safetensors")
    for model in recorded_pair(captioner):
        counts = stored_types(model)
        kind = "int8" if eight_bit else "float16"
        assert counts[kind] == max(counts.values())
        assert ("int8" in counts) == eight_bit
    require_equal_steps(captioner)


def test_a_reshape_that_would_fix_a_varying_axis_is_an_error():
    words = Graph({7: "W"}).input("words", np.zeros((7, 3), np.float32))
    assert words.reshape(7, 3, 1).shape == (7, 3, 1)
    with pytest.raises(ModelFileError, match="must keep"):
        words.reshape(1, 7, 3)


def export(*arguments):
    return exit_code("export", *arguments, "--format", "onnx")


# Quick tests compare all variants of the LSTM, with few weights.
SLOW = pytest.param("shipped-lstm", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["shipped", SLOW])
def folder(request, tmp_path_factory):
    """A packaged model as ONNX files, and the name of the model."""
    out = tmp_path_factory.mktemp("onnx") / "out"
    assert export(request.param, "--out", out) == 0
    return out, request.param


@pytest.mark.nightly
def test_packaged_models_give_the_captions_of_the_reference(folder):
    out, name = folder
    file = shipped_model(name)
    engine = load_engine([file], engine="numpy", reranker="none")
    member = OnnxCaptioner(engine.generator.members[0], None, str(out / "decoder.onnx"))
    for _, content, _ in example_pictures(scene_net=False)[::2]:
        image = load_photo(io.BytesIO(content))
        square = to_square(image, engine.side, engine.resize)
        features = engine.encode(square[None])
        outputs = outputs_of(str(out / "encoder.onnx"), square=square)
        of_reference = features[0].astype(np.float32)
        np.testing.assert_allclose(outputs["features"], of_reference, 2e-3, 2e-2)
        member.read_photo = lambda features, photo=outputs: photo
        hypotheses = Generator([member]).generate(features)
        require_equal(
            hypotheses, Generator(engine.generator.members).generate(features)
        )


@pytest.mark.nightly
def test_the_folder_has_words_settings_and_the_reranker(folder):
    out, name = folder
    settings = json.loads((out / "captioner.json").read_text("utf-8"))
    captioner = read_captioner(shipped_model(name))
    assert settings["words"] == list(captioner.vocabulary.words)
    assert settings["decoding"] == dataclasses.asdict(captioner.decoding)
    assert (settings["side"], settings["resize"]) == (224, "squash")
    assert (out / "reranker.onnx").exists() == (name == "shipped")
    counts = stored_types(onnx.load(out / "encoder.onnx"))
    assert counts["int8"] > 14_000_000
    assert stored_types(onnx.load(out / "decoder.onnx"))["int8"] > 3_000_000


@pytest.mark.nightly
def test_the_reranker_predicts_the_same_cider(folder, rng):
    out, name = folder
    if name != "shipped":
        return
    reranker = load_reranker(SHIPPED)
    settings = json.loads((out / "captioner.json").read_text("utf-8"))
    assert [tuple(ngram) for ngram in settings["ngrams"]] == list(
        reranker.vectors.ngrams
    )
    np.testing.assert_allclose(settings["idf"], reranker.vectors.idf)
    features = rng.gamma(1, 3, (1, 196, 512)).astype(np.float32)
    (predicted,) = reranker.predict(descriptors(features))
    values = outputs_of(str(out / "reranker.onnx"), features=features[0])["values"]
    np.testing.assert_allclose(values, reranker.basis @ predicted, atol=1e-4)
    assert np.abs(values).max() > 1e-2


@pytest.mark.nightly
def test_the_beam_of_an_export_may_be_another(tmp_path):
    model = load_captioner(shipped_model("shipped"))
    model.decoding = dataclasses.replace(model.decoding, method="greedy")
    model.save(tmp_path / "greedy.safetensors")
    out = tmp_path / "x"
    assert export(tmp_path / "greedy.safetensors", "--beam", 4, "--out", out) == 0
    settings = json.loads((out / "captioner.json").read_text("utf-8"))
    assert settings["decoding"]["beam"] == 4
    assert settings["decoding"]["method"] == "beam"


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ("none", "need Keras: NumPy reads those of the package"),
        ("scenes", "must be VGG16 or VGG19"),
    ],
)
def test_an_encoder_that_onnx_lacks_is_refused_in_one_line(
    tmp_path, capsys, weights, reason
):
    settings = EncoderSettings("SceneNet", "annotations", weights, 32, "crop")
    make_captioner(Encoder(settings)).save(tmp_path / "model.safetensors")
    assert export(tmp_path / "model.safetensors", "--out", tmp_path / "x") == 1
    error = capsys.readouterr().err
    assert reason in error
    assert error.endswith("export the model in another format\n")
    assert error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_without_the_package_the_remedy_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("show_attend_tell.cli.deployment.find_spec", lambda name: None)
    assert export(SHIPPED, "--out", tmp_path / "x") == 2
    assert "show-attend-tell[onnx]" in capsys.readouterr().err
