"""Ensembles: mean probabilities, copies of one model, mirrored photos."""

import numpy as np
import pytest
import tiny_captioner as tiny
from checks import assert_hypotheses_are_read, mean_of_reads
from refusals import refused
from tiny_captioner import mirrored

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.data.encoder_identity import PACKAGED_DIGEST, ROUNDED_DIGEST
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.reference import lstm
from show_attend_tell.runtime.errors import ConfigError, ModelFileError

pytestmark = pytest.mark.usefixtures("eager_searches")

DECODING = DecodingSettings(beam=3, max_words=4, batch_size=3)
IDENTITY = {"network": "VGG16", "layer": "block5_conv3"}


def member(seed, **arguments):
    model = tiny.build(np.random.default_rng(seed), spread=1.0)
    if not arguments:
        return model
    return Captioner.from_config({**model.get_config(), **arguments})


@pytest.fixture(scope="module")
def members():
    return [member(seed) for seed in (3, 4)]


@pytest.fixture(scope="module")
def photos():
    return tiny.photos(np.random.default_rng(5), 4)


def test_words_and_attention_are_the_means_of_the_members(members, photos):
    def read(b, w, inputs):
        a = photos[b].astype(float)
        return mean_of_reads(
            [lstm.read(tiny.weights(m), m.settings, a, inputs) for m in members]
        )

    found = Generator(members).generate(photos, DECODING)
    assert_hypotheses_are_read(found, read)


@pytest.mark.nightly
def test_the_attention_of_a_mirrored_photo_is_flipped_back(members, photos):
    # The decoder does not know where a location is, so both views give one caption.
    expected = members[0].generate(photos, DECODING)
    found = Generator(members[:1], mirror=True).generate(mirrored(photos), DECODING)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.alpha, expected.alpha, rtol=1e-4, atol=1e-6)
    assert np.abs(expected.alpha - expected.alpha[..., [2, 1, 0, 5, 4, 3]]).max() > 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": [*tiny.WORDS[:-1], "z"]}, "another vocabulary than member 1"),
        ({"encoder_identity": IDENTITY}, "another encoder, network VGG16 instead of"),
        ({"grid": (3, 2)}, "other annotations than member 1"),
    ],
)
def test_members_of_another_kind_are_named_in_one_line(members, arguments, message):
    with refused(ModelFileError, message) as error:
        Generator([members[0], member(3, **arguments)])
    assert str(error.value).startswith("member 2: ")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_models_of_the_weights_that_the_packaged_ones_round_join_those(order):
    digests = [ROUNDED_DIGEST, PACKAGED_DIGEST]
    identities = [IDENTITY | {"weights_digest": digest} for digest in digests]
    found = Generator([member(3, encoder_identity=identities[k]) for k in order])
    assert found.encoder_identity == identities[1]
    identities[1]["layer"] = "block5_pool"
    one, other = (identities[k]["layer"] for k in order)
    message = f"member 2: .* another encoder, layer {other} instead of {one}, than"
    with pytest.raises(ModelFileError, match=message):
        Generator([member(3, encoder_identity=identities[k]) for k in order])


def test_no_member_wrong_shapes_and_selected_locations_are_refused(members, photos):
    with pytest.raises(ModelFileError, match="`members` must not be empty"):
        Generator([])
    with pytest.raises(ValueError, match=r"must be \(N, 2, 6, 5\) with N > 0"):
        Generator(members, mirror=True).generate(photos, DECODING)
    with pytest.raises(ValueError, match=r"must be \(N, 6, 5\) with N > 0"):
        Generator(members).generate(mirrored(photos), DECODING)
    with pytest.raises(ConfigError, match="`locations` must be 'expected'"):
        Generator(members).generate(photos, DecodingSettings(locations="likeliest"))
