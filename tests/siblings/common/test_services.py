"""Digits and words over HTTP: glimpses, drawings, words, and refusals."""

import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
import requests
import served
from PIL import Image
from served import serving
from tiny_digits import GLIMPSES, STEPS, drawing_bytes, tiny_draw, tiny_ram
from tiny_pipeline import photo_bytes, tiny_pipeline
from tiny_reader import crop_bytes, drawn_crop, random_reader
from tiny_tabs import tiny_tabs, words_with

from show_attend_tell.runtime import plugins
from show_attend_tell.siblings.digits.page_models import DigitModels
from show_attend_tell.siblings.digits.ram.prediction import Predictor
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.page_reader import PageReader
from show_attend_tell.siblings.words.reading import best_readings

pytestmark = pytest.mark.usefixtures("eager_models")

CLASSIFY, READ = "digits/classify", "read"


def post(address, service, content=None, headers=None, **form):
    content = content or (crop_bytes() if service == READ else drawing_bytes())
    return served.post(address, service, content, "w.png", headers, **form)


def drawn(address, seed):
    return requests.get(f"{address}/digits/draw?seed={seed}", timeout=60)


def test_a_drawn_digit_gets_glimpses_with_what_was_seen_and_probabilities(address):
    found = post(address, CLASSIFY).json()
    assert np.shape(found["digit"]) == (28, 28)
    assert len(found["glimpses"]) == GLIMPSES
    for glimpse in found["glimpses"]:
        x0, y0, x1, y1 = glimpse["box"]
        assert (x1 - x0, y1 - y0) == (8, 8)
        assert np.shape(glimpse["seen"]) == (16, 16)
        assert sum(glimpse["probabilities"]) == pytest.approx(1, abs=1e-4)
    last = found["glimpses"][-1]["probabilities"]
    assert found["label"] == int(np.argmax(last))
    # The middle of what was seen is the digit inside of the box.
    x0, y0, *_ = map(int, found["glimpses"][0]["box"])
    padded = np.pad(found["digit"], 28)
    seen = np.array(found["glimpses"][0]["seen"])[4:12, 4:12]
    inside = padded[y0 + 28 : y0 + 36, x0 + 28 : x0 + 36]
    np.testing.assert_array_equal(seen, inside)


@pytest.mark.nightly
def test_the_glimpses_of_a_model_that_stops_end_there():
    model = tiny_ram(stop="learned", price=0.1)
    digit = Image.open(io.BytesIO(drawing_bytes()))
    models = DigitModels(model, tiny_draw())
    counts = set()
    for seed in range(8):
        found = models.classify(digit, seed)
        counts.add(len(found["glimpses"]))
        last = found["glimpses"][-1]["probabilities"]
        assert found["label"] == int(np.argmax(last))
    assert min(counts) < GLIMPSES


def test_glimpses_are_those_of_the_model_and_depend_on_the_seed(address):
    found = post(address, CLASSIFY, seed=5).json()
    digit = np.array(found["digit"], np.uint8)
    own = Predictor(tiny_ram())(digit[None], "mean", 5)
    given = [glimpse["probabilities"] for glimpse in found["glimpses"]]
    np.testing.assert_allclose(given, own.steps[0], atol=1e-5)
    again, other = (post(address, CLASSIFY, seed=k).json() for k in (5, 2))
    assert again["glimpses"] == found["glimpses"]
    assert other["glimpses"][0]["box"] != found["glimpses"][0]["box"]


def test_a_drawing_has_all_canvases_and_windows(address):
    found, again, other = (drawn(address, seed).json() for seed in (3, 3, 4))
    assert found["seed"] == 3
    canvases = np.array(found["canvases"])
    assert canvases.shape == (STEPS + 1, 28, 28)
    assert 0 <= canvases.min() <= canvases.max() <= 255
    assert len(found["windows"]) == STEPS
    assert all(w["deviation"] > 0 for w in found["windows"])
    assert again["canvases"] == found["canvases"] != other["canvases"]


def test_the_word_is_that_of_the_model(address):
    found = post(address, READ).json()
    (own,) = best_readings(Searcher(random_reader()), drawn_crop("stop")[None])
    assert found["word"] == own.word
    assert own.word
    assert found["log_prob"] == pytest.approx(own.log_prob, abs=1e-4)
    shares = np.exp(found["character_log_probs"])
    np.testing.assert_allclose(shares, own.probabilities, atol=1e-4)
    np.testing.assert_allclose(found["attention"], own.attention, atol=1e-5)
    assert np.shape(found["attention"]) == (len(own.word), 4, 12)
    assert found["seen"] == [0, 0, 0.96, 1]  # 12 places of 8 of 100 columns
    assert (found["photo"], found["seconds"] >= 0) == ("w.png", True)


