"""Compare the confidence of captions with labels that were given by eye.

    show-attend-tell caption --beam 10 --out CAPTIONS.jsonl PHOTOS
    python research/caption_labels.py CAPTIONS.jsonl
    show-attend-tell caption --model shipped-lstm --out LSTM.jsonl PHOTOS
    python research/caption_labels.py LSTM.jsonl \
        --labels experiments/labels/captions_lstm.jsonl

Printed are the agreement of the two passes over the labels, by default
``experiments/labels/captions.jsonl`` (the rule is in the README beside it); for the
labels that fit the confidence, and for the others, the share of captions with each word
of the confidence and with a confidence in the highest tenths, and how many of them are
right, and right or a slip; and the AUC of the confidence. Intervals are of 95 % of
2,000 bootstrap samples.
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
from show_attend_tell.training.labels import GRADES, Label, key_of, read_labels

LABELS = Path(__file__).parents[1] / "experiments" / "labels" / "captions.jsonl"
_SAMPLES = 2000  # of the bootstrap
_FRONTIER = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4)  # shares of the captions


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


def agreement(labels: Sequence[Label]) -> list[str]:
    """Return lines on the agreement of the two passes."""
    first, second = np.array([label.grades for label in labels]).T
    equal = float((first == second).mean())
    opposite = int((np.abs(first - second) == 2).sum())
    kappa = cohens_kappa(first, second)
    return [
        f"two passes over {len(labels)} captions: equal {100 * equal:.1f} %, "
        f"kappa {kappa:.3f}, right against wrong {opposite}"
    ]


def confidences(labels: Sequence[Label], captions: Sequence[dict]) -> np.ndarray:
    """Return the confidence of each labelled caption, (N,).

    Raises:
        ValueError: a photo has no caption, another one, or no confidence; or a row has
            no path or caption.
    """
    if not all(row.get("path") and "caption" in row for row in captions):
        raise ValueError("each line must have a path and a caption, as --out writes it")
    of_photo = {key_of(Path(row["path"]).name): row for row in captions}
    values = []
    for label in labels:
        row = of_photo.get(key_of(label.photo))
        if row is None or row["caption"] != label.caption:
            raise ValueError(
                f"{label.photo}: its caption must be {label.caption!r}, as "
                f"it was judged. Received: {row and row['caption']!r}"
            )
        if row.get("confidence") is None:
            raise ValueError(f"{label.photo}: its caption has no confidence")
        values.append(row["confidence"])
    return np.array(values)


def worth(labels: Sequence[Label], confidence: np.ndarray) -> list[str]:
    """Return lines on the labels of captions by the word of their confidence."""
    grades = np.array([label.grade for label in labels])
    rows = [["confidence", "captions", "share", "right", "right or a slip"]]
    below = np.inf
    for word, least in CONFIDENCE_WORDS.items():
        chosen = (confidence >= least) & (confidence < below)
        rows.append([word, *_shares(grades, chosen)])
        below = least
    rows.append(["all", *_shares(grades, confidence >= 0)])
    ranks = np.argsort(np.argsort(-confidence, kind="stable"))
    for share in _FRONTIER:
        chosen = ranks < round(share * len(labels))
        rows.append([f"highest {share:.0%}", *_shares(grades, chosen)])
    lines = align(rows)
    for name in ("right", "slip"):
        positive = grades >= GRADES[name]
        auc = rank_auc(confidence[positive], confidence[~positive])
        low, high = _interval_of_auc(confidence, positive)
        title = "right" if name == "right" else "right or a slip"
        lines.append(
            f"AUC, {title} against the others: {auc:.3f} [{low:.3f}, {high:.3f}]"
        )
    return lines


def _interval_of_auc(confidence: np.ndarray, positive: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = []
    for _ in range(_SAMPLES):
        rows = rng.integers(0, len(positive), len(positive))
        sampled = confidence[rows]
        is_positive = positive[rows]
        if 0 < is_positive.sum() < len(rows):
            values.append(rank_auc(sampled[is_positive], sampled[~is_positive]))
    return np.quantile(values, [0.025, 0.975])


def _shares(grades: np.ndarray, chosen: np.ndarray) -> list[str]:
    count = int(chosen.sum())
    if not count:
        return ["0", "0 %", "", ""]
    rng = np.random.default_rng(0)
    cells = [str(count), f"{100 * chosen.mean():.1f} %"]
    for name in ("right", "slip"):
        positive = grades[chosen] >= GRADES[name]
        samples = positive[rng.integers(0, count, (_SAMPLES, count))].mean(axis=1)
        low, high = 100 * np.quantile(samples, [0.025, 0.975])
        cells.append(f"{100 * positive.mean():.1f} % [{low:.0f}, {high:.0f}]")
    return cells


def main() -> None:
    """Print what the labels say of a file of captions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captions", type=Path, metavar="CAPTIONS.jsonl")
    parser.add_argument("--labels", type=Path, default=LABELS, metavar="FILE.jsonl")
    given = parser.parse_args()
    try:
        labels = read_labels(given.labels)
        lines = given.captions.read_text("utf-8").splitlines()
        confidence = confidences(labels, [json.loads(line) for line in lines])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    printed = agreement(labels)
    is_fitted = np.array([label.is_fitted for label in labels])
    group = np.array([label.group for label in labels])
    parts = {"labels that fit the confidence": is_fitted, "other labels": ~is_fitted}
    for name in sorted(set(group)):
        parts[f"other labels, {name}"] = ~is_fitted & (group == name)
    for title, chosen in parts.items():
        own = [label for label, is_in in zip(labels, chosen, strict=True) if is_in]
        printed += ["", f"{title}:", *worth(own, confidence[chosen])]
    print("\n".join(printed))


if __name__ == "__main__":
    main()
