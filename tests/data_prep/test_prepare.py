"""Test the preparation of manifest and vocabulary."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest
from data_prep_files import (
    JPEG,
    an_experiment,
    coco_json,
    make_csv,
    make_file,
    make_flickr8k,
    make_zip,
)
from PIL import Image
from refusals import refused

from data_prep.preparation import Problems
from data_prep.prepare import SOURCES, prepare
from data_prep.scenes.scenes import SIDE
from show_attend_tell.config.experiments import limit_experiment
from show_attend_tell.config.settings import DataSettings
from show_attend_tell.data import manifest
from show_attend_tell.data.splits import load_vocabulary, read_photos, vocabulary_path
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.runtime.errors import DataError
from show_attend_tell.runtime.files import locked

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"

FLICKR8K = {
    **{"dog.jpg": "train", "cat.jpg": "train", "hen.jpg": "val"},
    **{"cow.jpg": "test", "pig.jpg": "none"},
}
COVERAGE = "vocabulary: {} words cover {} of the words of the training captions"


def photos_of(report):
    return {split: counts["photos"] for split, counts in report.counts.items()}


@pytest.fixture
def prepare_flickr8k(tmp_path):
    """Return a function that writes a tiny Flickr8k and prepares it."""

    def run(packed=False, texts=(), on_problem="skip", limit=None, **settings):
        data = make_flickr8k(tmp_path / "data", packed, **dict(texts))
        experiment = an_experiment("flickr8k", **settings)
        return prepare(experiment, data, tmp_path / "work", on_problem, limit=limit)

    return run


def files_below(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("packed", [True, False])
def test_flickr8k_becomes_a_manifest_and_a_vocabulary(
    prepare_flickr8k, tmp_path, packed
):
    report = prepare_flickr8k(packed)
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert report.folder == tmp_path / "work" / "tiny"
    assert {photo.id: photo.split for photo in photos} == FLICKR8K
    assert photos_of(report) == {"train": 2, "val": 1, "test": 1, "none": 1}
    assert report.counts["train"] == {"photos": 2, "captions": 4}
    assert photos[0].captions == ("A cat runs .", "A cat runs .")
    place = report.folder / "photos" if packed else tmp_path / "data"
    assert all(photo.path.is_relative_to(place) for photo in photos)
    assert all(photo.path.read_bytes() == JPEG for photo in photos)
    assert not (report.folder / "problems.txt").exists()
    words = Vocabulary.load(report.folder / "vocabulary.json").words
    assert words[4:] == ("a", "runs", "cat", "dog")  # of the training split only
    assert report.facts == [COVERAGE.format("4", "100.00%")]
    before = files_below(report.folder)
    prepare_flickr8k(packed)
    assert files_below(report.folder) == before


@pytest.mark.parametrize("packed", [True, False])
def test_a_limit_keeps_the_first_photos_of_each_split(prepare_flickr8k, packed):
    every = prepare_flickr8k(packed, name="all").folder
    report = prepare_flickr8k(packed, limit=1)
    assert photos_of(report) == {"train": 1, "val": 1, "test": 1, "none": 1}
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert all(photo.path.read_bytes() == JPEG for photo in photos)
    firsts = {}
    for photo in manifest.read_manifest(every / "manifest.jsonl"):
        firsts.setdefault(photo.split, photo.id)
    assert {photo.split: photo.id for photo in photos} == firsts
    if packed:  # photos beyond the limit are not unpacked
        assert len(list((report.folder / "photos").iterdir())) == len(photos)


def test_a_preparation_that_fails_leaves_no_folder(tmp_path):
    work = tmp_path / "work"
    with refused(DataError):
        prepare(an_experiment("flickr8k"), tmp_path / "absent", work)
    assert not work.exists()
    (work / "tiny").mkdir(parents=True)
    (work / "tiny" / "notes").touch()
    with refused(DataError):
        prepare(an_experiment("flickr8k"), tmp_path / "absent", work)
    assert [file.name for file in (work / "tiny").iterdir()] == ["notes"]


def test_a_preparation_that_fails_leaves_the_empty_folder_of_the_user(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    with refused(DataError):
        prepare(an_experiment("flickr8k"), tmp_path / "absent", work)
    assert list(work.iterdir()) == []


def test_a_limited_set_without_a_data_folder_is_a_part_of_the_prepared_one(
    prepare_flickr8k, tmp_path
):
    prepare_flickr8k(packed=True)
    limited = limit_experiment(an_experiment("flickr8k"), 1)
    report = prepare(limited, None, tmp_path / "work", limit=1)
    assert photos_of(report) == {"test": 1, "train": 1, "val": 1, "none": 1}
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert {photo.path.parent for photo in photos} == {tmp_path / "work/tiny/photos"}
    other = limit_experiment(an_experiment("flickr8k", name="other"), 1)
    with refused(DataError, "pass the folder with --data"):
        prepare(other, None, tmp_path / "work", limit=1)


def test_a_limit_holds_for_further_sets_too(prepare_flickr8k, tmp_path):
    work = tmp_path / "work"
    prepare_flickr8k()
    prepare_flickr8k(name="more")
    both = limit_experiment(an_experiment("flickr8k", also={"more": 0.5}), 1)
    more = limit_experiment(an_experiment("flickr8k", name="more"), 1)
    assert both.data.also == {"more-first-1": 0.5}
    message = (
        r"more-first-1/manifest\.jsonl: no such manifest; prepare the data set 'more' "
        r"first, by `prepare --set data.name=more --set data.also=\{\} --limit 1`"
    )
    with refused(DataError, message):
        prepare(both, None, work, limit=1)
    assert not (work / "tiny-first-1").exists()
    prepare(more, None, work, limit=1)
    report = prepare(both, None, work, limit=1)
    words = Vocabulary.load(report.folder / "vocabulary+more-first-1.json").words
    assert words[4:] == ("a", "cat", "runs")
    assert [
        photo.id for photo in read_photos(both, work) if photo.split == "train"
    ] == [
        "cat.jpg",
        "more-first-1/cat.jpg",
    ]


def test_the_vocabulary_with_punctuation_is_a_file_of_its_own(
    prepare_flickr8k, tmp_path
):
    prepare_flickr8k()
    folder = prepare_flickr8k(punctuation="keep").folder
    words = Vocabulary.load(folder / "vocabulary-keep.json").words
    assert sorted(words[4:]) == sorted([".", "a", "runs", "cat", "dog"])
    assert "." not in Vocabulary.load(folder / "vocabulary.json").words
    kept = an_experiment("flickr8k", punctuation="keep")
    assert vocabulary_path(kept, tmp_path / "work").name == "vocabulary-keep.json"


def test_vocabularies_of_other_captions_are_removed(prepare_flickr8k, tmp_path):
    other = tmp_path / "work" / "other"
    other.mkdir(parents=True)
    beside = [other / f"vocabulary{sets}.json" for sets in ("+tiny", "+more", "")]
    folder = prepare_flickr8k(punctuation="keep").folder
    for file in beside:
        file.write_text("{}", encoding="utf-8")
    prepare_flickr8k()  # the same captions
    assert (folder / "vocabulary-keep.json").exists()
    path = folder / "manifest.jsonl"
    first, *rest = manifest.read_manifest(path)
    changed = dataclasses.replace(first, captions=["An emu."], split="train")
    manifest.write_manifest(path, [changed, *rest])
    prepare_flickr8k()
    assert {file.name for file in folder.glob("vocabulary*")} == {"vocabulary.json"}
    assert [file.exists() for file in beside] == [False, True, True]


def test_the_vocabulary_of_several_sets_has_the_training_captions_of_all(
    prepare_flickr8k, tmp_path
):
    also, work = {"more": 1}, tmp_path / "work"
    with pytest.raises(DataError, match=r"more/manifest\.jsonl: no such manifest"):
        prepare_flickr8k(also=also)
    assert not list(work.rglob("vocabulary*"))
    photos = [
        manifest.Photo("a", "a.jpg", "train", ["A zebra runs."]),
        manifest.Photo("b", "b.jpg", "val", ["An emu runs."]),
    ]
    manifest.write_manifest(work / "more" / "manifest.jsonl", photos)
    report = prepare_flickr8k(also=also)
    words = Vocabulary.load(report.folder / "vocabulary+more.json").words
    assert words[4:] == ("a", "runs", "cat", "dog", "zebra")
    assert photos_of(report)["train"] == 2  # of the set that was prepared
    assert not (report.folder / "vocabulary.json").exists()


@pytest.mark.parametrize("change", [{"vocabulary_size": 6}, {"min_count": 3}])
def test_size_and_minimum_count_bound_the_vocabulary(prepare_flickr8k, change):
    report = prepare_flickr8k(**change)
    words = Vocabulary.load(report.folder / "vocabulary.json").words
    assert words[4:] == ("a", "runs")
    assert report.facts == [COVERAGE.format("2", "66.67%")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_count": 3}, "`data.min_count` must be 1. Received: .* with 3; run"),
        ({"vocabulary_size": 6}, "`data.vocabulary_size` must be 50. Received: .* 6;"),
    ],
)
def test_a_vocabulary_of_another_experiment_s_settings_is_refused(
    prepare_flickr8k, tmp_path, change, message
):
    experiment = an_experiment("flickr8k")
    work = tmp_path / "work"
    prepare_flickr8k()
    assert len(load_vocabulary(experiment, work)) == 8
    path = prepare_flickr8k(**change).folder / "vocabulary.json"
    with refused(DataError, message) as caught:
        load_vocabulary(experiment, work)
    assert str(path) in str(caught.value)
    assert len(load_vocabulary(an_experiment("flickr8k", **change), work)) == 6
    prepare_flickr8k()
    assert len(load_vocabulary(experiment, work)) == 8


def test_a_vocabulary_that_records_no_settings_is_read(prepare_flickr8k, tmp_path):
    path = prepare_flickr8k().folder / "vocabulary.json"
    Vocabulary.load(path).save(path)
    assert "min_count" not in path.read_text("utf-8")
    rarer = an_experiment("flickr8k", min_count=3)
    assert len(load_vocabulary(rarer, tmp_path / "work")) == 8


FAULTY = {
    "Flickr8k.token": "dog.jpg#0\tA dog .\nbad\ncat.jpg#0\t.\nfox.jpg#0\tA fox .\n"
}


def test_problems_are_skipped_and_listed_by_name(prepare_flickr8k):
    report = prepare_flickr8k(True, FAULTY)
    assert photos_of(report) == {"train": 1}
    listed = (report.folder / "problems.txt").read_text().splitlines()
    assert "empty caption\tcat.jpg#0" in listed
    assert "missing photo\tfox.jpg" in listed
    assert len(listed) == len(report.problems) == 6
    lines = report.lines()
    assert "train: 1 photo, 1 caption" in lines
    assert "skipped: photo without captions: 3 (cat.jpg, cow.jpg, hen.jpg)" in lines
    prepare_flickr8k(True, on_problem="refuse")  # the list of problems is removed
    assert not (report.folder / "problems.txt").exists()


def test_problems_are_refused_before_any_work(prepare_flickr8k, tmp_path):
    with refused(DataError, "refused because of 6 problems"):
        prepare_flickr8k(True, FAULTY, "refuse")
    assert set(files_below(tmp_path / "work")) == {"tiny/problems.txt"}


def test_a_second_process_that_prepares_the_same_data_is_refused(tmp_path):
    lock = tmp_path / "work" / "tiny" / ".prepare.lock"
    with (
        locked(lock, RuntimeError()),
        pytest.raises(DataError, match="another process"),
    ):
        prepare(an_experiment("flickr8k"), tmp_path, tmp_path / "work")


@pytest.mark.parametrize("on_problem", ["skip", "refuse"])
def test_a_damaged_photo_is_a_problem(tmp_path, on_problem):
    data = make_flickr8k(tmp_path / "data", packed=True)
    names = {f"{name}.jpg": JPEG for name in ("dog", "hen", "cow", "pig")}
    archive = make_zip(data / "Flickr8k_Dataset.zip", {**names, "cat.jpg": b"\0" * 999})
    content = bytearray(archive.read_bytes())
    content[content.index(b"cat.jpg") + len("cat.jpg")] ^= 0xFF
    archive.write_bytes(content)
    arguments = an_experiment("flickr8k"), data, tmp_path / "work", on_problem
    if on_problem == "refuse":
        with pytest.raises(DataError, match="damaged archive entry: 1"):
            prepare(*arguments)
        assert not (tmp_path / "work" / "tiny" / "manifest.jsonl").exists()
    else:
        assert photos_of(prepare(*arguments))["train"] == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"Flickr_8k.trainImages": "\n"}, "no training captions"),
        (
            {"Flickr8k.token": "other.jpg#0\tA dog .\n"},
            r"no photo has captions: .* \(other\.jpg\)",
        ),
    ],
)
def test_without_captions_of_training_photos_nothing_is_written(
    prepare_flickr8k, tmp_path, texts, message
):
    with refused(DataError, message):
        prepare_flickr8k(True, texts)
    assert not (tmp_path / "work" / "tiny" / "manifest.jsonl").exists()


def prepare_folder(folder, captions, **settings):
    """Prepare photos of the given captions, all for training; return the report."""
    rows = [(f"{k}.jpg", caption, "train") for k, caption in enumerate(captions)]
    for name, *_ in rows:
        make_file(folder / "data" / name)
    make_csv(folder / "data" / "captions.csv", [("file", "caption", "split"), *rows])
    experiment = an_experiment("folder", **settings)
    return prepare(experiment, folder / "data", folder / "work")


def words_of(report):
    vocabulary = Vocabulary.load(report.folder / "vocabulary.json")
    return set(vocabulary.words[len(SPECIAL) :])


def test_captions_are_stored_in_nfc_without_invisible_characters(tmp_path):
    captions = ["un café", "un cafe\u0301", "un\u200b café\ufeff", "…", "\u200b", "。"]
    report = prepare_folder(tmp_path, captions)
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert [photo.captions for photo in photos] == [("un café",)] * 3
    assert words_of(report) == {"un", "café"}
    assert len(report.problems.names("empty caption")) == 3


@pytest.mark.parametrize(
    ("captions", "note"),
    [
        (
            ["一只狗在跑。", "两个男人在跑", "一只 狗"],
            "2 of 3 captions are one word; this",
        ),
        (["สุนัขวิ่ง", "แมวนอน"], "2 of 2 captions are one word; this language"),
        (["dog", "cat", "a cat"], "2 of 3 captions are one word; a captioner learns"),
        (["一只 狗 在 跑 。", "两个 男人 在 跑"], None),
        (["एक कुत्ता दौड़ रहा है।", "एक औरत है।"], None),
        (["كلب يركض،", "رجلان يلعبان"], None),
    ],
)
def test_captions_that_are_one_word_are_noted_with_the_remedy(tmp_path, captions, note):
    report = prepare_folder(tmp_path, captions)
    notes = [text for text in report.problems.notes if "one word" in text]
    assert len(notes) == (note is not None)
    assert all(text.startswith(note) for text in notes)
    assert not {"।", "है।", "يركض،", "。"} & words_of(report)


def test_too_rare_words_of_a_language_without_spaces_have_their_remedy(tmp_path):
    with refused(DataError, "separate the words by spaces first"):
        prepare_folder(tmp_path, ["一只狗在跑。", "两个男人在跑"], min_count=2)


@pytest.mark.parametrize("punctuation", ["drop", "keep"])
def test_control_tokens_in_captions_are_counted(tmp_path, punctuation):
    captions = ["<start> a dog <end>", "a cat"]
    report = prepare_folder(tmp_path, captions, punctuation=punctuation)
    control, validation = report.problems.notes
    assert control.startswith("1 of 2 captions have a control token")
    assert validation.startswith("no photo has the split val")


def test_photos_to_validate_with_are_not_missed(tmp_path):
    rows = [(f"{k}.jpg", "a dog", split) for k, split in enumerate(["train", "val"])]
    for name, *_ in rows:
        make_file(tmp_path / "data" / name)
    table = tmp_path / "data" / "captions.csv"
    make_csv(table, [("file", "caption", "split"), *rows])
    report = prepare(an_experiment("folder"), tmp_path / "data", tmp_path / "work")
    assert report.problems.notes == []


@pytest.mark.parametrize("source", ["coco", "flickr8k"])
def test_a_source_without_a_folder_is_one_line(tmp_path, source):
    experiment = SimpleNamespace(data=SimpleNamespace(name="tiny", source=source))
    message = f"`data` must be the folder of {source}'s files.*pass the folder with"
    with pytest.raises(DataError, match=message):
        prepare(experiment, None, tmp_path / "work")


def test_photos_whose_captions_are_all_absent_are_counted(tmp_path):
    make_file(tmp_path / "data" / "a.jpg")
    for split in ("train", "val"):
        name = f"captions_{split}2014.json"
        make_file(tmp_path / "data" / name, coco_json({}))
    message = "no photo has captions: .*have no caption and are in no list: 1; check"
    with refused(DataError, message):
        prepare(an_experiment("coco"), tmp_path / "data", tmp_path / "work")


def test_coco_photos_are_unpacked_from_both_archives(tmp_path):
    data = tmp_path / "data"
    for split, number in (("train", 1), ("val", 2)):
        name = f"COCO_{split}2014_{number}.jpg"
        make_zip(data / f"{split}2014.zip", {f"{split}2014/{name}": JPEG})
        text = coco_json({name: ["A man ."]}, first=number)
        make_file(data / "annotations" / f"captions_{split}2014.json", text)
    report = prepare(an_experiment("coco"), data, tmp_path / "work")
    assert photos_of(report) == {"train": 1, "val": 1}
    for photo in manifest.read_manifest(report.folder / "manifest.jsonl"):
        assert photo.path == report.folder / "photos" / photo.id
        assert photo.path.read_bytes() == JPEG


def test_scenes_are_drawn_into_the_folder(tmp_path, monkeypatch):
    few = {"train": 4, "val": 1, "test": 1}
    monkeypatch.setattr("data_prep.scenes.scenes.COUNTS", few)
    report = prepare(an_experiment("scenes"), None, tmp_path / "work")
    assert photos_of(report) == few
    for photo in manifest.read_manifest(report.folder / "manifest.jsonl"):
        assert photo.path.parent == report.folder / "photos"
        assert photo.objects
        with Image.open(photo.path) as image:
            assert (image.size, image.mode) == ((SIDE, SIDE), "RGB")


def test_every_source_of_the_settings_is_registered():
    names = get_args(get_type_hints(DataSettings)["source"])
    assert sorted(names) == sorted(SOURCES)


@pytest.mark.nightly
def test_the_real_flickr8k_gives_the_known_counts(tmp_path):
    if not REAL.is_dir():
        pytest.skip("needs the Flickr8k archives beside the repository")
    experiment = an_experiment("flickr8k", vocabulary_size=10_000, min_count=5)
    report = prepare(experiment, REAL, tmp_path)
    assert report.counts == {
        "train": {"photos": 6000, "captions": 30000},
        "val": {"photos": 1000, "captions": 5000},
        "none": {"photos": 91, "captions": 455},
    }
    assert len(report.problems) == 1
    assert report.problems.names("missing photo") == ["2258277193_586949ec62.jpg.1"]
    assert report.facts[0].startswith("vocabulary: 2,538 words cover 97.39%")
    photos = manifest.read_manifest(report.folder / "manifest.jsonl")
    assert all(photo.path.is_file() for photo in photos)


def test_names_of_problems_stay_on_their_line(tmp_path):
    problems = Problems()
    names = ["new\nline", "\x1b[31mred", "\u2028", "\udcff", "été", "x" * 10**5]
    for name in names:
        problems.add("kind", name)
    (line,) = problems.summary()
    assert line == r"kind: 6 (new\nline, \x1b[31mred, \u2028, ...)"
    problems.write_listing(tmp_path / "problems.txt")
    rows = (tmp_path / "problems.txt").read_text(encoding="utf-8").splitlines()
    assert rows[:2] == ["kind\tnew\\nline", "kind\t\\x1b[31mred"]
    assert rows[3:5] == ["kind\t\\udcff", "kind\tété"]
    problems = Problems()
    problems.add("kind", "x" * 10**5)
    assert len(problems.summary()[0]) < 200
