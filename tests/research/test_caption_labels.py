"""The labels of captions, their agreement, and what they say of a confidence."""

import json
import runpy
import sys

import numpy as np
import pytest

from research import caption_labels
from show_attend_tell.training.labels import Label, read_labels

TITLES = (
    "labels that fit the confidence",
    "other labels",
    "other labels, coco",
    "other labels, flickr8k",
)

FILES = {
    "captions.jsonl": "equal 93.0 %",
    "captions_lstm.jsonl": "equal 91.0 %",
}
LABELS = {name: read_labels(caption_labels.LABELS.with_name(name)) for name in FILES}


def label(photo, *grades, caption="a dog"):
    return Label(photo, caption, grades)


def caption(photo, confidence, text="a dog"):
    return {"path": f"photos/{photo}", "caption": text, "confidence": confidence}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_each_list_has_200_photos_with_two_labels_and_half_of_them_fit(labels):
    for name in ("flickr8k", "coco"):
        own = [label for label in labels if label.group == name]
        assert len({label.photo for label in own}) == len(own) == 200
        assert 85 <= sum(label.is_fitted for label in own) <= 115
    assert all(len(label.grades) == 2 for label in labels)


def test_kappa_is_the_agreement_beyond_chance():
    first = np.array([0] * 45 + [1] * 15 + [0] * 25 + [1] * 15)
    second = np.array([0] * 45 + [1] * 15 + [1] * 25 + [0] * 15)
    # 60 of 100 agree; by chance 0.7 * 0.6 + 0.3 * 0.4 = 0.54.
    expected = (0.6 - 0.54) / (1 - 0.54)
    assert caption_labels.cohens_kappa(first, second) == pytest.approx(expected)


def test_a_caption_counts_as_its_lowest_label(monkeypatch):
    monkeypatch.setattr(caption_labels, "_SAMPLES", 100)
    labels = [
        label("1.jpg", 2, 2),
        label("2.jpg", 2, 1),
        label("3.jpg", 1, 0),
        label("4.jpg", 0, 0),
    ]
    lines = caption_labels.worth(labels, np.array([0.9, 0.8, 0.3, 0.1]))
    table = [line.split("  ") for line in lines]
    table = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert table[1][:3] == ["likely", "2", "50.0 %"]
    assert table[1][3].startswith("50.0 % [0, 100]")
    assert table[1][4] == "100.0 % [100, 100]"
    assert [cell.split(" [")[0] for cell in table[2]] == [
        "unsure",
        "1",
        "25.0 %",
        "0.0 %",
        "0.0 %",
    ]
    assert [line.split(" [")[0] for line in lines[-2:]] == [
        "AUC, right against the others: 1.000",
        "AUC, right or a slip against the others: 1.000",
    ]


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ([], "1.jpg: its caption must be 'a dog'"),
        ([caption("1.jpg", 0.5, "a cat")], "Received: 'a cat'"),
        ([caption("1.jpg", None)], "1.jpg: its caption has no confidence"),
        ([{"path": "1.jpg"}], "must have a path and a caption"),
        ([{"caption": "a dog"}], "must have a path and a caption"),
    ],
)
def test_other_captions_than_the_judged_ones_are_refused(captions, message):
    with pytest.raises(ValueError, match=message):
        caption_labels.confidences([label("1.jpg", 2, 2)], captions)


def test_photos_of_coco_are_told_by_their_id():
    found = caption_labels.confidences(
        [label("coco_000000000071.jpg", 2, 2)],
        [caption("COCO_val2014_000000000071.jpg", 0.5), caption("71.jpg", 0.1)],
    )
    assert found == [0.5]


@pytest.mark.nightly
@pytest.mark.parametrize("name", FILES)
def test_the_program_prints_the_labels_that_fit_and_the_others(
    name, tmp_path, monkeypatch, capsys
):
    rows = [caption(one.photo, 0.8, one.caption) for one in LABELS[name]]
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    labels = str(caption_labels.LABELS.with_name(name))
    options = [] if name == "captions.jsonl" else ["--labels", labels]
    monkeypatch.setattr(sys, "argv", ["caption_labels.py", str(file), *options])
    runpy.run_path(caption_labels.__file__, run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith(f"two passes over 400 captions: {FILES[name]}")
    parts = [printed.split(f"\n{title}:\n")[1] for title in TITLES]
    counts = [int(part.splitlines()[1].split()[1]) for part in parts]
    assert counts[0] + counts[1] == 400
    assert counts[2] + counts[3] == counts[1]
    file.write_text("")
    with pytest.raises(SystemExit, match="its caption must be"):
        runpy.run_path(caption_labels.__file__, run_name="__main__")
