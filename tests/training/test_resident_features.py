"""Features that live on the device make the batches and weights of those in files."""

import logging

import keras
import numpy as np
import pytest
from checks import assert_equal_leaves
from tiny_training import REWARD, go, read_checkpoint

from show_attend_tell.data.dataset import FeatureViews
from show_attend_tell.training import resident_features
from show_attend_tell.training.resident_features import ResidentViews, feature_views

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="`make test-jax` runs it on JAX"
)

PHOTOS = 7
L, D = 3, 2


class Reader:
    """Random features, which differ from reader to reader."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.shape = (PHOTOS, L, D)
        self.values = rng.normal(size=self.shape).astype(np.float16)

    def read(self, rows):
        return self.values[rows]


@pytest.mark.parametrize("readers", [[Reader(0)], [Reader(0), Reader(1)]])
@pytest.mark.parametrize("own", [slice(None), slice(3, 6)])
def test_batches_equal_those_of_the_files(readers, own, monkeypatch):
    monkeypatch.setattr(resident_features, "_PART", 2)  # of 5 rows: three parts
    rows = np.array([6, 2, 3, 0, 2, 5])
    views = [FeatureViews(readers), ResidentViews(readers, rows)]
    for chosen in (rows, rows[:4], rows[::-1]):
        # Six rows, of which those beyond the photos are zero.
        expected, found = (
            each.read(chosen, np.random.default_rng(3), 6, own) for each in views
        )
        assert found.dtype == expected.dtype == np.float16
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("free", "kind", "line"),
    [
        (None, FeatureViews, ""),
        (167, FeatureViews, "features: 84.0B, read from the files: more than half of"),
        (168, ResidentViews, "features: 84.0B, on the device, which had 168B free"),
    ],
)
def test_features_of_half_the_free_memory_live_there(
    monkeypatch, caplog, free, kind, line
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(resident_features, "free_memory", lambda: free)
    views = feature_views([Reader(0)], np.array([0, 1, 1, 2, 3, 4, 5]))  # 6 photos
    assert type(views) is kind
    assert len(caplog.messages) == bool(line)
    assert line in caplog.text


@pytest.mark.parametrize("training", [{}, REWARD])
def test_training_does_not_depend_on_where_the_features_are(
    work, tmp_path, monkeypatch, training
):
    go(work, tmp_path / "files", training=training)
    monkeypatch.setattr(resident_features, "free_memory", lambda: 10**9)
    go(work, tmp_path / "device", training=training)
    states = [read_checkpoint(tmp_path / name)[0] for name in ("files", "device")]
    assert_equal_leaves(*states)
