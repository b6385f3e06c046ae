"""The user's crops: a table of files and words, its alphabet, and its faults."""

import dataclasses

import numpy as np
import pytest
import tiny_reader
from data_prep_files import make_csv, make_file, make_zip
from pictures import image_bytes
from PIL import Image
from refusals import refused
from tiny_reader import crop_bytes, drawn_crop, random_reader

from data_prep.preparation import Problem
from data_prep.prepare import prepare
from show_attend_tell.cli.main import main
from show_attend_tell.config import runs
from show_attend_tell.config.settings import experiment_to_toml
from show_attend_tell.runtime.errors import DataError, ModelFileError
from show_attend_tell.siblings.common.training import SiblingTask
from show_attend_tell.siblings.words import evaluation
from show_attend_tell.siblings.words.data import (
    CHARACTERS,
    END,
    decode,
    encode_words,
    read_split,
)
from show_attend_tell.siblings.words.generation import Lexicon, Searcher
from show_attend_tell.siblings.words.model import Reader
from show_attend_tell.siblings.words.models import READERS
from show_attend_tell.siblings.words.training import ReadTask, train

WORDS = ["été", "Forêt", "12.5", "a-b", "stop", "straße", "ночь", "東京"]
ALPHABET = "-.125abefoprstßéêночь京東"


def experiment(**data):
    return tiny_reader.experiment(
        data={"source": "word_table", "name": "own", **data},
        training={"epochs": 1, "batch_size": 2},
    )


def make_folder(folder, words=WORDS, splits=None):
    """Write a crop of each word and their table."""
    rows = [["file", "word"] + (["split"] if splits else [])]
    for number, word in enumerate(words):
        name = f"crops/{number}.png"
        make_file(folder / name, crop_bytes(word))
        rows.append([name, word] + ([splits[number]] if splits else []))
    make_csv(folder / "words.csv", rows)
    return folder


def test_the_words_of_a_table_decide_the_alphabet(tmp_path):
    report = prepare(experiment(), make_folder(tmp_path / "data"), tmp_path)
    assert sum(count["words"] for count in report.counts.values()) == len(WORDS)
    data = read_split(experiment(), tmp_path, "all")
    assert sorted(data.words) == sorted(word.lower() for word in WORDS)
    assert data.characters == ALPHABET
    assert f"alphabet: {len(ALPHABET)} characters, -.125" in "\n".join(report.lines())
    row = data.words.index("forêt")
    np.testing.assert_array_equal(data.images[row], drawn_crop("Forêt"))
    tokens = encode_words(data.words, data.characters)
    assert [decode(row, data.characters) for row in tokens] == data.words
    # Each of the two splits that a training needs has a crop.
    for count in (2, 3):
        folder = make_folder(tmp_path / f"data-{count}", WORDS[:count])
        report = prepare(experiment(name=f"of-{count}"), folder, tmp_path)
        assert {"train", "val"} <= report.counts.keys()


def test_a_crop_that_a_table_names_in_two_ways_is_one_word(tmp_path):
    folder = make_folder(tmp_path / "data", WORDS[:3], ["train", "val", "test"])
    with (folder / "words.csv").open("a") as table:
        table.write("0.png,one,test\n")  # crops/0.png, which trains
    report = prepare(experiment(), folder, tmp_path)
    assert report.counts == {split: {"words": 1} for split in ("train", "val", "test")}
    assert report.problems.names(Problem.DUPLICATE_ID) == ["0.png"]


def test_splits_archives_and_other_names_of_columns_are_read(tmp_path):
    crops = {f"{word}.png": crop_bytes(word) for word in ("one", "two", "six")}
    make_zip(tmp_path / "data" / "crops.zip", crops)
    rows = [["filename", "text", "split"]]
    rows += [["one.png", "one", "training"], ["two.png", "two", "validation"]]
    make_csv(tmp_path / "data" / "my-labels.csv", [*rows, ["six.png", "six", "test"]])
    report = prepare(experiment(), tmp_path / "data", tmp_path)
    assert report.counts == {split: {"words": 1} for split in ("train", "val", "test")}
    assert read_split(experiment(), tmp_path, "test").words == ["six"]


def test_crops_with_problems_are_skipped_and_named(tmp_path):
    folder = make_folder(tmp_path / "data", ["ab", "cd", "ef", "gh"])
    make_file(folder / "text.png", "no picture")
    make_file(folder / "unlisted.png", crop_bytes("x"))
    with (folder / "words.csv").open("a", encoding="utf-8") as table:
        table.write("absent.png,gone\ntext.png,text\ncrops/0.png,again\n")
        table.write(f"crops/1.png,\ncrops/8.png,two words\ncrops/9.png,{'x' * 24}\n")
    report = prepare(experiment(), folder, tmp_path)
    text = "\n".join(report.lines())
    for expected in (
        "missing crop: 1 (absent.png)",
        "crop that cannot be read: 1 (text.png)",
        "duplicate id: 2 (crops/0.png, crops/1.png)",
        "too many of them: 2 (crops/8.png two words",
        "crop without a word: 1 (unlisted.png)",
    ):
        assert expected in text
    assert read_split(experiment(), tmp_path, "all").characters == "abcdefgh"
    before = (tmp_path / "own" / "words.jsonl").read_bytes()
    with refused(DataError, "refused because of 7 problems"):
        prepare(experiment(), folder, tmp_path, on_problem="refuse")
    assert (tmp_path / "own" / "words.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "must contain words.csv with the columns file and word. Received: none"),
        ({"a.csv": "file,word\n", "b.csv": "file,word\n"}, "a.csv, b.csv; keep one"),
        ({"words.csv": "file,price\na.png,1\n"}, "columns `file` .*`word` and"),
        (
            {"words.csv": "file,word\na.png,a\n"},
            "none in the split 'train'; skipped",
        ),
        ({"words.csv": "file,word\n"}, "none in the split 'train'; add crops"),
        (
            {"words.csv": "file,word\na.png,a\n", "a.png": crop_bytes("a")},
            "none in the split",
        ),
        (
            {"words.csv": "file,word,split\na.png,a,train\n", "a.png": crop_bytes("a")},
            "to validate with. Received: none in the split 'val'; add crops",
        ),
    ],
)
def test_a_folder_without_words_is_refused_in_one_line(tmp_path, files, message):
    (tmp_path / "data").mkdir()
    for name, content in files.items():
        make_file(tmp_path / "data" / name, content)
    with refused(DataError, message):
        prepare(experiment(), tmp_path / "data", tmp_path)
    assert not (tmp_path / "own" / "words.jsonl").exists()


