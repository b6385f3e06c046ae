"""Compare our batched beam search with the common design, a photo at a time."""

import numpy as np

from benchmarks import synthetic, turns
from benchmarks.cost import writing
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes, chosen
from benchmarks.turns import Contender, Work
from show_attend_tell.config.settings import DecodingSettings

BAR = Bar("ratio", least=20)
PHOTOS = 1000
BEAM = 5
WORDS = 20
_BATCH = 64
_THEIRS = 10  # photos in a burst of the baseline
_NEVER = -1e4  # added to the logit of <end>: every caption has all words
_SECONDS = 40


def ours(
    sizes: Sizes,
    photos: int,
    beam: int = BEAM,
    words: int = WORDS,
    batch: int = _BATCH,
    name: str = "flickr8k_soft",
) -> Work:
    """Prepare :meth:`Captioner.generate` with the settings of an experiment."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    from benchmarks.ours import captioner, experiment
    from show_attend_tell.data.vocabulary import END
    from show_attend_tell.models.generator import PHOTOS_FOR_XLA

    model = captioner(experiment(sizes, name), sizes)
    bias = np.zeros(sizes.vocabulary, np.float32)
    bias[END] = _NEVER
    model.decoder.l_o_b.assign(bias)
    annotations = synthetic.features(np.random.default_rng(2), photos, sizes)
    request = DecodingSettings(beam=beam, max_words=words, batch_size=batch)
    model.generate(annotations[:1], request, photos=PHOTOS_FOR_XLA)  # compiles

    def run():
        written = model.generate(annotations, request, photos=PHOTOS_FOR_XLA)
        assert (written.lengths[:, 0] == words).all()

    return Work(run, photos)


def common(sizes: Sizes, photos: int = _THEIRS) -> Work:
    """Prepare the common design's search."""
    import torch

    from benchmarks import torch_design

    torch.set_num_threads(turns.cores())
    torch.manual_seed(2)
    model = torch_design.CommonDesign(sizes).eval()
    with torch.no_grad():
        model.fc.bias[torch_design.END] = _NEVER
    rng = np.random.default_rng(2)
    annotations = torch.from_numpy(synthetic.features(rng, photos, sizes)).float()

    def run():
        for photo in annotations:
            words, _ = torch_design.beam_search(model, photo[None], BEAM, WORDS)
            assert len(words) == WORDS

    return Work(run, photos)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return one row, in seconds for all photos."""
    sizes = chosen(quick)
    photos = 20 if quick else PHOTOS
    theirs = 2 if quick else _THEIRS
    contenders = {
        "ours": Contender(ours, {"sizes": sizes, "photos": photos}),
        "common": Contender(common, {"sizes": sizes, "photos": theirs}),
    }
    times = turns.compare(contenders, 1 if quick else _SECONDS, rounds=6)
    row = Row(
        work="beam_search",
        what=f"width {BEAM}, {WORDS} words, {photos} photos, K {sizes.vocabulary}",
        unit="s",
        machine=machine,
        **times.fields("ours", "common", photos),
        bar=BAR,
        note=f"<end> never written; ours in batches of {_BATCH}; the baseline wrote "
        f"{theirs} photos a round and is scaled to {photos}",
    )
    return [row.limited(writing(sizes, photos, BEAM, WORDS))]
