"""A tiny model with stored weights and outputs: numbers change on purpose only."""

import numpy as np
import pytest
from make_golden import GOLDEN, models, outputs


def part(stored, kind):
    prefix = f"{kind}/"
    return {
        name.removeprefix(prefix): stored[name]
        for name in stored.files
        if name.startswith(prefix)
    }


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN, allow_pickle=False) as stored:
        return {kind: part(stored, kind) for kind in ("weight", "input", "output")}


def test_the_stored_weights_give_the_stored_outputs(golden):
    soft, hard = models()
    for model in (soft, hard):
        names = {w.path.partition("/")[2]: w for w in model.trainable_weights}
        kept = {path.partition("/")[2]: v for path, v in golden["weight"].items()}
        assert names.keys() == kept.keys()
        for name, weight in names.items():
            weight.assign(kept[name])
    found = outputs(soft, hard, golden["input"])
    assert found.keys() == golden["output"].keys()
    for name, expected in golden["output"].items():
        np.testing.assert_allclose(found[name], expected, 1e-5, 1e-5, err_msg=name)
