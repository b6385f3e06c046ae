"""Compare the Transformer decoder with the LSTM decoder of equal width.

Both are the captioner of this package: a training step, and beam search.
"""

import dataclasses

from benchmarks import beam_search, turns
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes, chosen
from benchmarks.train_step import ours as train_step
from benchmarks.turns import Contender

STEP_BAR = Bar("ratio", least=1.5)
SEARCH_BAR = Bar("ratio", least=0.7)
WIDTH = 256  # of the Transformer's layers, and of A, n and m of the LSTM
_LSTM = "flickr8k_soft"
_TRANSFORMER = "flickr8k_transformer"
_PHOTOS = 128  # written in a burst
_SECONDS = 40


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return a row for the training step in each precision and for a beam."""
    sizes = chosen(quick)
    if not quick:
        widths = dict.fromkeys(
            ("attention_width", "lstm_width", "embedding_width"), WIDTH
        )
        sizes = dataclasses.replace(sizes, **widths)
    steps = [_step_row(machine, quick, sizes, p) for p in ("float32", "bfloat16")]
    return [*steps, _search_row(machine, quick, sizes)]


def _times(prepare, quick: bool, sizes: Sizes, **options) -> turns.Times:
    contenders = {
        name: Contender(prepare, {"sizes": sizes, "name": name, **options})
        for name in (_LSTM, _TRANSFORMER)
    }
    return turns.compare(contenders, 1 if quick else _SECONDS)


def _step_row(machine: dict, quick: bool, sizes: Sizes, precision: str) -> Row:
    times = _times(train_step, quick, sizes, precision=precision)
    return Row(
        work="decoders",
        what=f"training step, Transformer against LSTM, {precision}, batch "
        f"{sizes.batch}, width {sizes.lstm_width}, T {sizes.words}",
        unit="s",
        machine=machine,
        **times.fields(_TRANSFORMER, _LSTM),
        bar=STEP_BAR,
        precision=precision,
        note="the baseline is the LSTM decoder of this package",
    )


def _search_row(machine: dict, quick: bool, sizes: Sizes) -> Row:
    photos, words = (8, 4) if quick else (_PHOTOS, beam_search.WORDS)
    given = {"photos": photos, "words": words}
    times = _times(beam_search.ours, quick, sizes, **given)
    return Row(
        work="decoders",
        what=f"beam search, Transformer against LSTM, width {beam_search.BEAM}, "
        f"{words} words",
        unit="s per photo",
        machine=machine,
        **times.fields(_TRANSFORMER, _LSTM),
        bar=SEARCH_BAR,
        note="the baseline is the LSTM decoder of this package",
    )
