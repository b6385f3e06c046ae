"""Test the labels and the training script of SceneNet."""

import numpy as np
import pytest
from click.testing import CliRunner

from data_prep.scenes import train_scene_net
from show_attend_tell.models.encoder import scene_net

OBJECTS = [
    {"name": "red circle", "box": [0, 0, 84, 84]},
    {"name": "yellow cross", "box": [84, 126, 168, 168]},
]


def test_cells_with_their_centre_in_a_box_have_its_labels():
    labels = train_scene_net.cell_labels(OBJECTS, 168, 4)
    np.testing.assert_array_equal(
        labels["colour"], [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 2, 2]]
    )
    np.testing.assert_array_equal(labels["kind"][3], [0, 0, 5, 5])


@pytest.mark.slow
def test_the_script_writes_weights_that_the_network_loads(tmp_path):
    file = tmp_path / "new" / "tiny.weights.h5"
    arguments = ["--weights", str(file), "--count", "64", "--epochs", "1"]
    result = CliRunner().invoke(train_scene_net.main, arguments)
    assert result.exit_code == 0, result.output
    scene_net.build_scene_net().load_weights(file)
