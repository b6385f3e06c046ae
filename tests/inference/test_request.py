"""A request: the fields that the command line derives from."""

import dataclasses

import pytest
from refusals import refused

from show_attend_tell.cli.caption import caption
from show_attend_tell.inference.request import CaptionOptions, CaptionRequest
from show_attend_tell.runtime.errors import CaptionError


def test_every_field_with_a_help_text_is_an_option_of_the_command_line():
    helps = {
        parameter.name: getattr(parameter, "help", 0) for parameter in caption.params
    }
    expected = {
        field.name: field.metadata["option"].help
        for field in dataclasses.fields(CaptionRequest)
        if "option" in field.metadata
    }
    assert expected
    assert {name: helps[name] for name in expected} == expected
    assert not {"method", "temperature", "samples"} & helps.keys()


CHOOSE_MODELS = {"models", "mirror", "reranker", "encoder_weights", "engine"}


def test_the_typed_options_are_the_fields_that_choose_no_model():
    fields = {field.name for field in dataclasses.fields(CaptionRequest)}
    assert set(CaptionOptions.__annotations__) == fields - CHOOSE_MODELS


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"min_confidence": -0.1}, "`min_confidence` must be from 0 to 1"),
        ({"min_confidence": 1.1}, "`min_confidence` must be from 0 to 1"),
        ({"min_confidence": "high"}, "must be from 0 to 1. Received: 'high'"),
        ({"samples": 0}, "`samples` must be a whole number from 1. Received: 0;"),
        ({"samples": 1.5}, "`samples` must be a whole number from 1. Received: 1.5;"),
        ({"region": "1,2,3"}, "`region` must be four numbers"),
        ({"region": "1,2,3,4", "min_confidence": 0.5}, "needs captions of the whole"),
    ],
)
def test_values_out_of_range_are_refused(values, text):
    with refused(CaptionError, text):
        CaptionRequest(**values)
