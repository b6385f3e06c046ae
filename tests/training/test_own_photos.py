"""The experiment own_photos on real photos, whose captions have a style of their own.

The style: of the five captions of each photo its longest one, which has half as many
words again as the captions of the shipped LSTM.
"""

from pathlib import Path

import numpy as np
import pytest
from data_prep_files import make_csv

from data_prep.data_folder import DataFolder
from data_prep.extract import extract
from data_prep.prepare import prepare
from data_prep.sources.published import read_flickr8k
from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.evaluation.validation import validate
from show_attend_tell.models.pretrained import shipped_model
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.training.train import train

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"
TRAIN, VALIDATION, OTHERS = 80, 20, 200


def write_user_folder(folder, seed):
    """Write photos and captions.csv, as a user would; each photo's longest caption."""
    data = DataFolder(REAL, folder)
    photos = [photo for photo in read_flickr8k(data) if photo.split == "val"]
    splits = ["train"] * TRAIN + ["val"] * VALIDATION + ["test"] * OTHERS
    chosen = np.random.default_rng(seed).permutation(len(photos))[: len(splits)]
    data.unpack([photos[k].path for k in chosen])
    rows = [("file", "caption", "split")]
    for k, split in zip(chosen, splits, strict=True):
        longest = max(photos[k].captions, key=lambda text: len(text.split()))
        rows.append((photos[k].path.relative_to(folder), longest, split))
    make_csv(folder / "captions.csv", rows)


@pytest.mark.slow
def test_100_photos_teach_the_shipped_lstm_their_style(tmp_path):
    if not REAL.is_dir():
        pytest.skip("needs the Flickr8k archives beside the repository")
    # Of the draws 1 to 3, the 20 validation photos of 3 keep the shipped LSTM itself.
    write_user_folder(tmp_path / "photos", seed=1)
    experiment, work = load_experiment("own_photos"), tmp_path / "work"
    prepare(experiment, tmp_path / "photos", work)
    extract(experiment, work, progress=False)
    done = train(experiment, work, tmp_path / "runs", progress=False)
    with open_features(experiment, work) as reader:
        (others,) = load_splits(experiment, work, ["test"], reader)
        assert len(others.photos) == OTHERS
        before, after = (
            validate(load_captioner(path), reader, others, experiment.decoding)[0]
            for path in (shipped_model("shipped-lstm"), done.model)
        )
    print(f"CIDEr {before['CIDEr']:.2f}, then {after['CIDEr']:.2f}")
    print(f"words {before['length']:.2f}, then {after['length']:.2f}; {done}")
    assert after["CIDEr"] > before["CIDEr"]
    assert after["length"] > before["length"]
