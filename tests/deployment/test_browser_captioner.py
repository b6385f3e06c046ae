"""The captioner's page in a real browser: captions, ties, pixels, cache."""

import base64
import importlib.util
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from chromium import browser as start_browser
from chromium import wait_for
from pictures import image_bytes
from PIL import Image
from static_site import serving
from tiny_pipeline import rough_pixels

from data_prep.scenes.example_pictures import example_pictures
from data_prep.scenes.scenes import make_scene
from show_attend_tell.data.noun_phrases import Kind
from show_attend_tell.data.preprocessing import to_square
from show_attend_tell.inference.pipeline import load
from show_attend_tell.models.pretrained import SHIPPED
from show_attend_tell.reference.beam import Rules, beam_search
from show_attend_tell.reference.hypotheses import Hypotheses, repeated_nouns_last
from show_attend_tell.reference.reranker import load_reranker

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "captioner"
CSS = "css selector"


def hook():
    spec = importlib.util.spec_from_file_location("build", PAGE / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_page(folder):
    """Write the page as the site has it, without the site around it."""
    shutil.copytree(PAGE, folder, dirs_exist_ok=True)
    shutil.copytree(hook().SHARED, folder, dirs_exist_ok=True)
    shutil.copytree(ROOT / "docs" / "images", folder.parent / "images")
    elements = (folder / "page.html").read_text("utf-8")
    (folder / "index.html").write_text(f"<!doctype html><title>x</title>{elements}")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of the page with its models."""
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("site") / "captioner"
    write_page(folder)
    try:
        hook().write_files(folder)
    except OSError as error:
        pytest.skip(f"needs the network once: {error}")
    with serving(folder.parent) as address:
        yield f"{address}/captioner/index.html"


@pytest.fixture(scope="module")
def browser():
    with start_browser(offline=False) as started:
        started.set_script_timeout(300)
        yield started


@pytest.fixture
def page(browser, address):
    browser.get(address)
    return browser


def part(browser, name):
    return browser.find_element(CSS, f"[data-part={name}]")


def caption_of(browser, path):
    """Give the page a photo; return its sentence, or its error."""
    browser.execute_script(  # else the answer for the photo before would be read
        "for (const name of ['announced', 'error'])"
        " document.querySelector(`[data-part=${name}]`).textContent = ''"
    )
    part(browser, "file").send_keys(str(path))
    return wait_for(
        lambda: (
            part(browser, "announced").get_property("textContent")
            or part(browser, "error").text
        ),
        300,
    )


def call(browser, module, code, *arguments):
    """Run code on a module of the page, `m`; return what it returns."""
    script = (
        "const done = arguments[arguments.length - 1], a = arguments;"
        f"import('./{module}').then(async (m) => {{ {code} }}).then(done, (e) => "
        "done('error: ' + e.stack))"
    )
    return browser.execute_async_script(script, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize(
    "size",
    [
        (32, 32),
        (224, 300),
        (20, 20),
        (97, 61),
        (61, 97),
        (400, 33),
        (36, 41),
        (40, 500),
    ],
)
def test_pixels_are_those_of_pillow(page, rng, size, resize):
    image = Image.fromarray(rough_pixels(rng, size))
    rgba = base64.b64encode(image.convert("RGBA").tobytes()).decode()
    code = (
        "const data = Uint8ClampedArray.from(atob(a[0]), (c) => c.charCodeAt(0));"
        "return [...m.toSquare({data, width: a[1], height: a[2]}, 32, a[3])]"
    )
    square = call(page, "preprocessing.js", code, rgba, *size, resize)
    expected = to_square(image, 32, resize)
    np.testing.assert_array_equal(np.reshape(square, (32, 32, 3)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("beam", [1, 3, 5])
@pytest.mark.parametrize("levels", [3, 1000])
def test_the_search_finds_the_captions_of_the_reference_with_ties(page, beam, levels):
    rng, T, K = np.random.default_rng(beam), 6, 9
    # Few levels make many candidates equal.
    tables = -np.float32(rng.integers(1, levels + 1, (8, T, K, K))) / np.float32(levels)
    settings = {"beam": beam, "max_words": T, "length_normalisation": 0.7}
    rules = Rules(start_id=1, end_id=2, pad_id=0, forbidden=(0, 1, 3))
    code = """
        const captions = [];
        for (const table of a[0]) {
          let t = 0;
          const step = async (words) => {
            const rows = words.map((word) => table[t][word]);
            t += 1;
            return {
              log_probs: new Float32Array(rows.flat()), alpha: new Float32Array(words),
            };
          };
          captions.push(await m.beamSearch(step, a[1]));
        }
        return captions.map((found) => found.map(({words, logProb, score}) =>
          [words.map(({word}) => word), words.map(({alpha}) => alpha[0]),
           logProb, score]));
    """
    answers = call(page, "search.js", code, tables.tolist(), settings)
    for table, captions in zip(tables, answers, strict=True):

        def step(t, words, state, table=table):
            extras = {"alpha": np.array(words)[:, None]}
            unused = {name: np.zeros(len(words)) for name in ("beta", "locations")}
            return table[t][words], state, extras | unused

        expected = beam_search(
            step, [], rules, beam=beam, max_words=T, length_normalisation=0.7
        )
        assert len(captions) == (expected.lengths > 0).sum()
        for w, (words, alpha, log_prob, score) in enumerate(captions):
            length = expected.lengths[w]
            assert words == expected.tokens[w, :length].tolist()
            assert alpha == expected.alpha[w, :length, 0].tolist()
            assert log_prob == pytest.approx(expected.log_probs[w], abs=1e-6)
            assert score == pytest.approx(expected.scores[w], abs=1e-6)


@pytest.mark.slow
def test_captions_that_repeat_a_noun_come_last_as_in_the_reference(
    browser, tmp_path, rng
):
    write_page(tmp_path / "captioner")
    kinds = rng.integers(0, 4, 12).astype(np.int8)
    kinds[:4] = Kind.CLOSER
    tokens = rng.integers(4, 12, (300, 5, 16), np.int32)  # (B, W, T), few words
    lengths = rng.integers(1, 17, (300, 5))
    places = np.arange(16)
    tokens[places >= lengths[..., None]] = 0
    tokens[places == lengths[..., None] - 1] = 2  # the end word
    numbers = np.broadcast_to(np.arange(5.0), (300, 5))
    found = Hypotheses(tokens, lengths, *([numbers] * 7))
    expected = repeated_nouns_last(found, kinds)
    assert 50 < (expected.scores != numbers).any(axis=1).sum() < 300
    code = """
        return a[0].map((photo) => {
          const captions = photo.map((ids, k) =>
            ({k, words: ids.filter((id) => id).map((word) => ({word}))}));
          return m.repeatedNounsLast(captions, a[1]).map(({k}) => k);
        });
    """
    with serving(tmp_path) as address:
        browser.get(f"{address}/captioner/index.html")
        digits = "".join(map(str, kinds))
        order = call(browser, "search.js", code, tokens.tolist(), digits)
    np.testing.assert_array_equal(order, expected.scores)


@pytest.mark.slow
def test_the_expected_cider_equals_the_reference(page, rng):
    reranker = load_reranker(SHIPPED)
    predicted = rng.standard_normal(reranker.basis.shape[1])
    captions = [rng.integers(3, 60, length).tolist() for length in (1, 4, 9, 20)]
    captions += [list(ngram) * 2 for ngram in reranker.vectors.ngrams[-3:]]
    code = (
        "const reranker = new m.Reranker(a[0], a[1], 25);"
        "return a[3].map((words) => reranker.cider(words, a[2]))"
    )
    vectors = reranker.vectors
    arguments = vectors.ngrams, vectors.idf.tolist(), reranker.basis @ predicted
    found = call(page, "search.js", code, *map(list, arguments), captions)
    expected = reranker.expected_cider(predicted, captions)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.05


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Fifty photos and scenes."""
    folder = tmp_path_factory.mktemp("photos")
    contents = [content for _, content, _ in example_pictures(scene_net=False)[:3]]
    contents += [path.read_bytes() for path in (ROOT / "docs/images").glob("*.jpg")]
    for number in range(50 - len(contents)):
        kind = "JPEG" if number % 2 else "PNG"
        contents.append(image_bytes(make_scene("test", number)[0], kind))
    for number, content in enumerate(contents):
        (folder / f"{number:02}.jpg").write_bytes(content)
    return sorted(folder.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_captions_and_their_confidence_are_those_of_the_command(page, photos):
    sentences = set()
    captions = load(SHIPPED, engine="numpy").caption_photos(photos)
    for path, caption in zip(photos, captions, strict=True):
        assert caption_of(page, path) == caption.sentence
        word, _, number = part(page, "status").text.partition(", confidence ")
        assert word == caption.confidence_word
        assert float(number) == pytest.approx(caption.confidence, abs=0.01)
        sentences.add(caption.sentence)
    assert len(photos) == 50
    assert len(sentences) > 10


@pytest.mark.slow
def test_words_show_their_attention_by_keyboard_and_nothing_leaves_the_page(page):
    page.get_log("performance")
    assert caption_of(page, ROOT / "docs" / "images" / "sheep.jpg").endswith(".")
    words = page.find_elements(CSS, "[data-part=words] button")
    picture = "return document.querySelector('[data-part=view]').toDataURL()"
    whole = page.execute_script(picture)
    words[0].send_keys("\ue014")  # the right arrow
    assert page.execute_script(picture) != whole
    assert page.switch_to.active_element == words[1]
    assert words[1].get_attribute("aria-pressed") == "true"
    assert "percent" in words[1].get_attribute("aria-label")
    label = part(page, "view").get_attribute("aria-label")
    assert f"for the word {words[1].text}" in label
    requests = [
        json.loads(entry["message"])["message"] for entry in page.get_log("performance")
    ]
    sent = [
        r["params"]["request"] for r in requests if r["method"].endswith("WillBeSent")
    ]
    assert {request["method"] for request in sent} <= {"GET"}
    own = page.current_url.rpartition("/captioner/")[0]
    assert all(r["url"].startswith((own, "blob:", "data:")) for r in sent)


@pytest.mark.slow
def test_models_are_loaded_once_and_are_small(page, address):
    assert caption_of(page, ROOT / "docs" / "images" / "sheep.jpg")
    script = (
        "caches.open('show-attend-tell').then((cache) => cache.keys())"
        ".then((requests) => requests.map(({url}) => url.match(/[^/]*(?=[.]gz)/)[0]))"
        ".then(arguments[arguments.length - 1])"
    )
    names = set(page.execute_async_script(script))
    assert {"encoder.onnx", "decoder.onnx", "ort-wasm-simd-threaded.wasm"} <= names
    page.get(address)
    page.get_log("performance")
    assert caption_of(page, ROOT / "docs" / "images" / "sheep.jpg")
    log = "".join(entry["message"] for entry in page.get_log("performance"))
    assert ".onnx.gz" not in log
    files = call(page, "loading.js", "return (await fetch('files.json')).json()")
    assert sum(file["bytes"] for file in files.values()) <= 35_000_000


@pytest.mark.slow
def test_a_file_that_is_no_photo_gets_one_line_and_the_next_photo_a_caption(
    page, tmp_path
):
    (tmp_path / "notes.jpg").write_text("not a photo")
    error = caption_of(page, tmp_path / "notes.jpg")
    assert error.startswith("notes.jpg: not a photo")
    assert caption_of(page, ROOT / "docs" / "images" / "sheep.jpg").endswith(".")
    assert part(page, "error").text == ""


@pytest.mark.slow
def test_a_site_without_the_models_prints_one_line(browser, tmp_path):
    write_page(tmp_path / "captioner")
    with serving(tmp_path) as address:
        browser.get(f"{address}/captioner/index.html")
        error = caption_of(browser, ROOT / "docs" / "images" / "sheep.jpg")
    assert error.startswith("This copy of the site was built without")


@pytest.mark.slow
def test_a_page_from_the_disk_names_the_remedy(browser, tmp_path):
    write_page(tmp_path / "captioner")
    browser.get((tmp_path / "captioner" / "index.html").as_uri())
    assert "needs a web server" in part(browser, "offline").text
    assert not part(browser, "stage").is_displayed()


def test_a_runtime_that_cannot_be_fetched_costs_the_site_its_captioner_only(
    tmp_path, monkeypatch, caplog
):
    pytest.importorskip("onnx")
    build = hook()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "ADDRESS", (tmp_path / "absent.tgz").as_uri())
    caplog.set_level(logging.INFO)
    build.on_post_build(type("Config", (), {"site_dir": str(tmp_path / "site")}))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("The site has no captioner: file://")
    assert "\n" not in line
    assert list((tmp_path / "site" / "captioner").iterdir()) == []
    (tmp_path / "other.tgz").write_bytes(b"another package")
    monkeypatch.setattr(build, "ADDRESS", (tmp_path / "other.tgz").as_uri())
    with pytest.raises(OSError, match="another hash"):
        build.fetch_runtime()
    assert not (tmp_path / "build").exists()
