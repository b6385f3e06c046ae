"""The labels of captions, their agreement, and what they say of a confidence."""

import json
import runpy
import sys

import numpy as np
import pytest

from research import caption_labels

LABELS = caption_labels.read_lines(caption_labels.LABELS)


def label(photo, *labels, caption="a dog"):
    return {"photo": photo, "list": "a", "caption": caption, "labels": labels}


def caption(photo, confidence, text="a dog"):
    return {"path": f"photos/{photo}", "caption": text, "confidence": confidence}


def test_each_list_has_200_photos_with_two_labels():
    for name in ("flickr8k", "coco"):
        own = [row for row in LABELS if row["list"] == name]
        assert len({row["photo"] for row in own}) == len(own) == 200
    assert all(len(row["labels"]) == 2 for row in LABELS)
    given = {each for row in LABELS for each in row["labels"]}
    assert given == caption_labels.GRADES.keys()


def test_kappa_is_the_agreement_beyond_chance():
    first = np.array([0] * 45 + [1] * 15 + [0] * 25 + [1] * 15)
    second = np.array([0] * 45 + [1] * 15 + [1] * 25 + [0] * 15)
    # 60 of 100 agree; by chance 0.7 * 0.6 + 0.3 * 0.4 = 0.54.
    expected = (0.6 - 0.54) / (1 - 0.54)
    assert caption_labels.cohens_kappa(first, second) == pytest.approx(expected)


def test_a_caption_is_right_where_both_passes_say_so():
    labels = [
        label("1.jpg", "right", "right"),
        label("2.jpg", "right", "slip"),
        label("3.jpg", "slip", "wrong"),
        label("4.jpg", "wrong", "wrong"),
    ]
    lines = caption_labels.worth(labels, np.array([0.9, 0.6, 0.3, 0.1]))
    table = [line.split() for line in lines]
    assert table[1] == ["likely", "2", "50.0", "%", "50.0", "%", "100.0", "%"]
    assert table[2] == ["unsure", "1", "25.0", "%", "0.0", "%", "0.0", "%"]
    assert lines[-2:] == [
        "AUC, right against the others: 1.000",
        "AUC, right or a slip against the others: 1.000",
    ]


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ([], "1.jpg: its caption must be 'a dog'"),
        ([caption("1.jpg", 0.5, "a cat")], "Received: 'a cat'"),
        ([caption("1.jpg", None)], "1.jpg: its caption has no confidence"),
    ],
)
def test_other_captions_than_the_judged_ones_are_refused(captions, message):
    with pytest.raises(ValueError, match=message):
        caption_labels.confidences([label("1.jpg", "right", "right")], captions)


def test_the_program_prints_both_lists(tmp_path, monkeypatch, capsys):
    rows = [caption(row["photo"], 0.6, row["caption"]) for row in LABELS]
    file = tmp_path / "captions.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["caption_labels.py", str(file)])
    runpy.run_path(caption_labels.__file__, run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("two passes over 400 captions: equal 90.0 %")
    both = printed.split("both:\n")[1].splitlines()
    assert both[1].split()[:3] == ["likely", "400", "100.0"]
    file.write_text("")
    with pytest.raises(SystemExit, match="its caption must be"):
        runpy.run_path(caption_labels.__file__, run_name="__main__")
