"""Join photos, captions and splits by name, and write manifest and vocabulary."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from data_prep.data_folder import DataFolder
from data_prep.preparation import Preparation, Prepared, Problem, Problems
from data_prep.scenes.scenes import write_scenes
from show_attend_tell.config.experiments import whole_folder
from show_attend_tell.config.settings import DataSettings
from show_attend_tell.data.manifest import Photo, read_manifest, write_manifest
from show_attend_tell.data.splits import (
    data_folders,
    read_photos,
    vocabulary_path,
    vocabulary_settings,
)
from show_attend_tell.data.unicode_text import has_no_spaces, in_one_form, visible_text
from show_attend_tell.data.vocabulary import (
    SPECIAL,
    TOKENIZERS,
    UNKNOWN,
    Vocabulary,
    tokenize,
    tokenize_as_written,
)
from show_attend_tell.runtime.errors import DataError

MANIFEST = "manifest.jsonl"

ReadSource = Callable[[DataFolder], list[Photo]]
"""Returns the photos of a folder and records its problems; writes nothing."""
Captions = dict[str, list[str]]  # name of a photo -> its raw captions
Lists = dict[str, list[str]]  # split -> names of its photos


def prepare_photos(read: ReadSource, preparation: Preparation) -> Prepared:
    """Read photos and captions, unpack the photos, and write manifest and vocabulary.

    Args:
        read: reader of the source.
        preparation: the data set.

    Raises:
        DataError: the data cannot be read, or have problems that are refused; a set of
            ``data.also`` is not prepared; or no word is frequent enough.
    """
    _require_further(preparation)
    if preparation.data is None and (photos := _photos_of_whole(preparation)):
        return _write(preparation, preparation.limited(photos), Problems())
    data = DataFolder(preparation.require_data(), preparation.folder)
    photos = read(data)
    if not photos:
        reasons = [*data.problems.summary(), *data.problems.notes]
        raise DataError(
            f"{data.folder}: no photo has captions: {'; '.join(reasons)}; check that "
            "photos and captions come from the same data set"
        )
    photos = preparation.limited(photos)
    # Before unpacking, which takes minutes; _write records damaged photos as well.
    preparation.record(data.problems)
    paths = (photo.path for photo in photos)
    damaged = data.unpack(paths, preparation.progress)
    photos = [photo for photo in photos if photo.path not in damaged]
    return _write(preparation, photos, data.problems)


def _require_further(preparation: Preparation) -> None:
    """Raise a DataError if a set of ``data.also`` is not prepared."""
    folders = data_folders(preparation.experiment, preparation.folder.parent)
    for folder in folders[1:]:
        if (folder / MANIFEST).is_file():
            continue
        name = folder.name
        options = ""
        whole = whole_folder(folder)
        if preparation.limit is not None and whole is not None:
            name = whole.name
            options = f" --limit {preparation.limit}"
        raise DataError(
            f"{folder / MANIFEST}: no such manifest; prepare the data set {name!r} "
            f"first, by `prepare --set data.name={name} --set data.also={{}}{options}` "
            "with its source"
        )


def _photos_of_whole(preparation: Preparation) -> list[Photo]:
    """Return the photos of the whole data set of a limited one, if it is prepared."""
    whole = whole_folder(preparation.folder)
    if whole is None or not (whole / MANIFEST).is_file():
        return []
    return read_manifest(whole / MANIFEST)


def prepare_scenes(preparation: Preparation) -> Prepared:
    """Draw scenes, and write manifest and vocabulary."""
    _require_further(preparation)
    photos = write_scenes(preparation.folder, preparation.limit)
    return _write(preparation, photos, Problems())


def _write(
    preparation: Preparation, photos: list[Photo], problems: Problems
) -> Prepared:
    """Write the vocabulary, also of the sets of ``data.also``, then the manifest."""
    preparation.record(problems)
    experiment = preparation.experiment
    folder = preparation.folder
    settings = experiment.data
    further = read_photos(experiment, folder.parent, further=True)
    vocabulary, coverage = _vocabulary([*photos, *further], settings, problems.notes)
    path = vocabulary_path(experiment, folder.parent)
    if _training_captions(folder) != _captions_by_id(photos):
        _remove_vocabularies(folder)  # they would count words of other captions
    vocabulary.save(path, vocabulary_settings(experiment))
    # Last, because a folder that has a manifest counts as prepared.
    write_manifest(folder / MANIFEST, photos)
    counts: dict[str, Counter[str]] = {photo.split: Counter() for photo in photos}
    for photo in photos:
        counts[photo.split].update(photos=1, captions=len(photo.captions))
    if "val" not in counts:
        problems.notes.append(
            "no photo has the split val, by which `train` chooses the model: give it "
            "to some photos before a training"
        )
    words = len(vocabulary) - len(SPECIAL)
    fact = f"vocabulary: {words:,} words cover {coverage:.2%} of the words of the "
    return Prepared(folder, dict(counts), [fact + "training captions"], problems)


def _training_captions(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return the training captions of a prepared folder, none if it has no manifest."""
    try:
        return _captions_by_id(read_manifest(folder / MANIFEST))
    except DataError:  # absent, or damaged, and then replaced
        return {}


def _captions_by_id(photos: Iterable[Photo]) -> dict[str, tuple[str, ...]]:
    return {photo.id: photo.captions for photo in photos if photo.split == "train"}


