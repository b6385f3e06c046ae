"""A request: the fields that the command line and the web form derive from."""

import dataclasses

import pytest
from fastapi import FastAPI

from show_attend_tell.cli.caption import caption
from show_attend_tell.deployment.server.captions import add_captions
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.inference.request import CaptionRequest
from show_attend_tell.runtime.errors import CaptionError

OPTIONS = {
    field.name: field.metadata["option"]
    for field in dataclasses.fields(CaptionRequest)
    if "option" in field.metadata
}


def test_every_field_with_a_help_text_is_an_option_of_the_command_line():
    helps = {
        parameter.name: getattr(parameter, "help", 0) for parameter in caption.params
    }
    expected = {name: o.help for name, o in OPTIONS.items() if o.help is not None}
    assert expected
    assert {name: helps[name] for name in expected} == expected
    assert not {"method", "temperature", "samples"} & helps.keys()


def test_every_field_with_a_form_is_a_field_of_the_web_form(pipeline):
    app = FastAPI()
    add_captions(app, {"tiny": pipeline}, RequestQueue(1))
    schemas = app.openapi()["components"]["schemas"]
    form = schemas["Body_caption_caption_post"]["properties"]
    expected = {name for name, o in OPTIONS.items() if o.form is not None}
    assert form.keys() - {"photo", "model"} == expected


@pytest.mark.parametrize("lowest", [-0.1, 1.1])
def test_a_lowest_confidence_outside_0_to_1_is_refused(lowest):
    with pytest.raises(CaptionError, match="`min_confidence` must be from 0 to 1"):
        CaptionRequest(min_confidence=lowest)
