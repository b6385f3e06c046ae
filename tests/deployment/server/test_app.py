"""The service over HTTP: answers, refusals, fifty people at once."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from served import make_teller, photo, serving
from show_attend_tell.inference.captioning import caption_photos, decoding_of
from show_attend_tell.inference.teller import Wish

from show_attend_tell.deployment.server.serve import take_port
from show_attend_tell.deployment.server.uploads import Limits, open_upload
from show_attend_tell.runtime.errors import PortError

LIMITS = Limits()


@pytest.fixture(scope="module")
def teller(tmp_path_factory):
    return make_teller(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def address(teller):
    with serving([teller]) as address:
        yield address


def ask(address, content=None, name="p.png", **form):
    files = {"photo": (name, photo() if content is None else content)}
    return requests.post(f"{address}/caption", files=files, data=form, timeout=60)


def test_the_answer_is_the_caption_that_the_package_writes(address, teller, tmp_path):
    (tmp_path / "p.png").write_bytes(photo())
    captioner, encoder = teller.captioner, teller.encoder
    (expected,) = caption_photos(captioner, encoder, [tmp_path / "p.png"])
    response = ask(address)
    assert response.status_code == 200
    found = response.json()
    assert found["text"] == expected.text
    assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)
    assert np.shape(found["attention"]) == expected.attention.shape
    assert [o["text"] for o in found["alternatives"]] == [
        o.text for o in expected.alternatives
    ]
    assert found["photo"] == "p.png"
    assert found["settings"] == {
        "method": "beam",
        "beam": decoding_of(captioner).beam,
        "locations": "expected",
    }


def test_seen_is_the_part_of_the_photo_that_the_network_saw(address):
    x0, y0, x1, y1 = ask(address).json()["seen"]  # 96 x 72, the centre is cropped
    assert x0 == pytest.approx(1 - x1, abs=0.03)
    assert (x1 - x0) * 96 == pytest.approx((y1 - y0) * 72, rel=0.05)
    assert 0 < x0 < x1 < 1


def test_hard_attention_tells_the_place_of_each_word(address):
    assert ask(address).json()["locations"] is None
    found = ask(address, locations="likeliest").json()
    for place, alpha in zip(found["locations"], found["attention"], strict=True):
        assert place == int(np.argmax(alpha))
    drawn = [ask(address, locations="sampled", seed=k).json() for k in (1, 1, 2, 3)]
    assert drawn[0]["locations"] == drawn[1]["locations"]
    assert len({tuple(one["locations"] or ()) for one in drawn}) > 1


def test_draws_follow_their_seed_and_their_temperature(address):
    texts = [
        ask(address, method="sample", seed=seed, temperature=heat).json()["text"]
        for seed, heat in ((1, 1.5), (1, 1.5), (2, 1.5), (3, 1.5), (4, 1.5))
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    cold = ask(address, method="sample", temperature=0.1).json()
    assert cold["settings"]["temperature"] == 0.1
    scores = [cold["score"], *(o["score"] for o in cold["alternatives"])]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("content", "form", "status", "text"),
    [
        (b"no photo", {}, 415, "`photo` must be a photo"),
        (b"", {}, 415, "`photo` must be a photo"),
        (b"x" * 1_050_000, {}, 413, "at most 1 MB"),
        (b"x" * 3_000_000, {}, 413, "at most 1 MB"),
        (photo(size=(1200, 1000)), {}, 413, "at most 1 megapixels"),
        (None, {"beam": "11"}, 422, "`beam`: "),
        (None, {"beam": "0"}, 422, "`beam`: "),
        (None, {"temperature": "0"}, 422, "`temperature`: "),
        (None, {"method": "guess"}, 422, "`method`: "),
        (None, {"model": "other"}, 422, "`model` must be one of"),
    ],
)
def test_refusals_are_one_line_of_json(address, content, form, status, text):
    response = ask(address, content, **form)
    assert response.status_code == status
    assert text in response.json()["error"]


def test_a_large_body_without_a_length_is_refused_while_it_comes(address):
    boundary = b"--x\r\n" + (
        b'Content-Disposition: form-data; name="photo"; filename="p"\r\n\r\n'
    )

    def endless():
        yield boundary
        for _ in range(40):
            yield b"x" * 100_000

    response = requests.post(
        f"{address}/caption",
        data=endless(),
        headers={"Content-Type": "multipart/form-data; boundary=x"},
        timeout=60,
    )
    assert response.status_code == 413


def test_a_request_without_a_photo_is_refused(address):
    response = requests.post(f"{address}/caption", timeout=60)
    assert response.status_code == 422
    assert "`photo`" in response.json()["error"]


def test_fifty_people_get_answers_or_are_told_to_come_again(teller, monkeypatch):
    tell = teller.tell

    def slowly(image, wish):
        time.sleep(0.05)
        return tell(image, wish)

    monkeypatch.setattr(teller, "tell", slowly)
    expected = {
        seed: tell(open_upload(photo(seed), LIMITS), Wish())[0].text
        for seed in range(5)
    }
    with serving([teller], places=8) as address, ThreadPoolExecutor(50) as people:
        replies = list(people.map(lambda k: ask(address, photo(k % 5)), range(50)))
        statuses = [reply.status_code for reply in replies]
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 8
        for k, reply in enumerate(replies):
            if reply.status_code == 200:
                assert reply.json()["text"] == expected[k % 5]
            else:
                assert "busy" in reply.json()["error"]
                assert 1 <= int(reply.headers["Retry-After"]) <= 60
        assert ask(address).status_code == 200  # it goes on


def test_the_description_names_the_service_and_its_refusals(address):
    described = requests.get(f"{address}/openapi.json", timeout=60).json()
    operation = described["paths"]["/caption"]["post"]
    assert {"200", "413", "415", "422", "503"} <= operation["responses"].keys()
    assert "attention" in described["components"]["schemas"]["Answer"]["properties"]
    assert requests.get(f"{address}/docs", timeout=60).status_code == 404


def test_pages_may_load_nothing_from_elsewhere(address):
    for path in ("/", "/static/demo.js", "/static/demo.css"):
        response = requests.get(address + path, timeout=60)
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "https://" not in response.text
        assert "//cdn" not in response.text


def test_examples_are_photos_that_get_captions(address):
    content = requests.get(f"{address}/examples/0", timeout=60).content
    assert ask(address, content).status_code == 200
    assert requests.get(f"{address}/examples/1", timeout=60).status_code == 404


def test_pages_of_other_sites_cannot_reach_it_through_their_name(address):
    response = requests.get(address, headers={"Host": "evil.example"}, timeout=60)
    assert response.status_code == 400


def test_a_port_that_is_taken_is_one_line():
    with take_port("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"Received: {port} .*--port"):
            take_port("127.0.0.1", port)
