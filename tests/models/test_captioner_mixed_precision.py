"""Dtype policies of Keras that a captioner accepts and refuses."""

import keras
import pytest
import tiny_captioner as tiny

from show_attend_tell.models.captioner import Captioner
from show_attend_tell.runtime.errors import ConfigError


@pytest.fixture
def use_policy():
    """Set Keras' global dtype policy until the end of the test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


def build(**arguments):
    return Captioner(tiny.WORDS, tiny.settings(), tiny.D, tiny.GRID, **arguments)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_float16_is_refused_in_one_line_as_argument_and_as_global_policy(
    use_policy, policy
):
    config, message = build().get_config(), rf"float32 .* Received: {policy}"
    with pytest.raises(ConfigError, match=message) as caught:
        build(dtype=policy)
    assert "\n" not in str(caught.value)
    use_policy(policy)
    with pytest.raises(ConfigError, match=message):  # its saved dtype is float32
        Captioner.from_config(config)


def test_mixed_bfloat16_is_accepted(use_policy):
    use_policy("mixed_bfloat16")
    assert build().compute_dtype == "bfloat16"
