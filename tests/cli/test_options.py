"""The help of verbs that take an experiment lists the shipped ones."""

import pytest

from show_attend_tell.cli import main as cli
from show_attend_tell.config.shipped import experiment_summary, shipped_experiments


@pytest.mark.parametrize("verb", ["prepare", "features", "train", "eval"])
def test_help_lists_every_experiment_with_its_summary(verb, capsys):
    cli.main([verb, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    text = text.replace("- ", "-")  # lines also break after hyphens
    assert len(shipped_experiments()) > 5
    for name, file in shipped_experiments().items():
        assert f" {name} {experiment_summary(file)}" in text


def test_other_verbs_list_no_experiments(capsys):
    cli.main(["caption", "--help"])
    assert "flickr8k_cider" not in capsys.readouterr().out


def test_a_summary_is_the_first_sentence_of_the_header(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text("# One, two:\n# three. Four.\n#\n# five\n[data]\n")
    assert experiment_summary(file) == "One, two: three"
    file.write_text("[data]\n# no header\n")
    assert experiment_summary(file) == ""
