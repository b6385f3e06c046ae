"""Compare our training step with the common PyTorch design, on tensors in memory."""

import numpy as np

from benchmarks import synthetic, turns
from benchmarks.cost import training_step
from benchmarks.row import Bar, Row
from benchmarks.sizes import Sizes, chosen
from benchmarks.turns import Contender, Work

BAR = Bar("ratio", least=6)
# steps in a burst
_OURS = 4
_THEIRS = 2
_SECONDS = 45


def ours(
    sizes: Sizes, precision: str, steps: int = _OURS, name: str = "flickr8k_soft"
) -> Work:
    """Prepare our step with the settings of an experiment."""
    from show_attend_tell.runtime.tensorflow_startup import start_tensorflow

    start_tensorflow()
    import tensorflow as tf

    from benchmarks.ours import captioner, experiment
    from show_attend_tell.training.step_tensorflow import compiled_step

    settings = experiment(sizes, name, precision)
    model = captioner(settings, sizes)
    annotations, inputs, targets = map(
        tf.constant, synthetic.batch(np.random.default_rng(1), sizes)
    )
    x = {"annotations": annotations, "tokens": inputs}
    step = compiled_step(model, settings.training).get_concrete_function(x, targets)

    def run():
        for _ in range(steps):
            values = step(x, targets)
        float(values["loss"])

    return Work(run, steps)


def common(sizes: Sizes, steps: int = _THEIRS) -> Work:
    """Prepare the common design's step, in float32 with its own Adam."""
    import torch

    from benchmarks import torch_design

    torch.set_num_threads(turns.cores())
    torch.manual_seed(1)
    model = torch_design.CommonDesign(sizes).train()
    optimizer = torch_design.make_optimizer(model)
    annotations, inputs, targets = synthetic.batch(np.random.default_rng(1), sizes)
    batch = (
        torch.from_numpy(annotations).float(),
        torch.from_numpy(inputs).long(),
        torch.from_numpy(targets).long(),
        [sizes.words] * sizes.batch,
    )

    def run():
        for _ in range(steps):
            torch_design.train_step(model, optimizer, *batch)

    return Work(run, steps)


def rows(machine: dict, quick: bool) -> list[Row]:
    """Measure; return one row for each of our precisions."""
    sizes = chosen(quick)
    contenders = {
        "common": Contender(common, {"sizes": sizes}),
        "float32": Contender(ours, {"sizes": sizes, "precision": "float32"}),
        "bfloat16": Contender(ours, {"sizes": sizes, "precision": "bfloat16"}),
    }
    times = turns.compare(contenders, 1 if quick else _SECONDS)
    B, L, D, A, n, m, K, T = sizes.letters
    widths = f"D, A, n, m {D}, {A}, {n}, {m}"
    return [
        Row(
            work="train_step",
            what=f"{precision}, batch {B}, L {L}, {widths}, K {K}, T {T}",
            unit="s",
            machine=machine,
            **times.fields(precision, "common"),
            bar=BAR if precision == "float32" else None,
            precision=precision,
            note="the baseline is float32; "
            f"medians of {len(times.seconds[precision])} rounds",
        ).limited(training_step(sizes, precision))
        for precision in ("float32", "bfloat16")
    ]
