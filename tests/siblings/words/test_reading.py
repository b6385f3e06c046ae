"""The verb ``read``: files, folders, bad crops, lexicons, figures, and resuming."""

import functools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from shell import exit_code
from tiny_reader import drawn_words, random_reader, settings_of

from show_attend_tell.inference.photos import Failure
from show_attend_tell.runtime.errors import CaptionError, DataError
from show_attend_tell.siblings.words import reading
from show_attend_tell.siblings.words.data import encode_words
from show_attend_tell.siblings.words.generation import Lexicon, Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.reading import (
    best_readings,
    read_files,
    read_into_file,
)

pytestmark = pytest.mark.usefixtures("eager_models")

CROPS, WORDS = drawn_words(4)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "reader.safetensors"
    random_reader().save(path)
    return path


@pytest.fixture(scope="module")
def search(model_file):
    return Searcher(READERS.load(model_file), batch=3)


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "crops" / "more"
    inside.mkdir(parents=True)
    for number, crop in enumerate(CROPS):
        where = inside if number == 3 else inside.parent
        Image.fromarray(crop).save(where / f"{number}.png")
    return inside.parent


def test_words_are_printed_with_their_probability(model_file, search, folder, capsys):
    assert exit_code("read", folder, "--model", model_file) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, one in zip(lines, best_readings(search, CROPS), strict=True):
        assert line.endswith(f": {one.word} (p {one.probability:.3f})")


def test_bad_crops_are_one_line_each_and_the_others_are_read(
    model_file, folder, capsys
):
    Image.new("L", (50, 20), 128).save(folder / "empty.png")
    (folder / "text.png").write_text("no picture")
    assert exit_code("read", folder, folder / "absent", "--model", model_file) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 4
    errors = printed.err.splitlines()
    assert sum("empty.png: an empty crop" in line for line in errors) == 1
    assert sum("text.png: " in line for line in errors) == 1
    assert errors[-1] == "3 crops not read"
    out = folder.parent / "words.jsonl"
    assert exit_code("read", folder, "--model", model_file, "--out", out) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{out}: 4 words written, 2 crops skipped\n"
    assert "an empty crop" in printed.err


def test_a_file_of_words_is_resumed(model_file, search, folder, tmp_path, capsys):
    out = tmp_path / "words.jsonl"
    whole = read_into_file(search, model_file, [folder], out)
    assert whole.summary() == f"{out}: 4 words written"
    complete = out.read_bytes()
    rows = [json.loads(line) for line in complete.splitlines()]
    fields = {"path", "word", "log_prob", "made_by", "photo"}
    assert [set(row) for row in rows] == [fields] * 4
    out.write_bytes(complete[: complete.index(b"\n") + 20])
    again = read_into_file(search, model_file, [folder], out)
    assert again.summary() == f"{out}: 3 words written, 1 already present"
    resumed = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["word"] for row in resumed] == [row["word"] for row in rows]
    listed = Searcher(search.model, lexicon=Lexicon(["a"]))
    with pytest.raises(CaptionError, match="its words were made by"):
        read_into_file(listed, model_file, [folder], out)
    assert exit_code("read", folder, "--model", model_file, "--out", "a.csv") == 2
    assert "`out` must end in .jsonl" in capsys.readouterr().err


def test_a_page_in_place_of_a_crop_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert exit_code("read", "--html", "a.jpg", "b.jpg") == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "must end in .html. Received: a.jpg" in err
    assert list(tmp_path.iterdir()) == []


def test_a_beam_beyond_the_memory_of_a_machine_is_refused(model_file, folder):
    assert exit_code("read", folder, "--model", model_file, "--beam", "101") == 2