def _remove_vocabularies(folder: Path) -> None:
    """Remove the vocabularies that count the captions of a set, until prepared again.

    They are those of other settings of ``punctuation`` and ``also``, and those of other
    sets with this one in ``data.also``.
    """
    for file in folder.glob("vocabulary*.json"):
        file.unlink()
    for file in folder.parent.glob("*/vocabulary*+*.json"):
        if folder.name in file.stem.split("+")[1:]:
            file.unlink()


def _vocabulary(
    photos: list[Photo], settings: DataSettings, notes: list[str]
) -> tuple[Vocabulary, float]:
    """Build the vocabulary of the training split; return it and its coverage.

    ``notes`` receives what the captions are unfit for.
    """
    tokenizer = TOKENIZERS[settings.punctuation]
    texts = [
        caption
        for photo in photos
        if photo.split == "train"
        for caption in photo.captions
    ]
    captions = list(map(tokenizer, texts))
    if not captions:
        raise DataError(
            "no training captions: the split 'train' must have photos with captions; "
            "check the lists of photos"
        )
    unfit = _notes_of_captions(texts)
    notes += unfit
    try:
        vocabulary = Vocabulary.build(
            captions, settings.vocabulary_size, settings.min_count
        )
    except DataError as error:
        raise DataError("; ".join([str(error), *unfit])) from None
    total = sum(map(len, captions))
    unknown = sum(vocabulary.encode(words).count(UNKNOWN) for words in captions)
    return vocabulary, 1 - unknown / total


def _notes_of_captions(texts: list[str]) -> list[str]:
    """Return a sentence for each reason why captions cannot be learnt word by word.

    Args:
        texts: the captions as written.
    """
    notes = []
    single = sum(len(text.split()) == 1 for text in texts)
    if 2 * single > len(texts):
        remedy = "a captioner learns sentences of several words"
        if 2 * sum(map(has_no_spaces, texts)) > len(texts):
            remedy = (
                "this language is written without spaces: separate the words by spaces "
                "first, for Chinese by jieba, for Japanese by MeCab, for Thai by "
                "PyThaiNLP"
            )
        notes.append(f"{single} of {len(texts)} captions are one word; {remedy}")
    # As written: the default tokenizer splits <start> into "<", "start" and ">".
    written = map(tokenize_as_written, texts)
    control = sum(not set(SPECIAL).isdisjoint(words) for words in written)
    if control:
        notes.append(
            f"{control} of {len(texts)} captions have a control token, such as "
            "<start>; here it is text of the caption: remove it from the captions"
        )
    return notes


def _one_form(places: Iterable[str]) -> Callable[[str], str]:
    """Return the function of a photo's name that returns it in NFC.

    Files whose names differ only by their form keep them, and need exact names.

    Args:
        places: the names of all files.
    """
    forms = Counter(map(in_one_form, places))

    def form(name: str) -> str:
        composed = in_one_form(name)
        return name if forms[composed] > 1 else composed

    return form


def join_by_name(
    data: DataFolder,
    captions: Captions,
    lists: Lists,
    places: Mapping[str, Path] | None = None,
) -> list[Photo]:
    """Return the manifest's rows, sorted by photo name.

    The problems of `data` receive captions without a word, captioned or listed photos
    that are absent or in two folders, listed photos without captions, and photos in two
    lists, which are skipped: no photo may be in both training and test set.

    Args:
        data: has the photos and receives the problems.
        captions: name -> its raw captions.
        lists: split -> names; photos in no list get the split ``none``.
        places: name -> path of the photo; ``data.photos`` by default.

    Raises:
        DataError: the folder has no photos.
    """
    problems = data.problems
    splits = {}
    found_twice = set()
    if places is None:
        places = data.photos
        found_twice = data.found_twice
        if not places:
            raise DataError(
                f"{data.folder}: no photo is in this folder, below it or in a zip "
                "archive there; add the photos (unpack .tar archives yourself) or "
                "name another folder"
            )
    # Names in tables and on disks may have different forms of Unicode.
    form = _one_form(places)
    texts: Captions = {}
    for name, of_photo in captions.items():
        texts.setdefault(form(name), []).extend(of_photo)
    paths = {form(name): path for name, path in places.items()}
    found_twice = set(map(form, found_twice))
    for split, names in lists.items():
        for name in dict.fromkeys(map(form, names)):
            if splits.setdefault(name, split) != split:
                # Its first split stays in `splits`, but the photo is left out below.
                problems.add(Problem.TWO_SPLITS, name)
    # Every captioned or listed photo becomes a row or a problem.
    known = {*texts, *splits}
    photos = []
    for name in sorted(known.difference(problems.names(Problem.TWO_SPLITS))):
        kept = []
        for number, caption in enumerate(map(visible_text, texts.get(name, ()))):
            # Most captions pass the first test, which is faster.
            if any(map(str.isalnum, caption)) or tokenize(caption):
                kept.append(caption.strip())
            else:
                problems.add(Problem.EMPTY_CAPTION, f"{name}#{number}")
        if name not in paths:
            problems.add(Problem.MISSING_PHOTO, name)
        elif not kept:
            problems.add(Problem.NO_CAPTIONS, name)
        else:
            split = splits.get(name, "none")
            photos.append(Photo(name, paths[name], split, tuple(kept)))
            if name in found_twice:
                problems.add(Problem.DUPLICATE_FILE, name)
    if unknown := len(paths.keys() - known):
        problems.notes.append(
            f"photos skipped that have no caption and are in no list: {unknown}"
        )
    return photos
