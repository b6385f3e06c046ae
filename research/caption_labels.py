"""Compare the confidence of captions with labels that were given by eye.

    show-attend-tell caption --beam 10 --out CAPTIONS.jsonl PHOTOS
    python research/caption_labels.py CAPTIONS.jsonl

Printed are the agreement of the two passes over ``experiments/labels/captions.jsonl``
(its rule is in the README beside it); for each word of the confidence the share of
captions, and how many of them are right, and right or a slip; and the AUC of the
confidence. A caption counts as right if both passes call it right, and as wrong if one
of them does and the other calls it a slip or wrong.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from show_attend_tell.inference.result import CONFIDENCE_WORDS
from show_attend_tell.runtime.table import align
from show_attend_tell.training.confidence import rank_auc

LABELS = Path(__file__).parents[1] / "experiments" / "labels" / "captions.jsonl"
GRADES = {"wrong": 0, "slip": 1, "right": 2}
RIGHT = 2.0  # mean grade: both passes say right
SLIP = 1.0  # at least a slip


def read_lines(path: Path) -> list[dict]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def cohens_kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Return the agreement of two labellings beyond chance (Cohen, 1960).

    Args:
        first: grades, (N,).
        second: grades, (N,).
    """
    table = np.zeros((len(GRADES), len(GRADES)))
    np.add.at(table, (first, second), 1 / len(first))
    agreed = np.trace(table)
    expected = table.sum(axis=1) @ table.sum(axis=0)
    return float((agreed - expected) / (1 - expected))


def agreement(labels: Sequence[dict]) -> list[str]:
    """Return lines on the agreement of the two passes."""
    first, second = _grades(labels).T
    equal = float((first == second).mean())
    opposite = int((np.abs(first - second) == 2).sum())
    kappa = cohens_kappa(first, second)
    return [
        f"two passes over {len(labels)} captions: equal {100 * equal:.1f} %, "
        f"kappa {kappa:.3f}, right against wrong {opposite}"
    ]


def confidences(labels: Sequence[dict], captions: Sequence[dict]) -> np.ndarray:
    """Return the confidence of each labelled caption, (N,).

    Raises:
        ValueError: a photo has no caption, another one, or no confidence.
    """
    of_photo = {Path(row["path"]).name: row for row in captions}
    values = []
    for label in labels:
        row = of_photo.get(label["photo"])
        if row is None or row["caption"] != label["caption"]:
            raise ValueError(
                f"{label['photo']}: its caption must be {label['caption']!r}, as "
                f"it was judged. Received: {row and row['caption']!r}"
            )
        if row.get("confidence") is None:
            raise ValueError(f"{label['photo']}: its caption has no confidence")
        values.append(row["confidence"])
    return np.array(values)


def worth(labels: Sequence[dict], confidence: np.ndarray) -> list[str]:
    """Return lines on the labels of captions by the word of their confidence."""
    grades = _grades(labels).mean(axis=1)
    rows = [["confidence", "captions", "share", "right", "right or a slip"]]
    below = np.inf
    for word, least in CONFIDENCE_WORDS.items():
        chosen = (confidence >= least) & (confidence < below)
        rows.append([word, *_shares(grades, chosen)])
        below = least
    rows.append(["all", *_shares(grades, confidence >= 0)])
    lines = align(rows)
    for name, least in (("right", RIGHT), ("right or a slip", SLIP)):
        positive = grades >= least
        auc = rank_auc(confidence[positive], confidence[~positive])
        lines.append(f"AUC, {name} against the others: {auc:.3f}")
    return lines


def _grades(labels: Sequence[dict]) -> np.ndarray:
    """Return the grades of both passes, (N, 2)."""
    return np.array([[GRADES[label] for label in row["labels"]] for row in labels])


def _shares(grades: np.ndarray, chosen: np.ndarray) -> list[str]:
    count = int(chosen.sum())
    if not count:
        return ["0", "0 %", "", ""]
    shares = (chosen.mean(), *((grades[chosen] >= x).mean() for x in (RIGHT, SLIP)))
    return [str(count), *(f"{100 * share:.1f} %" for share in shares)]


def main() -> None:
    """Print what the labels say of a file of captions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captions", type=Path, metavar="CAPTIONS.jsonl")
    given = parser.parse_args()
    labels = read_lines(LABELS)
    try:
        confidence = confidences(labels, read_lines(given.captions))
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    lines = agreement(labels)
    for name in sorted({label["list"] for label in labels}):
        chosen = np.array([label["list"] == name for label in labels])
        own = [label for label in labels if label["list"] == name]
        lines += ["", f"{name}:", *worth(own, confidence[chosen])]
    lines += ["", "both:", *worth(labels, confidence)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