def test_a_reader_without_places_has_no_attention():
    model = PageReader(random_reader({"decoder": "rnn1"}))
    tabs = [words_with(lambda: model)]
    with serving({"tiny": tiny_pipeline()}, tabs=tabs) as address:
        found = post(address, READ).json()
    assert found["attention"] is None
    assert found["seen"] == [0, 0, 1, 1]


def test_a_full_queue_refuses_photos_and_words():
    with serving({"tiny": tiny_pipeline()}, 0, tiny_tabs()) as address:
        responses = [post(address, service) for service in ("caption", READ)]
    for response in responses:
        assert response.status_code == 503
        assert "busy" in response.json()["error"]
        assert int(response.headers["Retry-After"]) >= 1


def test_without_models_there_are_no_such_services(address):
    def tabs(address):
        return requests.get(f"{address}/about", timeout=60).json()["tabs"]

    assert tabs(address) == ["digits", "reading"]
    with serving({"tiny": tiny_pipeline()}) as other:
        assert tabs(other) == []
        assert drawn(other, 0).status_code == 404
        assert post(other, READ).status_code in (404, 405)


def test_without_their_packages_the_services_name_them(address):
    tabs = [
        dataclasses.replace(tab, requires=("no_such_package", "numpy"))
        for tab in plugins.tabs()
    ]
    with serving({"tiny": tiny_pipeline()}, tabs=tabs) as other:
        assert requests.get(f"{other}/about", timeout=60).json()["tabs"] == []
        page = requests.get(other, timeout=60).text
        assert "Not installed: Digits and Words; run <code>pip install" in page
        for response in (drawn(other, 0), post(other, READ), post(other, CLASSIFY)):
            assert response.status_code == 404
            error = response.json()["error"]
            assert "needs no_such_package; run pip install 'show-attend" in error
            assert "\n" not in error
    assert "Not installed" not in requests.get(address, timeout=60).text


WITHOUT_KERAS = """
import sys
for name in ("keras", "tensorflow", "jax", "h5py", "scipy"):
    sys.modules[name] = None
from show_attend_tell.deployment.server.request_queue import RequestQueue
from show_attend_tell.runtime import plugins
for tab in plugins.tabs():
    print(tab.name, len(tab.router(RequestQueue(1)).routes))
"""


def test_the_services_are_known_without_keras():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("digits 2\nreading 1\n", "")


@pytest.mark.parametrize(
    ("service", "query", "form", "text"),
    [
        (
            "digits/draw",
            "sead=5",
            None,
            "'sead' is no field of this service; did you mean `seed`?",
        ),
        ("digits/draw", "seed=1&seed=2", None, "`seed` is there 2 times"),
        ("digits/classify", "", {"sead": 1}, "'sead' is no field"),
        ("digits/classify", "seed=1", {}, "`seed` belongs in the form"),
        ("read", "", {"seed": 1}, "'seed' is no field of this service; remove it"),
    ],
)
def test_fields_that_the_services_do_not_have_are_refused(
    address, service, query, form, text
):
    path = f"{service}?{query}"
    if form is None:
        response = requests.get(f"{address}/{path}", timeout=60)
    else:
        content = crop_bytes() if service == READ else drawing_bytes()
        response = served.post(address, path, content, "w.png", **form)
    assert response.status_code == 422
    assert text in response.json()["error"]


@pytest.mark.parametrize(
    ("service", "content", "form", "status", "text"),
    [
        (CLASSIFY, drawing_bytes(9, 9), {}, 422, "`photo` must show a digit. "),
        (READ, crop_bytes(" "), {}, 422, "`photo` must show a word. "),
        (CLASSIFY, b"none", {}, 415, "`photo` must be a photo"),
        (READ, b"none", {}, 415, "`photo` must be a photo"),
        (CLASSIFY, photo_bytes(size=(1200, 900)), {}, 413, "at most 1 megapixels"),
        (CLASSIFY, bytes(1_050_000), {}, 413, "at most 1 MB"),
        (READ, bytes(2_000_000), {}, 413, "at most 1 MB"),
        (CLASSIFY, drawing_bytes(), {"seed": -1}, 422, "`seed`: "),
    ],
)
def test_refusals_are_one_line_of_json(address, service, content, form, status, text):
    response = post(address, service, content, **form)
    assert response.status_code == status
    error = response.json()["error"]
    assert text in error
    assert "\n" not in error
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
