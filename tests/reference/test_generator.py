"""Captions in NumPy equal Keras' for both decoders and everything composed of them."""

import numpy as np
import pytest
import tiny_captioner as tiny
import tiny_transformer
from nightly import nightly
from tiny_captioner import L
from tiny_transformer import EVERY_VARIANT, VARIANT_CASES

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.deployment.exports.half_precision import save_half
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.reference import generator as reference
from show_attend_tell.reference.model_file import read_captioner
from show_attend_tell.runtime.errors import CaptionError, ConfigError

pytestmark = pytest.mark.usefixtures("eager_searches")

MEAN = {"model": {"attention": "mean"}}
VARIANTS = EVERY_VARIANT | {"transformer, the mean": (tiny_transformer, MEAN)}
METHODS = {
    "beam": {"beam": 3, "length_normalisation": 0.7},
    "greedy": {"method": "greedy"},
    "sample": {"method": "sample", "seed": 5},
    "likeliest": {"beam": 2, "locations": "likeliest"},
    "sampled": {"beam": 2, "locations": "sampled", "seed": 3},
}
DECODING = {"max_words": 4, "batch_size": 3}


def equal(found, expected):
    for name, value, of_keras in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(value, of_keras, 1e-4, 1e-5, err_msg=name)
        assert value.dtype == of_keras.dtype, name


def both(model, tmp_path):
    """Return a model's file, and its captioner in NumPy."""
    file = tmp_path / "model.safetensors"
    model.save(file)
    return file, read_captioner(file)


@pytest.fixture(scope="module")
def photos():
    return tiny.photos(np.random.default_rng(9), 4)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A Keras captioner with an LSTM, and the same in NumPy."""
    model = tiny.build(np.random.default_rng(8), spread=1.0)
    return model, both(model, tmp_path_factory.mktemp("model"))[1]


@pytest.mark.parametrize("variant", [*VARIANT_CASES, *nightly("transformer, the mean")])
def test_every_variant_of_a_decoder_is_read_from_its_file(
    variant, rng, photos, tmp_path
):
    module, changes = VARIANTS[variant]
    model = module.build(rng, spread=1.0, **changes)
    model.set_annotation_scale(2.0)
    _, own = both(model, tmp_path)
    decoding = DecodingSettings(**DECODING, beam=3)
    found = reference.Generator([own]).generate(photos, decoding)
    equal(found, model.generate(photos, decoding))
    for value, weight in zip(own.weights, model.weights, strict=True):
        np.testing.assert_array_equal(value, np.asarray(weight), err_msg=weight.path)
    tokens = np.array([[1, 5, 6], [1, 7, 2], [1, 4, 4], [1, 9, 5]])
    heads = own.attention_heads(photos, tokens)
    of_keras = model.attention_heads(photos, tokens)
    assert (heads is None) == (of_keras is None) == (module is tiny)
    if heads is not None:
        np.testing.assert_allclose(heads, of_keras, 1e-4, 1e-5)


@pytest.mark.parametrize("with_regions", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_returns_the_hypotheses_of_keras(
    pair, photos, method, with_regions
):
    decoding = DecodingSettings(**DECODING, **METHODS[method], region_words=2)
    regions = None
    if with_regions:
        regions = np.random.default_rng(3).choice([0, 0.25, 1], (4, L)).astype("f4")
    found = reference.Generator([pair[1]]).generate(photos, decoding, regions=regions)
    equal(found, pair[0].generate(photos, decoding, regions=regions))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("engine", ["keras", "numpy"])
def test_annotations_that_are_not_finite_are_refused(pair, photos, engine, value):
    generator = pair[0] if engine == "keras" else reference.Generator([pair[1]])
    damaged = np.array(photos)
    damaged[2, 1, 0] = value
    with pytest.raises(ValueError, match="must be finite. Received: .* for photo 2"):
        generator.generate(damaged, DecodingSettings(**DECODING))


def test_an_ensemble_of_mirrored_photos_is_that_of_keras(pair, photos, tmp_path):
    other = tiny_transformer.build(np.random.default_rng(2), spread=1.0)
    _, own = both(other, tmp_path)
    views, decoding = tiny.mirrored(photos), DecodingSettings(**DECODING, beam=3)
    generator = reference.Generator([pair[1], own], mirror=True)
    regions = np.random.default_rng(3).random((4, L)).astype("f4")
    found = generator.generate(views, decoding, regions=regions)
    expected = Generator([pair[0], other], mirror=True)
    equal(found, expected.generate(views, decoding, regions=regions))
    with pytest.raises(ConfigError, match="for several models"):
        generator.generate(views, DecodingSettings(locations="sampled"))


@pytest.mark.parametrize("attention", ["mean", *nightly("none")])
def test_without_attention_ensembles_caption_and_regions_are_refused(
    attention, photos, tmp_path
):
    rng = np.random.default_rng(4)
    members = [tiny.build(rng, spread=1.0, attention=attention) for _ in range(2)]
    own = [both(model, tmp_path)[1] for model in members]
    decoding = DecodingSettings(**DECODING, beam=3)
    generators = reference.Generator(own), Generator(members)
    found, expected = (g.generate(photos, decoding) for g in generators)
    equal(found, expected)
    np.testing.assert_allclose(found.alpha[:, 0, 0], 1 / L, rtol=1e-6)
    for generator in generators:
        with pytest.raises(CaptionError, match="`region` needs models with attention"):
            generator.generate(photos, decoding, regions=np.ones((4, L), "f4"))
        with pytest.raises(ConfigError, match="for several models"):
            generator.generate(photos, DecodingSettings(locations="likeliest"))
    with pytest.raises(ConfigError, match="without attention"):
        members[0].generate(photos, DecodingSettings(locations="likeliest"))


@pytest.mark.parametrize(
    ("module", "eight_bit"),
    [
        (tiny_transformer, True),
        *nightly((tiny_transformer, False), (tiny, False), (tiny, True)),
    ],
)
def test_smaller_files_are_read(module, eight_bit, photos, tmp_path):
    model = module.build(np.random.default_rng(6), spread=0.5)
    file, _ = both(model, tmp_path)
    save_half(file, tmp_path / "half.safetensors", eight_bit=eight_bit)
    decoding = DecodingSettings(**DECODING, beam=3)
    found = reference.load_generator([tmp_path / "half.safetensors"])
    expected = load_captioner(tmp_path / "half.safetensors")
    equal(found.generate(photos, decoding), expected.generate(photos, decoding))
