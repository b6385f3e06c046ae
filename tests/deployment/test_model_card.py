"""The card beside an exported model: its facts, its scores, its refusals."""

import json

import pytest
import tiny_captioner

from show_attend_tell.cli import main as cli
from show_attend_tell.deployment.model_card import CardError, write_card

SCORES = {"split": "val", "photos": 1000, "beam": 5, "tokenizer": "ptb"}
SCORES |= {"revision": "7086d1b", "BLEU-4": 20.9715, "CIDEr": 50.6412}


@pytest.fixture
def model(rng, tmp_path):
    identity = {"network": "VGG16", "layer": "block5_conv3", "weights": "mine.h5"}
    made = tiny_captioner.build(rng, {"encoder_identity": identity})
    made.save(tmp_path / "model.keras")
    (tmp_path / "experiment.toml").write_text('[data]\nname = "flickr8k"\n')
    return tmp_path / "model.keras"


def test_the_card_has_the_facts_of_the_model_and_its_run(model, tmp_path, capsys):
    (tmp_path / "scores.json").write_text(json.dumps(SCORES))
    other = json.dumps(SCORES | {"locations": "likeliest", "CIDEr": 37.5})
    (tmp_path / "scores-likeliest.json").write_text(other)
    out = tmp_path / "out" / "shipped.keras"
    arguments = ["export", str(model), "--format", "half", "--out", str(out)]
    cli.main([*arguments, "--accept-imagenet"])
    card = (tmp_path / "out" / "MODEL_CARD.md").read_text("utf-8")
    for text in ("shipped.keras", "VGG16, block5_conv3", "`mine.h5`", "soft attention"):
        assert text in card
    assert "| dev list | 1000 | 5 | ptb | 7086d1b | 20.97 | 50.64 |" in card
    assert "| dev list | 1000 | 5, likeliest | ptb | 7086d1b | 20.97 | 37.50 |" in card
    assert "$" not in card
    assert str(out) in capsys.readouterr().out


def test_a_model_without_scores_says_so(model, tmp_path):
    card = write_card(model, model)
    assert "Not evaluated yet." in card.read_text("utf-8")


def test_a_model_of_other_data_gets_no_card(model, tmp_path):
    (tmp_path / "experiment.toml").write_text('[data]\nname = "scenes"\n')
    assert write_card(model, model) is None
    assert not (tmp_path / "MODEL_CARD.md").exists()
    (tmp_path / "experiment.toml").unlink()
    assert write_card(model, model) is None


def test_damaged_scores_are_refused_in_one_line(model, tmp_path):
    (tmp_path / "scores.json").write_text('{"split": "val"}')
    with pytest.raises(CardError, match="scores.json: must be scores"):
        write_card(model, model)
