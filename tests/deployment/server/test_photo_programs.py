"""Ollama's and OpenAI's protocols: official clients, recorded requests, refusals."""

import base64
import inspect
import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from chromium import wait_for
from served import post, serving
from server_process import (
    BODIES,
    chat_body,
    completion_body,
    ollama_body,
    response_body,
    said,
)
from tiny_calibration import tagged_pipeline
from tiny_pipeline import photo_bytes

from show_attend_tell.deployment.server import app
from show_attend_tell.deployment.server.photo_programs import _tag
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.pretrained import SHIPPED_LSTM

PHOTO = base64.b64encode(photo_bytes()).decode()
URI = f"data:image/png;base64,{PHOTO}"


@pytest.fixture(scope="module")
def sentence(address):
    """The caption that the page's own service gives the photo."""
    return post(address).json()["sentence"]


@pytest.fixture
def ollama(address):
    with pytest.importorskip("ollama").Client(address) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_ollamas_client_gets_the_sentence(ollama, address, sentence, stream):
    listed, _ = ollama.list().models
    assert listed.model == "Tiny:latest"
    assert listed.size > 1000
    assert len(listed.digest) == 64
    assert ollama.show(listed.model).capabilities == ["completion", "vision"]
    photo = {"images": [photo_bytes()]}
    for name in (listed.model, "tiny", "Tiny"):
        found = ollama.generate(name, "Why?", **photo, stream=stream)
        (found,) = found if stream else [found]
        assert (found.response, found.done) == (sentence, True)
    message = {"role": "user", "content": "Why?", **photo}
    found = ollama.chat("tiny", [message], stream=stream)
    (found,) = found if stream else [found]
    assert (found.message.content, found.done) == (sentence, True)
    assert requests.get(f"{address}/api/version").json()["version"]


@pytest.fixture
def openai(address):
    package = pytest.importorskip("openai")
    url = f"{address}/v1"
    with package.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


def test_openais_client_gets_the_sentence(openai, sentence):
    listed, _ = openai.models.list()
    assert openai.models.retrieve(listed.id).id == "Tiny"
    found = openai.chat.completions.create(**completion_body(URI))
    assert found.choices[0].message.content == sentence
    type(found).model_validate(found.to_dict())  # nothing that is required is absent
    (event,) = openai.chat.completions.create(**completion_body(URI), stream=True)
    assert event.choices[0].delta.content == sentence
    assert event.choices[0].finish_reason == "stop"
    found = openai.responses.create(**response_body(URI))
    assert (found.output_text, found.status) == (sentence, "completed")
    type(found).model_validate(found.to_dict())
    with openai.responses.stream(**response_body(URI)) as events:
        texts = [e.delta for e in events if e.type == "response.output_text.delta"]
        assert texts == [sentence]
        assert events.get_final_response().output_text == sentence


def test_fields_of_openais_client_change_nothing(openai, address):
    for path, create in (
        ("/v1/chat/completions", openai.chat.completions.create),
        ("/v1/responses", openai.responses.create),
    ):
        names = {*inspect.signature(create).parameters}
        names -= {"extra_headers", "extra_query", "extra_body", "timeout"}
        body = dict.fromkeys(names) | BODIES[path](URI)
        assert requests.post(address + path, json=body).status_code == 200


