"""Words over HTTP: the word of a crop, attention of its characters, refusals."""

import numpy as np
import pytest
import requests
from served import serving
from tiny_page_reader import crop_bytes, random_reader, tiny_page_reader
from tiny_pipeline import tiny_pipeline
from tiny_reader import drawn_crop

from show_attend_tell.deployment.server.siblings import WordReader
from show_attend_tell.siblings.words.generation import Searcher
from show_attend_tell.siblings.words.reading import best_readings


@pytest.fixture(scope="module")
def address():
    with serving({"tiny": tiny_pipeline()}, reader=tiny_page_reader()) as address:
        yield address


def read(address, content=None, **headers):
    files = {"photo": ("w.png", crop_bytes() if content is None else content)}
    return requests.post(f"{address}/read", files=files, headers=headers, timeout=60)


def test_the_answer_is_that_of_the_model(address):
    found = read(address).json()
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


def test_a_model_without_places_has_no_attention():
    reader = WordReader(random_reader({"decoder": "rnn1"}))
    with serving({"tiny": tiny_pipeline()}, reader=reader) as address:
        found = read(address).json()
    assert found["attention"] is None
    assert found["seen"] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (crop_bytes(" "), 422, "`photo` must show a word. Received: the same"),
        (b"none", 415, "`photo` must be a photo"),
        (bytes(2_000_000), 413, "at most 1 MB"),
    ],
)
def test_a_crop_that_cannot_be_read_is_one_line(address, content, status, message):
    response = read(address, content)
    assert response.status_code == status
    error = response.json()["error"]
    assert message in error
    assert "\n" not in error
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_a_request_without_a_crop_is_one_line(address):
    response = requests.post(f"{address}/read", timeout=60)
    assert response.status_code == 422
    assert response.json()["error"].startswith("`photo`: ")


def test_pages_of_other_servers_cannot_have_words_read(address):
    response = read(address, Origin="https://elsewhere.example")
    assert response.status_code == 403


def test_a_full_queue_refuses_words_too():
    with serving({"tiny": tiny_pipeline()}, 0, reader=tiny_page_reader()) as address:
        response = read(address)
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) >= 1


def test_without_a_reader_there_is_no_such_service(address):
    assert requests.get(f"{address}/about", timeout=60).json()["words"] is True
    with serving({"tiny": tiny_pipeline()}) as other:
        assert requests.get(f"{other}/about", timeout=60).json()["words"] is False
        assert read(other).status_code in (404, 405)
