"""The card of a model that is given to others: what it is, how good, and its limits."""

import json
import os
import string
import tomllib
from importlib.resources import files
from pathlib import Path

from show_attend_tell.models.saving import load_captioner

_NAMES = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr")
_SPLITS = {"val": "dev list", "test": "test list"}


class CardError(ValueError):
    """A card that cannot be written; the message is one line for the user."""


def write_card(model: str | Path, shipped: str | Path) -> Path | None:
    """Write MODEL_CARD.md beside an exported model of Flickr8k, all or nothing.

    What is said of the data holds for Flickr8k only, so other models get no card. The
    run folder's ``experiment.toml`` tells which data it was. The scores are those that
    lie beside the model in its run folder, in ``scores*.json`` as ``eval`` leaves them;
    without them the card says so.

    Args:
        model: the ``.keras`` file that was trained.
        shipped: the file that was exported.

    Returns:
        The card; None where the model's data are not known to be Flickr8k.

    Raises:
        ModelFileError: the model cannot be read.
        CardError: a file of scores is damaged.
    """
    if _data_name(Path(model).parent) != "flickr8k":
        return None
    captioner, shipped = load_captioner(model), Path(shipped)
    identity, settings = captioner.encoder_identity, captioner.settings
    template = files(__package__).joinpath("model_card.md")
    card = string.Template(template.read_text(encoding="utf-8")).substitute(
        file=shipped.name,
        megabytes=f"{shipped.stat().st_size / 1e6:.1f}",
        attention=settings.attention,
        network=identity.get("network", "an unknown network"),
        layer=identity.get("layer", "an unknown layer"),
        side=identity.get("image_size", "?"),
        weights=identity.get("weights", "?"),
        words=len(captioner.vocabulary),
        lstm=settings.lstm_width,
        embedding=settings.embedding_width,
        beam=captioner.decoding.beam,
        scores=_scores(Path(model).parent),
    )
    path = shipped.with_name("MODEL_CARD.md")
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(card, encoding="utf-8")
    os.replace(temporary, path)
    return path


def _data_name(folder: Path) -> str | None:
    """Return the name of the data that a run was trained on."""
    try:
        settings = tomllib.loads((folder / "experiment.toml").read_text("utf-8"))
        return settings["data"]["name"]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None


def _beam(report: dict) -> str:
    """Tell the beam and, unless it was the expected context, the locations used."""
    locations = report.get("locations", "expected")
    looked = "" if locations == "expected" else f", {locations}"
    if "seed" in report:
        looked += f", seed {report['seed']}"
    return f"{report['beam']}{looked}"


def _scores(folder: Path) -> str:
    """Return the table of the scores in a run folder."""
    reports = []
    for file in sorted(folder.glob("scores*.json")):
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
            made = [_SPLITS.get(report["split"], report["split"]), report["photos"]]
            made += [_beam(report), report["tokenizer"], report["revision"]]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise CardError(
                f"{file}: must be scores as `eval` writes them ({error!r}); remove it "
                "or evaluate again"
            ) from None
        reports.append((made, report))
    reports.sort(key=lambda pair: (pair[0][0], int(pair[1]["beam"]), pair[0][2]))
    if not reports:
        return "Not evaluated yet."
    names = [n for n in _NAMES if any(n in report for _, report in reports)]
    lines = [
        ("list", "photos", "beam", "tokenizer", "revision", *names),
        ("---",) * (5 + len(names)),
    ]
    for made, report in reports:
        numbers = [f"{report[n]:.2f}" if n in report else "" for n in names]
        lines.append((*map(str, made), *numbers))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