# Of vLLM, LM Studio, llama.cpp and OpenRouter; and one that nobody has.
OTHERS = {
    "top_k": 40,
    "min_p": 0.05,
    "repetition_penalty": 1.1,
    "think": False,
    "chat_template_kwargs": {"enable_thinking": False},
    "keep_alive": "5m",
    "options": {"num_ctx": 4096},
    "an unknown field": [1],
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", OTHERS)
def test_fields_of_other_servers_are_ignored(address, path, name):
    photo = PHOTO if path.startswith("/api/") else URI
    body = BODIES[path](photo) | {name: OTHERS[name]}
    assert requests.post(address + path, json=body).status_code == 200


@pytest.mark.parametrize("path", ["/api/version", "/api/tags", "/"])
def test_ollamas_probes_by_head_are_answered(address, path):
    reply = requests.head(address + path)
    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_without_a_prompt_warms_up(ollama, address, stream):
    found = ollama.generate("tiny", stream=stream)
    (found,) = found if stream else [found]
    assert (found.response, found.done, found.done_reason) == ("", True, "load")
    found = ollama.chat("tiny", [], stream=stream)
    (found,) = found if stream else [found]
    assert (found.message.content, found.done_reason) == ("", "load")
    body = {"model": "tiny", "keep_alive": -1}
    assert requests.post(f"{address}/api/generate", json=body).status_code == 200
    body["model"] = "other"
    assert requests.post(f"{address}/api/generate", json=body).status_code == 404


def test_all_models_are_in_memory(ollama):
    listed = {one.model for one in ollama.list().models}
    running = ollama.ps().models
    assert {one.model for one in running} == listed
    assert all(one.expires_at.year > 2300 for one in running)


# As PhotoPrism writes them (internal/ai/vision, November 2026): its own fields `id` and
# `suffix`, a name in small letters with a tag, thumbnails in JPEG.
JPEG = base64.b64encode(photo_bytes(1, "JPEG")).decode()
PHOTOPRISM = {
    "id": "b6f0c2f1-8c0e-4f5e-9d6a-0f4f5d6f2a10",
    "model": "tiny:latest",
    "prompt": "Describe the photo in one sentence.",
    "suffix": "",
    "options": {"temperature": 0.1},
    "stream": False,
    "images": [JPEG],
}
PHOTOPRISM_LABELS = PHOTOPRISM | {
    "system": "Return JSON.",
    "format": "json",
    "options": {"temperature": 0.1, "top_p": 0.9, "stop": ["\n\n"], "force_json": True},
}
JPEG_PART = {"type": "input_image", "image_url": f"data:image/jpeg;base64,{JPEG}"}
JPEG_PART |= {"detail": "low"}
PHOTOPRISM_OPENAI = {
    "model": "tiny",
    "input": [
        said("system", {"type": "input_text", "text": "You describe photos."}),
        said("user", {"type": "input_text", "text": "Describe the photo."}, JPEG_PART),
    ],
    "max_output_tokens": 512,
    "temperature": 0.1,
}


def test_recorded_requests_of_photoprism(address):
    found = requests.post(f"{address}/api/generate", json=PHOTOPRISM).json()
    assert len(found["response"]) > 3
    assert found["created_at"]
    answer = requests.post(f"{address}/v1/responses", json=PHOTOPRISM_OPENAI).json()
    assert answer["output"][0]["content"][0]["text"] == found["response"]


LABEL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "topicality": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["name", "confidence", "topicality"],
    "additionalProperties": False,
}
# As PhotoPrism sends it to OpenAI.
LABELS = {
    "type": "object",
    "properties": {"labels": {"type": "array", "items": LABEL, "default": []}},
    "required": ["labels"],
    "additionalProperties": False,
}
# As pydantic writes it, with a sentence and keywords.
KEYWORDS = {
    "$defs": {"Word": {"type": "string"}},
    "properties": {
        "description": {"type": "string"},
        "keywords": {"type": "array", "items": {"$ref": "#/$defs/Word"}},
        "colours": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["description", "keywords"],
    "type": "object",
}


@pytest.fixture(scope="module")
def tagged():
    """The address of a server of a model with calibrated tags, and its caption."""
    pipeline = tagged_pipeline()
    caption = pipeline.caption(photo_bytes(), tags=True)
    assert caption.tags
    with serving({"Tiny": pipeline}) as address:
        yield address, caption


def labels_of(caption):
    return [
        {"name": name, "confidence": p, "topicality": p}
        for name, p in ((tag.name, tag.confidence) for tag in caption.tags)
    ]


def test_recorded_requests_of_photoprism_for_labels(tagged):
    address, caption = tagged
    body = PHOTOPRISM_LABELS | {"images": [PHOTO]}
    for form in ("json", LABELS):
        reply = requests.post(f"{address}/api/generate", json=body | {"format": form})
        assert json.loads(reply.json()["response"]) == {"labels": labels_of(caption)}
    form = {"type": "json_schema", "name": "labels", "strict": True, "schema": LABELS}
    body = response_body(URI) | {"text": {"format": form}}
    answer = requests.post(f"{address}/v1/responses", json=body).json()
    text = answer["output"][0]["content"][0]["text"]
    assert json.loads(text) == {"labels": labels_of(caption)}
    assert answer["status"] == "completed"


def test_chat_completions_fill_a_schema_of_keywords_and_a_sentence(tagged):
    address, caption = tagged
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": KEYWORDS}}
    body = completion_body(URI) | {"response_format": form}
    found = requests.post(f"{address}/v1/chat/completions", json=body).json()
    assert json.loads(found["choices"][0]["message"]["content"]) == {
        "description": caption.sentence,
        "keywords": list(caption.tag_names),
    }
    body["response_format"] = {"type": "json_object"}
    found = requests.post(f"{address}/v1/chat/completions", json=body).json()
    content = json.loads(found["choices"][0]["message"]["content"])
    assert content == {"labels": labels_of(caption)}


@pytest.mark.parametrize("name", ["", "/tiny", "/tiny/latest"])
def test_photoprisms_own_protocol_has_labels_and_captions(tagged, name):
    address, caption = tagged
    body = {"id": "b6f0", "model": "tiny", "version": "latest", "images": [URI]}
    url = f"{address}/api/v1/vision"
    found = requests.post(f"{url}/labels{name}", json=body).json()
    assert (found["id"], found["code"]) == ("b6f0", 200)
    assert found["model"] == {"type": "labels", "name": "tiny", "version": "latest"}
    assert found["result"] == {"labels": labels_of(caption)}
    found = requests.post(f"{url}/caption{name}", json=body).json()
    assert found["result"]["caption"]["text"] == caption.sentence
    assert found["result"]["caption"]["confidence"] == caption.confidence
    reply = requests.post(f"{url}/labels{name}", json={"url": "https://a.example/b"})
    assert reply.status_code == 400
    assert reply.json()["code"] == 400
    assert "must have one photo" in reply.json()["error"]


# A schema, and part of the refusal.
OTHER_FORMS = [
    ({"type": "object"}, "`format` must ask for text"),
    ({"properties": {"mood": {"type": "string"}}}, "Received: none of them"),
    (
        {"properties": LABELS["properties"] | {"nsfw": {}}, "required": ["nsfw"]},
        "Received: 'nsfw'",
    ),
    (
        {
            "properties": {"labels": {"type": "array", "items": {"properties": {}}}},
            "required": ["labels"],
        },
        "Received: 'labels'",
    ),
    (
        {
            "properties": {"labels": {"type": "array", "items": {"type": "string"}}},
            "required": ["labels", "mood"],
        },
        "Received: 'mood'",
    ),
    ("yaml", "Received: 'yaml'"),
    ([1], "`format` must ask for text"),
]


@pytest.mark.parametrize(("form", "text"), OTHER_FORMS)
def test_other_json_is_refused_in_one_line(tagged, form, text):
    body = PHOTOPRISM_LABELS | {"format": form}
    reply = requests.post(f"{tagged[0]}/api/generate", json=body)
    assert reply.status_code == 400
    assert text in reply.json()["error"]


@pytest.mark.parametrize(
    "schema",
    [
        *(5, [], {"properties": 5}, {"properties": {"labels": 5}}),
        {"properties": {"labels": {"type": "array", "items": {"$ref": "#/$defs/x"}}}},
        {"properties": {"labels": {"$ref": "#/$defs/labels"}}, "$defs": 5},
        {"properties": {"labels": {"$ref": 5}}, "required": 5},
        {"properties": {"labels": {"type": "array"}}, "required": [["labels"], {}]},
        {
            "properties": {
                "labels": {
                    "type": "array",
                    "items": {"properties": {"name": {}}, "required": [[]]},
                }
            }
        },
        {"properties": {"labels": {"type": [], "items": 5}}, "required": {}},
    ],
)
def test_malformed_schemas_never_end_in_a_server_error(tagged, schema):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = completion_body(URI) | {"response_format": form}
    reply = requests.post(f"{tagged[0]}/v1/chat/completions", json=body)
    assert reply.status_code in (200, 400)


def test_labels_of_a_model_without_calibrated_tags_name_the_remedy(address):
    reply = requests.post(f"{address}/api/generate", json=PHOTOPRISM_LABELS)
    assert reply.status_code == 400
    assert "labels need a model with calibrated tags" in reply.json()["error"]
    reply = requests.post(f"{address}/api/v1/vision/labels", json={"images": [URI]})
    assert reply.json()["code"] == 400


def test_the_page_has_the_tags_of_a_photo_but_not_of_samples_or_a_region(
    tagged, address
):
    server, caption = tagged
    found = post(server).json()
    assert [tag["name"] for tag in found["tags"]] == list(caption.tag_names)
    assert post(server, method="sample").json()["tags"] is None
    assert post(server, region="0,0,40,40").json()["tags"] is None
    assert post(address).json()["tags"] is None


def test_recorded_requests_of_immich_analyze(address, sentence):
    model, _ = requests.get(f"{address}/api/tags").json()["models"]
    body = chat_body(PHOTO, stream=False) | {"model": model["name"]}
    found = requests.post(f"{address}/api/chat", json=body).json()
    assert found["message"]["content"] == sentence
    model, _ = requests.get(f"{address}/v1/models").json()["data"]
    body = completion_body(URI, stream=False) | {"model": model["id"]}
    found = requests.post(f"{address}/v1/chat/completions", json=body).json()
    assert found["choices"][0]["message"]["content"] == sentence


def test_a_body_needs_no_content_type_and_may_be_wrapped(address, sentence):
    wrapped = base64.encodebytes(photo_bytes()).decode()
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # curl -d
    body = json.dumps(ollama_body(wrapped))
    found = requests.post(f"{address}/api/generate", data=body, headers=form)
    assert found.headers["Content-Type"] == "application/x-ndjson"
    assert json.loads(found.text)["response"] == sentence
    assert found.text.count("\n") == 1


def test_the_last_message_with_a_photo_counts(address, sentence):
    other = base64.b64encode(photo_bytes(5)).decode()
    body = chat_body(other)
    body["messages"] += chat_body(PHOTO)["messages"] + chat_body()["messages"]
    found = requests.post(f"{address}/api/chat", json=body).json()
    assert found["message"]["content"] == sentence


def in_base64(content):
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


FORMAT = {"type": "json_schema", "json_schema": {"name": "labels", "schema": {}}}
# Name, photos, other fields, status, part of the message.
REFUSED = [
    ("no photo", [], {}, 400, "must have one photo. Received: 0"),
    ("two photos", [URI, URI], {}, 400, "must have one photo. Received: 2"),
    ("another format", [in_base64(b"%PDF-1.7")], {}, 400, "must be a photo (JPEG"),
    ("an address", ["https://a.example/b.png"], {}, 400, "this server fetches nothing"),
    ("no base64", ["data:image/png;base64,*"], {}, 400, "must be base64"),
    (
        "a bomb",
        [in_base64(photo_bytes(size=(1200, 1000)))],
        *({}, 413, "at most 1 megapixels"),
    ),
    ("a large photo", [in_base64(b"x" * 1_050_000)], {}, 413, "at most 1 MB"),
    ("a large body", [in_base64(b"x" * 3_000_000)], {}, 413, "at most 1 MB"),
    ("another model", [URI], {"model": "x\ny"}, 404, r"model 'x\ny' not found"),
    ("no model", [URI], {"model": None}, 400, "`model`: "),
    ("tools", [URI], {"tools": [{}]}, 400, "`tools` must be absent"),
]
REFUSED_OPENAI = [
    ("JSON", [URI], {"response_format": FORMAT}, 400, "`response_format` must ask"),
    ("JSON", [URI], {"text": {"format": FORMAT}}, 400, "`text.format` must ask"),
    ("two answers", [URI], {"n": 2}, 400, "`n`: "),
]
REFUSED_OLLAMA = [("a schema", [URI], {"format": {"type": "object"}}, 400, "`format`")]


def error_of(path, reply):
    """Return the line of an error, whose body is that of the path's protocol."""
    found = reply.json()
    assert found.keys() == {"error"}
    if path.startswith("/api/"):
        return found["error"]
    error = found["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" or reply.status_code >= 500
    assert (error["code"] == "model_not_found") == (reply.status_code == 404)
    return error["message"]


@pytest.mark.parametrize("path", BODIES)
def test_refusals_are_of_the_protocol_and_one_line_of_the_log(address, path, caplog):
    more = REFUSED_OLLAMA if path.startswith("/api/") else REFUSED_OPENAI
    for name, photos, fields, status, text in REFUSED + more:
        caplog.clear()
        body = BODIES[path](*photos, **fields) | fields
        reply = requests.post(address + path, json=body)
        assert reply.status_code == status, name
        line = error_of(path, reply)
        assert text in line, name
        assert "\n" not in line
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith(f"POST '{path}': {status}, ")
        assert "\n" not in record.getMessage()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("body", ["", "{", "[]", "1", "\\ud800", "[" * 10**5])
def test_malformed_bodies_are_refused(address, path, body):
    reply = requests.post(address + path, data=body)
    assert reply.status_code == 400
    assert error_of(path, reply).startswith("`body`: ")


def test_paths_and_methods_that_do_not_exist_have_errors_of_the_protocol(address):
    reply = requests.post(f"{address}/v1/embeddings", json={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, None)
    reply = requests.get(f"{address}/api/chat")
    assert (reply.status_code, reply.json()) == (405, {"error": "Method Not Allowed"})
    origin = {"Origin": "http://evil.example"}
    reply = requests.get(f"{address}/v1/models", headers=origin)
    assert reply.status_code == 403
    assert reply.json()["error"]["message"].startswith("`Origin` must be absent")


def test_a_client_that_leaves_gives_up_its_place(pipeline, monkeypatch, caplog):
    go, queues, caption = threading.Event(), [], pipeline.caption

    def slow(*arguments, **options):
        assert go.wait(60)
        return caption(*arguments, **options)

    def make_queue(limit):
        queues.append(RequestQueue(limit))
        return queues[0]

    monkeypatch.setattr(pipeline, "caption", slow)
    monkeypatch.setattr(app, "RequestQueue", make_queue)
    with serving({"tiny": pipeline}, 2) as address, ThreadPoolExecutor(2) as pool:
        (queue,), body = queues, ollama_body(PHOTO)

        def ask():
            return requests.post(f"{address}/api/generate", json=body)

        waiting = [pool.submit(ask)]
        assert wait_for(lambda: queue.length == 1, 60)
        text = json.dumps(body)
        head = f"Host: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(address.split(":")[2]))) as one:
            one.sendall(f"POST /api/generate HTTP/1.1\r\n{head}{text}".encode())
            assert wait_for(lambda: queue.length == 2, 60)
            reply = requests.post(f"{address}/v1/responses", json=response_body(URI))
            assert reply.status_code == 503
            assert reply.json()["error"]["type"] == "server_error"
            assert int(reply.headers["Retry-After"]) > 0
        assert wait_for(lambda: queue.length == 1, 60)
        waiting.append(pool.submit(ask))
        assert wait_for(lambda: queue.length == 2, 60)
        go.set()
        assert [reply.result().status_code for reply in waiting] == [200, 200]
    assert caplog.text.count("POST '/api/generate': 499, the client left") == 1


def test_the_page_states_that_prompts_are_ignored(address):
    assert "prompts are ignored" in requests.get(address).text


def test_an_ensemble_is_served_and_described_by_all_of_its_files():
    alone = load(SHIPPED_LSTM)
    several = load([SHIPPED_LSTM, SHIPPED_LSTM])
    assert app.create_app({"both": several})
    tag = _tag("both", several)
    assert tag["size"] == 2 * _tag("one", alone)["size"] > 1000
    assert tag["digest"] != _tag("one", alone)["digest"]
    assert tag["modified_at"] == _tag("one", alone)["modified_at"]
