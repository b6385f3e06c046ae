"""Digits over HTTP: glimpses, drawings, refusals."""

import io

import numpy as np
import pytest
import requests
from PIL import Image
from served import serving
from tiny_digits import GLIMPSES, STEPS, drawing_bytes, tiny_models, tiny_ram
from tiny_pipeline import photo_bytes, tiny_pipeline

from show_attend_tell.siblings.ram.prediction import Predictor


@pytest.fixture(scope="module")
def address():
    with serving({"tiny": tiny_pipeline()}, digits=tiny_models()) as address:
        yield address


def classify(address, content=None, **form):
    files = {"photo": ("d.png", drawing_bytes() if content is None else content)}
    return requests.post(
        f"{address}/digits/classify", files=files, data=form, timeout=60
    )


def test_a_drawn_digit_gets_glimpses_with_what_was_seen_and_probabilities(address):
    found = classify(address).json()
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
    inside = np.zeros((8, 8), int)
    x0, y0, *_ = map(int, found["glimpses"][0]["box"])
    for row in range(8):
        for column in range(8):
            y, x = y0 + row, x0 + column
            if 0 <= y < 28 and 0 <= x < 28:
                inside[row, column] = found["digit"][y][x]
    seen = np.array(found["glimpses"][0]["seen"])[4:12, 4:12]
    np.testing.assert_array_equal(seen, inside)


def test_the_answer_is_that_of_the_model(address):
    found = classify(address, seed=5).json()
    digit = np.array(found["digit"], np.uint8)
    own = Predictor(tiny_ram())(digit[None], "mean", 5)
    given = [glimpse["probabilities"] for glimpse in found["glimpses"]]
    np.testing.assert_allclose(given, own.steps[0], atol=1e-5)
    np.testing.assert_allclose(given[-1], own.probabilities[0], atol=1e-5)


def test_another_seed_gives_another_first_place_and_the_same_seed_the_same(address):
    one, again, other = (
        [g["box"] for g in classify(address, seed=k).json()["glimpses"]]
        for k in (1, 1, 2)
    )
    assert one == again
    assert one[0] != other[0]


def test_a_drawing_has_all_canvases_and_windows(address):
    found = requests.get(f"{address}/digits/draw?seed=3", timeout=60).json()
    assert found["seed"] == 3
    canvases = np.array(found["canvases"])
    assert canvases.shape == (STEPS + 1, 28, 28)
    assert (canvases.min(), canvases.max()) >= (0, 0)
    assert canvases.max() <= 255
    assert len(found["windows"]) == STEPS
    assert all(w["deviation"] > 0 for w in found["windows"])
    again, other = (
        requests.get(f"{address}/digits/draw?seed={k}", timeout=60).json()
        for k in (3, 4)
    )
    assert again["canvases"] == found["canvases"] != other["canvases"]


@pytest.mark.parametrize(
    ("content", "form", "status", "message"),
    [
        (drawing_bytes(9, 9), {}, 422, "`photo` must show a digit. Received: the same"),
        (b"none", {}, 415, "`photo` must be a photo"),
        (photo_bytes(size=(1200, 900)), {}, 413, "at most 1 megapixels"),
        (bytes(1_050_000), {}, 413, "at most 1 MB"),
        (bytes(2_000_000), {}, 413, "at most 1 MB"),
        (None, {"seed": -1}, 422, "`seed`: "),
    ],
)
def test_a_digit_that_cannot_be_read_is_one_line(
    address, content, form, status, message
):
    response = classify(address, content, **form)
    assert response.status_code == status
    error = response.json()["error"]
    assert message in error
    assert "\n" not in error
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_a_malformed_seed_of_a_drawing_is_one_line(address):
    response = requests.get(f"{address}/digits/draw?seed=x", timeout=60)
    assert response.status_code == 422
    assert response.json()["error"].startswith("`seed`: ")


def test_pages_of_other_servers_cannot_classify(address):
    headers = {"Origin": "https://elsewhere.example"}
    files = {"photo": ("d.png", drawing_bytes())}
    response = requests.post(
        f"{address}/digits/classify", files=files, headers=headers, timeout=60
    )
    assert response.status_code == 403


def test_without_models_of_digits_there_is_no_such_service(address):
    assert requests.get(f"{address}/about", timeout=60).json()["digits"] is True
    with serving({"tiny": tiny_pipeline()}) as other:
        assert requests.get(f"{other}/about", timeout=60).json()["digits"] is False
        assert requests.get(f"{other}/digits/draw", timeout=60).status_code == 404


def test_a_jpeg_of_dark_ink_on_paper_is_read_too(address):
    image = Image.open(io.BytesIO(drawing_bytes(40, 200))).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    dark, bright = (
        np.array(classify(address, content).json()["digit"], int)
        for content in (buffer.getvalue(), drawing_bytes())
    )
    assert np.abs(dark - bright).max() < 64
