"""Write tests/golden/captioner.npz: the weights and outputs of a tiny seeded model.

Run it (``python tests/support/make_golden.py``) only when numbers are meant to change,
and give the reason in the commit.
"""

from pathlib import Path

import hard_model
import numpy as np
import tiny_captioner as tiny
from tiny_captioner import B, T

from show_attend_tell.config.settings import DecodingSettings

GOLDEN = Path(__file__).parents[1] / "golden" / "captioner.npz"
BASELINE = -4.0
FIELDS = ("tokens", "lengths", "log_probs", "alpha", "beta", "locations")


def inputs():
    """Return a batch and the noise of hard attention, from one seed."""
    rng = np.random.default_rng(2015)
    batch = tiny.batch(rng)
    noise = hard_model.location_noise(rng, B, sampled=np.float32([1, 0, 1]))
    return dict(zip(("a", "x", "y", "u", "sampled"), (*batch, *noise), strict=True))


def models():
    """Return a soft and a hard model of the same random weights."""
    arguments = {"label_smoothing": 0.1, "doubly_stochastic": 0.5}
    switches = {"attention_layers": 2, "init_layers": 2}
    soft = tiny.build(np.random.default_rng(1502), arguments, 0.6, **switches)
    hard = hard_model.build(
        np.random.default_rng(1502), spread=0.6, arguments=arguments, **switches
    )
    return soft, hard


def outputs(soft, hard, batch):
    """Return the outputs of the models: name -> array."""
    a, x, y, u, sampled = batch.values()
    values = tiny.arrays(soft({"annotations": a, "tokens": x}))
    values["loss"] = soft.compute_loss(y=y, y_pred=values, training=True)
    hard.hard_attention.baseline.assign(BASELINE)
    noise = hard_model.LocationNoise(u, sampled)
    hard_outputs = hard_model.outputs_of(hard, a, x, noise)
    loss = hard.compute_loss(y=y, y_pred=hard_outputs, training=True)
    generated = {
        "soft": soft.generate(a, DecodingSettings(beam=3, max_words=T, batch_size=B)),
        "hard": hard.generate(
            a,
            DecodingSettings(
                method="greedy", max_words=T, locations="likeliest", batch_size=B
            ),
        ),
    }
    values["hard_logits"] = hard_outputs["logits"]
    values["looked"] = hard_outputs["context_weights"]  # the name in the file
    values |= {"hard_loss": loss, "baseline": hard.hard_attention.baseline}
    for kind, found in generated.items():
        values |= {f"{kind}_{name}": getattr(found, name) for name in FIELDS}
    return {name: np.asarray(value) for name, value in values.items()}


def main():
    """Write the file."""
    soft, hard = models()
    batch = inputs()
    weights = {w.path: np.asarray(w) for w in soft.trainable_weights}
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        GOLDEN,
        **{f"weight/{path}": value for path, value in weights.items()},
        **{f"input/{name}": value for name, value in batch.items()},
        **{
            f"output/{name}": value
            for name, value in outputs(soft, hard, batch).items()
        },
    )


if __name__ == "__main__":
    main()
