"""The service over HTTP: captions, refusals, many clients together."""

import errno
import json
import os

import numpy as np
import pytest
import requests
import tiny_transformer
from fastapi import APIRouter
from PIL import Image
from refusals import refused
from served import post as ask
from served import serving
from tiny_pipeline import photo_bytes, with_decoding

from show_attend_tell.cli import main as cli
from show_attend_tell.deployment.server.serve import take_port
from show_attend_tell.deployment.server.uploads import photo_router
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.runtime.errors import SetupError
from show_attend_tell.runtime.plugins import Tab


def test_the_response_is_the_caption_that_the_package_writes(
    address, pipeline, tmp_path
):
    (tmp_path / "p.png").write_bytes(photo_bytes())
    expected = pipeline.caption(tmp_path / "p.png")
    response = ask(address)
    assert response.status_code == 200
    found = response.json()
    assert found["text"] == expected.text
    assert found["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)
    assert np.shape(found["attention"]) == expected.attention.shape
    assert [o["text"] for o in found["alternatives"]] == [
        o.text for o in expected.alternatives
    ]
    assert (found["photo"], found["model"]) == ("p.png", "Tiny")
    assert found["settings"] == {"method": "beam", "beam": 3, "locations": "expected"}


@pytest.fixture
def rotated_photo(tmp_path):
    """A JPEG whose EXIF orientation turns it."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.jpg"
    path.write_bytes(photo_bytes(3, "JPEG", exif=exif))
    return path


def test_post_and_the_verb_give_the_same_caption_for_the_same_seed(
    address, pipeline, rotated_photo, capsys, monkeypatch
):
    monkeypatch.setattr(
        "show_attend_tell.inference.pipeline.load",
        lambda model, weights, mirror=None, reranker=None, **_: pipeline,
    )
    content = rotated_photo.read_bytes()
    found = set()
    for seed in ({"seed": 4}, {"seed": 6}, {}):
        options = [str(x) for key, value in seed.items() for x in (f"--{key}", value)]
        options += ["--locations", "sampled", "--model", str(pipeline.file)]
        cli.main(["caption", "--json", *options, str(rotated_photo)])
        printed = json.loads(capsys.readouterr().out)
        posted = ask(address, content=content, locations="sampled", **seed).json()
        for key in ("text", "words", "locations", "attention", "log_prob"):
            assert posted[key] == printed.get(key)
        found.add(str(posted["locations"]))
    assert len(found) > 1


def test_the_models_own_decoding_is_the_default(
    pipeline, rotated_photo, eager_searches
):
    own = {"method": "sample", "temperature": 1.5, "seed": 3}
    model = with_decoding(pipeline, **own)
    content = rotated_photo.read_bytes()
    with serving({"own": model}) as address:
        found = ask(address, content=content).json()
        about = requests.get(f"{address}/about", timeout=60).json()
        greedy = ask(address, content=content, beam=1).json()
    assert found["text"] == model.caption(rotated_photo).text
    assert found["settings"] == own | {"locations": "expected"}
    (info,) = about["models"]
    assert info["selects_locations"] is True
    assert {key: info[key] for key in own} == own
    assert greedy["settings"] == {"method": "beam", "beam": 1, "locations": "expected"}
    assert greedy["text"] == model.caption(rotated_photo, beam=1).text


def test_a_request_has_one_set_of_decoding_settings(address, pipeline, monkeypatch):
    asked, decoding = [], pipeline.decoding

    def counted(request=None):
        asked.append(request)
        return decoding(request)

    monkeypatch.setattr(pipeline, "decoding", counted)
    assert ask(address, locations="sampled", seed=4).ok
    assert len(asked) == 1


def test_a_transformer_selects_no_locations_and_the_mean_no_region(pipeline, rng):
    captioner = tiny_transformer.build(rng, model={"attention": "mean"})
    transformer = CaptioningPipeline(captioner.generator, pipeline.encoder)
    with serving({"t": transformer}) as address:
        (info,) = requests.get(f"{address}/about", timeout=60).json()["models"]
        refused = ask(address, locations="sampled")
        region = ask(address, region="0,0,10,10")
    assert region.status_code == 422
    assert region.json()["error"].startswith("`region` needs a model with attention")
    assert info["selects_locations"] is False
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("`locations` must be 'expected'")


def test_a_models_own_beam_may_be_wider_than_the_limit(pipeline):
    with serving({"own": with_decoding(pipeline, beam=12)}) as address:
        about = requests.get(f"{address}/about", timeout=60).json()
        assert about["max_beam"] == about["models"][0]["beam"] == 12
        assert ask(address, beam=13).status_code == 422


def test_seen_is_the_region_that_the_network_sees(address):
    x0, y0, x1, y1 = ask(address).json()["seen"]  # 96 x 72, the centre is cropped
    assert x0 == pytest.approx(1 - x1, abs=0.03)
    assert (x1 - x0) * 96 == pytest.approx((y1 - y0) * 72, rel=0.05)
    assert 0 < x0 < x1 < 1


def test_samples_follow_their_seed_and_their_temperature(address):
    texts = [
        ask(address, method="sample", seed=seed, temperature=heat).json()["text"]
        for seed, heat in ((1, 1.5), (1, 1.5), (2, 1.5), (3, 1.5), (4, 1.5))
    ]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    refused = ask(address, temperature=1.5)
    assert refused.status_code == 422
    assert "`temperature` needs method = 'sample'" in refused.text
    hot = ask(address, method="sample", temperature=1.5).json()
    assert hot["settings"]["temperature"] == 1.5
    scores = [other["score"] for other in hot["alternatives"]]
    assert scores == sorted(scores, reverse=True)
    assert len({hot["text"], *(o["text"] for o in hot["alternatives"])}) > 2


@pytest.mark.parametrize(
    ("content", "form", "status", "text"),
    [
        (b"no photo", {}, 415, "`photo` must be a photo"),
        (b"", {}, 415, "`photo` must be a photo"),
        (b"x" * 1_050_000, {}, 413, "at most 1 MB"),
        (b"x" * 3_000_000, {}, 413, "at most 1 MB"),
        (photo_bytes(size=(1200, 1000)), {}, 413, "at most 1 megapixels"),
        (None, {"beam": "11"}, 422, "`beam`: "),
        (None, {"beam": "0"}, 422, "`beam`: "),
        (None, {"temperature": "0"}, 422, "`temperature`: "),
        (None, {"method": "guess"}, 422, "`method`: "),
        (None, {"model": "other"}, 422, "`model` must be one of"),
        (None, {"region": "1,2,3"}, 422, "four numbers"),
        (None, {"region": "a"}, 422, "four numbers"),
        (None, {"region": "0,0,97,10"}, 422, "inside the photo, 0,0,96,72"),
        (None, {"region": "9,9,9,20"}, 422, "x0 < x1"),
        (None, {"region": "0,0,1,72"}, 422, "overlap"),  # cropped away
        (None, {"region": "1," * 200}, 422, "200 characters"),
    ],
)
def test_refusals_are_one_line_of_json(address, content, form, status, text):
    response = ask(address, content=content, **form)
    assert response.status_code == status
    error = response.json()["error"]
    assert text in error
    assert "\n" not in error
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


@pytest.mark.parametrize("charset", ["utf-7", "raw_unicode_escape"])
def test_a_name_that_is_no_text_is_answered(address, charset):
    name = {"utf-7": b"+2AA-.png", "raw_unicode_escape": b"\\ud800.png"}[charset]
    head = b'Content-Disposition: form-data; name="photo"; filename="' + name
    body = b"--x\r\n" + head + b'"\r\n\r\n' + photo_bytes() + b"\r\n--x--\r\n"
    response = requests.post(
        f"{address}/caption",
        data=body,
        headers={"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"},
        timeout=60,
    )
    assert response.status_code == 200
    assert response.json()["photo"] == "?.png"


def test_a_large_body_without_a_length_is_refused_while_it_is_read(address):
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


def test_the_openapi_document_names_the_service_and_its_refusals(address):
    described = requests.get(f"{address}/openapi.json", timeout=60).json()
    operation = described["paths"]["/caption"]["post"]
    assert {"200", "413", "415", "422", "503"} <= operation["responses"].keys()
    assert "`attention`" in operation["description"]
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
    assert ask(address, content=content).status_code == 200
    assert requests.get(f"{address}/examples/1", timeout=60).status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost:80:80", "[::1]:x"]
)
def test_requests_for_other_host_names_are_refused_as_json(address, host):
    response = requests.get(address, headers={"Host": host}, timeout=60)
    assert response.status_code == 400
    assert response.json() == {
        "error": "`Host` must be one of 127.0.0.1, localhost, [::1]. "
        f"Received: {host!r}; call the server by one of these names"
    }


@pytest.mark.parametrize("host", ["LOCALHOST", "127.0.0.1:8000", "[::1]", "[::1]:80"])
def test_requests_for_this_machine_are_answered_with_any_port(address, host):
    response = requests.get(f"{address}/about", headers={"Host": host}, timeout=60)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("form", "received"), [({"photo": "hello"}, "text"), ({"beam": 3}, "nothing")]
)
def test_a_photo_that_is_no_file_is_refused_with_the_remedy(address, form, received):
    response = requests.post(f"{address}/caption", data=form, timeout=60)
    assert response.status_code == 422
    assert response.json() == {
        "error": f"`photo` must be a file of a form. Received: {received}; send it as "
        "-F photo=@FILE of curl does"
    }


def test_a_value_of_another_type_is_named(address):
    response = ask(address, beam="wide")
    assert response.status_code == 422
    error = response.json()["error"]
    assert error.startswith("`beam`: Input should be a valid integer")
    assert error.endswith("Received: 'wide'")


def test_a_port_in_use_and_a_host_that_is_no_name_are_refused_in_one_line():
    with take_port("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with refused(SetupError) as caught:
            take_port("127.0.0.1", port)
        assert str(caught.value) == (
            f"`port` must be free on 127.0.0.1. Received: {port} "
            f"({os.strerror(errno.EADDRINUSE)}); choose another with --port"
        )
        host = "a" * 64
        with refused(SetupError, f"`host` must be .* Received: '{host}' .*--host"):
            take_port(host, port)


def test_the_field_region_gives_the_caption_of_the_region(address, pipeline, tmp_path):
    (tmp_path / "p.png").write_bytes(photo_bytes())  # 96 x 72 pixels
    expected = pipeline.caption(tmp_path / "p.png", region=(20, 16, 50, 60))
    found = ask(address, region="20,16,50,60").json()
    assert found["text"] == expected.text
    np.testing.assert_allclose(found["attention"], expected.attention, atol=1e-5)
    np.testing.assert_allclose(found["region"], expected.region, atol=1e-6)
    for none in ({}, {"region": ""}):
        assert ask(address, **none).json()["region"] is None


def broken_router(queue):
    raise RuntimeError("two\nlines")


def no_router(queue):
    return APIRouter()


def test_a_tab_that_cannot_be_opened_is_left_out_with_one_line(
    pipeline, tmp_path, caplog
):
    (tmp_path / "tab.html").write_text("<p>here</p>")
    good, broken, empty = (
        Tab(name, "A < B", "", folder, router)
        for name, folder, router in (
            ("good", tmp_path, no_router),
            ("broken", tmp_path, broken_router),
            ("empty", tmp_path / "absent", no_router),
        )
    )
    with serving({"t": pipeline}, tabs=(broken, empty, good)) as address:
        assert requests.get(f"{address}/about", timeout=60).json()["tabs"] == ["good"]
        page = requests.get(address, timeout=60).text
        static = requests.get(f"{address}/static/good/tab.html", timeout=60)
    assert "<p>here</p></main>" in page
    assert ">A &lt; B</button>" in page
    assert "broken" not in page
    assert static.text == "<p>here</p>"
    messages = [m for m in caplog.messages if "left out" in m]
    assert messages[0] == "the tab 'broken' is left out: two lines"
    assert messages[1].startswith("the tab 'empty' is left out: ")


def test_a_tab_whose_service_is_taken_is_left_out_with_one_line(
    pipeline, tmp_path, caplog
):
    (tmp_path / "tab.html").write_text("")

    def tab(name, path):
        def router(queue):
            return photo_router(queue, path, lambda photo: {"tab": name})

        return Tab(name, name, "", tmp_path, router)

    paths = {"a": "/caption", "b": "/about", "c": "/mine", "d": "/mine"}
    tabs = [tab(name, path) for name, path in paths.items()]
    with serving({"t": pipeline}, tabs=tabs) as address:
        assert requests.get(f"{address}/about", timeout=60).json()["tabs"] == ["c"]
        assert "text" in ask(address).json()
        assert ask(address, "mine").json() == {"tab": "c"}
    assert [m for m in caplog.messages if "left out" in m] == [
        f"the tab {name!r} is left out: the service {paths[name]!r} is taken; choose "
        "another path"
        for name in "abd"
    ]