def test_a_crop_that_is_replaced_while_it_is_read_is_read_again(
    model_file, search, folder, tmp_path, monkeypatch
):
    out = tmp_path / "words.jsonl"
    crop = next(folder.rglob("*.png"))
    other = next(path for path in folder.rglob("*.png") if path != crop)

    def replace(*arguments):
        crop.write_bytes(other.read_bytes())  # it was read before
        return best_readings(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(reading, "best_readings", replace)
        first = read_into_file(search, model_file, [folder], out)
    again = read_into_file(search, model_file, [folder], out)
    assert (again.written, again.present) == (1, first.written - 1)


def test_a_crop_that_was_replaced_by_a_damaged_one_loses_its_word(
    model_file, search, folder, tmp_path
):
    out = tmp_path / "words.jsonl"
    read_into_file(search, model_file, [folder], out)
    (folder / "0.png").write_bytes(b"no picture")
    again = read_into_file(search, model_file, [folder], out)
    assert again.summary() == (
        f"{out}: 0 words written, 3 already present, 1 crop skipped, 1 row of crops "
        "replaced since removed"
    )
    assert "0.png" not in out.read_text()


@pytest.mark.nightly
def test_a_page_and_figures_show_every_word_that_was_read(
    model_file, search, folder, tmp_path, capsys
):
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    options = ["--html", page, "--attention", figures]
    assert exit_code("read", folder, "--model", model_file, *options) == 0
    error = capsys.readouterr().err
    assert f"page: {page}" in error.splitlines()
    assert "figure: " in error
    assert {path.name for path in figures.iterdir()} == {f"{k}.png" for k in range(4)}
    text = page.read_text(encoding="utf-8")
    for one in best_readings(search, CROPS):
        assert f'"text": "{one.word}"' in text


@pytest.mark.parametrize("option", ["attention", "html"])
def test_attention_of_a_model_without_places_is_an_error(
    folder, tmp_path, capsys, option
):
    path = tmp_path / "features.safetensors"
    Reader(settings_of({"decoder": "rnn1"})).save(path)
    target = tmp_path / ("f.html" if option == "html" else "f")
    arguments = (folder, "--model", path, f"--{option}", target)
    assert exit_code("read", *arguments) == 1
    assert f"`{option}` needs a model that attends to places" in capsys.readouterr().err


def test_results_keep_the_order_of_the_files(search, folder):
    found = [folder / "1.png", Failure(folder, ""), folder / "0.png", folder / "2.png"]
    results = list(read_files(search, found))
    assert [one.path for one in results] == [found[0], folder, *found[2:]]


def test_the_model_in_the_package_is_the_default(folder, capsys):
    assert exit_code("read", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(word in line for word, line in zip(WORDS, lines, strict=True)) >= 2


# --- lexicons ---


def test_a_lexicon_gives_its_nearest_word_and_breaks_ties_by_probability(search):
    def read(words, crops):
        return best_readings(
            Searcher(search.model, batch=3, lexicon=Lexicon(words)), crops
        )

    plain = best_readings(search, CROPS)
    listed = read([one.word for one in plain], CROPS)
    for one, other in zip(plain, listed, strict=True):
        assert other.word == one.word
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-3)
    word = plain[0].word
    ties = [word[:-1] + character for character in "abcd12" if character != word[-1]]
    (found,) = read(ties, CROPS[:1])
    log_probs = search.log_probs(CROPS[0], encode_words(ties))
    assert found.word == ties[int(log_probs.argmax())]
    assert found.log_prob == pytest.approx(float(log_probs.max()), abs=1e-4)
    assert np.ptp(log_probs) > 1e-3


def test_a_lexicon_has_each_word_once(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Hotel\nhostel\n\nHOTEL\nmotel\n")
    assert Lexicon.load(path).words == ("hotel", "hostel", "motel")
    for words in ([], ["new york"]):
        with pytest.raises(DataError):
            Lexicon(words)


@functools.cache
def recursive(a, b):
    """Return the Levenshtein distance by its definition."""
    if not a or not b:
        return len(a) + len(b)
    replaced = recursive(a[1:], b[1:]) + (a[0] != b[0])
    return min(replaced, 1 + recursive(a[1:], b), 1 + recursive(a, b[1:]))


WORD = st.text("ab1", min_size=1, max_size=8)


@given(st.text("ab1", max_size=8), st.lists(WORD, min_size=1, max_size=5, unique=True))
def test_the_nearest_words_have_the_least_distance(word, others):
    distances = [recursive(word, other) for other in others]
    pairs = zip(others, distances, strict=True)
    wanted = [other for other, distance in pairs if distance == min(distances)]
    assert Lexicon(others).nearest(word) == wanted