def test_keys_of_other_sources_are_refused():
    for key, value in (("count", 5), ("validation", 3), ("fonts", "a")):
        with refused(ValueError, f"{key} must go with source = 'words'"):
            experiment(**{key: value})


# --- models of an alphabet ---


@pytest.mark.nightly
@pytest.mark.usefixtures("eager_models")
def test_a_reader_keeps_its_alphabet_in_its_file(tmp_path):
    settings = random_reader().settings
    for characters in (CHARACTERS, "0123", "éa東"):
        model = Reader(settings, characters=characters)
        model.save(tmp_path / "model.safetensors")
        loaded = READERS.load(tmp_path / "model.safetensors")
        assert loaded.characters == characters
        found = Searcher(loaded)(np.zeros((1, 32, 100), np.uint8))
        assert found.tokens.max() < len(characters) + 3
    assert Lexicon(["É"], "éa東").words == ("é",)
    with refused(DataError, "must have the characters 'éa東' only. Received: 'b'"):
        Lexicon(["b"], "éa東")
    for characters in ("", "aa", "A", "a b"):
        Reader(settings, characters=characters).save(tmp_path / "bad.safetensors")
        with refused(ModelFileError, "bad.safetensors: "):
            READERS.load(tmp_path / "bad.safetensors")


def test_an_initial_reader_learns_further_characters(tmp_path):
    prepare(experiment(), make_folder(tmp_path / "data"), tmp_path)
    initial = Reader(experiment().reader, seed=9)
    initial.save(tmp_path / "initial.safetensors")
    training = dataclasses.replace(
        experiment().training, init_from=str(tmp_path / "initial.safetensors")
    )
    own = dataclasses.replace(experiment(), training=training)
    task = ReadTask.open(own, tmp_path, tmp_path)
    model = task.model
    assert model.characters[:36] == CHARACTERS
    assert sorted(model.characters[36:]) == sorted(set(ALPHABET) - set(CHARACTERS))
    K = 39
    np.testing.assert_array_equal(
        model.decoder.embedding[:K], initial.decoder.embedding
    )
    np.testing.assert_array_equal(
        model.decoder.output_kernel[:, :K], initial.decoder.output_kernel
    )
    np.testing.assert_array_equal(model.decoder.w_a, initial.decoder.w_a)
    assert np.abs(model.decoder.embedding[K:]).min() > 0
    assert task.targets.max() == len(model.characters) + 2
    assert [decode(row, model.characters) for row in task.targets] == task.data.words
    wider = dataclasses.replace(
        own, reader=dataclasses.replace(own.reader, embedding_width=9)
    )
    with refused(ModelFileError, "weights of other shapes"):
        ReadTask.open(wider, tmp_path, tmp_path)


def test_a_word_outside_of_the_alphabet_of_a_model_is_named(tmp_path):
    prepare(experiment(), make_folder(tmp_path / "data", ["ab", "née"]), tmp_path)
    folder = tmp_path / "runs" / "tiny"
    folder.mkdir(parents=True)
    Reader(experiment().reader).save(folder / runs.MODEL)
    (folder / runs.SETTINGS).write_text(experiment_to_toml(experiment()))
    message = "the word 'née' has 'é', which is not in the alphabet of .*0-9, a-z"
    with refused(DataError, message):
        evaluation.evaluate(experiment(), tmp_path, tmp_path / "runs", split="all")
    assert not list(folder.glob("scores*"))


@pytest.mark.nightly
def test_own_words_are_trained_measured_and_read(tmp_path, capsys):
    splits = ["train", "train", "val", "train", "train", "train", "train", "test"]
    prepare(experiment(), make_folder(tmp_path / "data", splits=splits), tmp_path)
    done = train(experiment(), tmp_path, tmp_path / "runs", progress=False)
    report = evaluation.evaluate(experiment(), tmp_path, tmp_path / "runs")
    assert report.scores["words"] == 1
    crop = tmp_path / "crop.png"
    crop.write_bytes(image_bytes(Image.fromarray(drawn_crop("été"))))
    main(["read", str(crop), "--model", str(done.model)])
    assert f"{crop}: " in capsys.readouterr().out


def test_the_training_data_of_other_siblings_stay_as_they_are():
    data = object()
    assert SiblingTask.fit_data(data, None) is data
    assert END == 2
