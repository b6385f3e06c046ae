"""Fields that a service does not have are refused by name."""

import pytest
import requests
from served import post

# Query, fields of the form, and what the error says.
WRONG = [
    ("", {"regoin": "1,2,30,40"}, "'regoin' is no field of this service; did you mean"),
    ("", {"Beam": 3}, "'Beam' is no field of this service; did you mean `beam`?"),
    ("?x%0Ay=3", {}, r"'x\ny' is no field of this service; remove it"),
    ("", {"beam": [1, 5]}, "`beam` is there 2 times; send it once"),
    ("?region=10,10,50,50", {}, "`region` belongs in the form, not in the address"),
    ("?beam=2", {"beam": 2}, "`beam` belongs in the form, not in the address"),
    ("?beems=2", {}, "'beems' is no field of this service; did you mean `beam`?"),
]


@pytest.mark.parametrize(("query", "form", "text"), WRONG)
def test_wrong_fields_of_a_caption_are_named(address, query, form, text):
    response = post(address, f"caption{query}", **form)
    assert response.status_code == 422
    error = response.json()["error"]
    assert text in error
    assert "\n" not in error


def test_two_photos_of_one_request_are_refused(address):
    photo = ("a.png", b"x")
    files = [("photo", photo), ("photo", photo)]
    response = requests.post(f"{address}/caption", files=files, timeout=60)
    assert response.status_code == 422
    assert response.json()["error"].startswith("`photo` is there 2 times")


def test_a_misspelt_photo_is_named(address):
    files = {"foto": ("a.png", b"x")}
    response = requests.post(f"{address}/caption", files=files, timeout=60)
    assert response.status_code == 422
    assert "'foto' is no field of this service" in response.json()["error"]


@pytest.mark.parametrize("path", ["about?beam=1", "review?form=csv"])
def test_fields_in_the_address_of_other_services_are_named(address, path):
    method = "POST" if path.startswith("review") else "GET"
    body = {"form": "csv", "captions": []}
    response = requests.request(method, f"{address}/{path}", json=body, timeout=60)
    assert response.status_code == 422
    name = path.partition("?")[2].partition("=")[0]
    assert f"'{name}' is no field" in response.json()["error"]


@pytest.mark.parametrize("path", ["", "examples/0", "static/demo.js", "api/tags"])
def test_pages_and_protocols_of_others_take_any_query(address, path):
    response = requests.get(f"{address}/{path}?v=2", timeout=60)
    assert response.status_code == 200
