"""Measure the noise of hard attention's sampled gradient beside the exact gradient.

    python research/gradient_noise.py              signal to noise of f_att's gradient
    python research/gradient_noise.py --sizes      the same by number of locations
    python research/gradient_noise.py --marginal   log p of captions by three objectives

The problem is small enough to sum over every sequence of locations: drawn scenes of two
objects (``prepare`` and ``features`` of the experiment scenes first), 2 x 2 locations,
which are means of quadrants, and the five words of a caption without "a" and "of", so
that there are 4^5 = 1,024 sequences. Two models of one seed are trained, with soft
attention and with hard attention by the weights of the authors' code. After some
updates of each, on one minibatch of 32 captions, the gradient g of L_s, Eq. (10), in
the weights of f_att is computed exactly and by samples. Signal to noise is |E g|^2
over the trace of the covariance of g under the sampled locations. A model without f_att
has none. With ``--sizes`` the grid gets finer and one word of the caption is left; only
hard attention is trained, with one sample or more of each caption, and scores are
medians of three seeds. The result is printed in JSON.
"""

import argparse
import json
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from show_attend_tell.config.experiments import load_experiment
from show_attend_tell.config.settings import HardAttentionSettings, ModelSettings
from show_attend_tell.data.splits import load_splits, open_features
from show_attend_tell.evaluation.validation import attention_entropy
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.decoder_interface import Selection
from show_attend_tell.models.losses import token_losses
from show_attend_tell.models.lstm.hard_attention import (
    LocationNoise,
    location_log_probs,
)

T = 5
BATCH = 32
DRAWS = 100
UPDATES = (0, 100, 1000)
KINDS = ("no baseline", "moving baseline", "other samples")
# Side of the grid and samples in training; conv5_3 has 14 x 14 locations.
SIZES = ((2, 1), (7, 1), (14, 1), (14, 5))
SEEDS = (1, 2, 3)
F_ATT = ("w_a_0", "b_a_0", "w_h", "w_att")
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
DROPPED = ("a", "of")
PART = 4  # captions whose sequences are summed together
# Weights of the authors' code: both terms weigh the batch size times their constants.
AUTHORS = {"entropy_weight": 0.002 * BATCH, "reinforce_weight": BATCH}
AUTHORS |= {"reward_per": "caption_mean"}
PLAIN = {"entropy_weight": 0.0, "reward_scale": 1.0, "sampling_probability": 1.0}


def read_scenes(grid, words_kept=T):
    """Return annotations (N, L, D), inputs and targets (N, words), and the vocabulary.

    L is the square of ``grid``.
    """
    experiment = load_experiment("scenes")
    with open_features(experiment, "prepared") as reader:
        (split,) = load_splits(experiment, "prepared", ["train"], reader)
        short = [[w for w in each[0] if w not in DROPPED] for each in split.captions]
        chosen = [k for k, words in enumerate(short) if len(words) == T]
        a = reader.read(split.rows[chosen]).astype(np.float32)
    side = int(a.shape[1] ** 0.5) // grid
    a = a.reshape(len(a), grid, side, grid, side, -1).mean(axis=(2, 4))
    a = a.reshape(len(a), grid**2, -1)  # (N, L, D)
    words = [*SPECIAL, *sorted({word for k in chosen for word in short[k]})]
    targets = np.array([[words.index(w) for w in short[k]] for k in chosen], np.int32)
    starts = np.full((len(targets), 1), SPECIAL.index("<start>"), np.int32)
    inputs = np.hstack([starts, targets[:, :-1]])
    return a / a.std(), inputs[:, :words_kept], targets[:, :words_kept], words


def build(words, width, grid=2, attention="hard", seed=1, **hard):
    """Return a small captioner."""
    settings = ModelSettings(
        attention=attention,
        embedding_width=16,
        lstm_width=32,
        attention_width=16,
        dropout=0.0,
        initializer="glorot",
    )
    return Captioner(
        words,
        settings,
        annotation_width=width,
        grid=(grid, grid),
        doubly_stochastic=0.0,
        hard=HardAttentionSettings(**hard),
        seed=seed,
    )


def _given(alpha, one_hot):
    """Return given context weights (R, L), of which alpha has no gradient."""
    return one_hot, ops.zeros_like(alpha[:, :1])


def enumerator(model, locations, length):
    """Return (a, inputs, targets) -> log p(s|a) and log p(y|s,a), (B, L^T), and g."""
    places = np.stack(np.meshgrid(*[np.arange(locations)] * length, indexing="ij"), -1)
    one_hot = np.eye(locations, dtype=np.float32)[places.reshape(-1, length)]
    weights = f_att(model)

    @tf.function(autograph=False)
    def enumerate_part(a, inputs, targets):
        a = ops.repeat(a, len(one_hot), 0)
        inputs = ops.repeat(inputs, len(one_hot), 0)
        targets = ops.repeat(targets, len(one_hot), 0)
        chosen = ops.tile(one_hot, (PART, 1, 1))  # (PART L^T, T, L)
        with tf.GradientTape() as tape:
            x = {"annotations": a, "tokens": inputs}
            out = model.teacher_force(x, selection=Selection(_given, (chosen,)))
            ones = ops.ones_like(targets, dtype="float32")
            log_p = location_log_probs(out["alpha"], chosen, ones)
            log_p = ops.reshape(ops.sum(log_p, -1), (PART, -1))
            reached = ops.sum(-token_losses(out["logits"], targets), -1)
            reached = ops.reshape(reached, (PART, -1))
            bound = ops.sum(ops.exp(log_p) * ops.stop_gradient(reached)) / BATCH
        return log_p, reached, tape.gradient(bound, weights)

    def enumerate_batch(*batch):
        parts = [
            enumerate_part(*(x[k : k + PART] for x in batch))
            for k in range(0, BATCH, PART)
        ]
        log_p = np.concatenate([part[0] for part in parts])
        reached = np.concatenate([part[1] for part in parts])
        return log_p, reached, sum(flat(part[2]) for part in parts)

    return enumerate_batch


def f_att(model):
    """Return the variables of f_att."""
    return [w.value for w in model.trainable_variables if w.name in F_ATT]


def flat(gradients):
    """Return gradients as one vector."""
    return np.concatenate([np.ravel(g) for g in gradients]).astype(np.float64)


def sampler(model):
    """Return (a, inputs, targets, b, u) -> a sampled gradient, with baseline b."""
    weights = f_att(model)

    @tf.function(autograph=False)
    def sample(a, inputs, targets, b, u):
        model.hard_attention.baseline.assign(b)
        noise = LocationNoise(u, ops.ones_like(u[:, 0]))
        with tf.GradientTape() as tape:
            x = {"annotations": a, "tokens": inputs}
            out = model.teacher_force(x, False, noise.selection(), model.hard.samples)
            out |= {"sampled": noise.sampled}
            loss = -model.compute_loss(y=targets, y_pred=out)
        return tape.gradient(loss, weights)

    return sample


def measure(grid, length, trained, kinds, updates):
    """Train a model of each kind in ``trained`` and yield its scores, as of a run."""
    a, inputs, targets, words = read_scenes(grid, length)
    width = a.shape[2]
    batch = (a[:BATCH], inputs[:BATCH], targets[:BATCH])
    probe = build(words, width, grid, **PLAIN)
    exact = enumerator(probe, grid**2, length)
    samplers = {}
    for kind in kinds:
        hard = {}
        numbers = (1, 5, 20)
        if kind == "other samples":
            hard = {"baseline": "samples"}
            numbers = (5, 20)  # a single sample has no others
        for samples in numbers:
            model = build(words, width, grid, **PLAIN, samples=samples, **hard)
            samplers[kind, samples] = model, sampler(model)
    for name, settings in trained.items():
        model = build(words, width, grid, **settings)
        model.compile(optimizer=keras.optimizers.Adam(3e-3), jit_compile=False)
        x = {"annotations": a, "tokens": inputs}
        done = 0
        rng = np.random.default_rng(1)
        for total in updates:
            for _ in range(total - done):
                rows = rng.integers(BATCH, len(a), BATCH)  # not those of the probe
                part = {key: value[rows] for key, value in x.items()}
                model.train_on_batch(part, targets[rows])
            done = total
            label = f"{name}, after {total} updates"
            print(label, file=sys.stderr, flush=True)
            copy_weights(model, probe)
            common, g = exact_scores(probe, exact, batch)
            if not kinds:
                yield {"label": label, "scores": rounded(common)}
            for kind in kinds:
                b = np.float32(common["L_s"] if kind == "moving baseline" else 0)
                scores = {}
                for (of, samples), (target, sample) in samplers.items():
                    if of == kind:
                        copy_weights(model, target)
                        shape = DRAWS, BATCH * samples, length
                        noise = np.random.default_rng(2).random(shape, np.float32)
                        drawn = np.array([flat(sample(*batch, b, u)) for u in noise])
                        variance = drawn.var(axis=0, ddof=1).sum()
                        scores[f"SNR, {samples}"] = float((g @ g) / variance)
                yield {"label": f"{label}, {kind}", "scores": rounded(common | scores)}


def exact_scores(model, exact, batch):
    """Return the scores of a minibatch by enumeration, and the gradient g."""
    a, inputs, targets = batch
    log_p, reached, g = exact(*batch)
    p = np.exp(log_p.astype(np.float64))
    outputs = model({"annotations": a, "tokens": inputs})
    expected = np.asarray(-token_losses(outputs["logits"], targets)).sum(-1)
    marginal = np.log((p * np.exp(reached.astype(float))).sum(-1))
    scores = {
        "entropy": attention_entropy(np.asarray(outputs["alpha"])).mean(),
        "beta": np.mean(outputs["beta"]),
        "L_s": (p * reached).sum(-1).mean(),
        "log p": marginal.mean(),
        "expected context": expected.mean(),
        "exact norm": np.linalg.norm(g),
    }
    return {name: float(score) for name, score in scores.items()}, g


def medians(grid, samples):
    """Return the medians of scores over seeds, after some updates, with one word."""
    name = f"locations {grid**2}, samples in training {samples}"
    runs = {}
    for seed in SEEDS:
        trained = {name: AUTHORS | {"samples": samples, "seed": seed}}
        for run in measure(grid, 1, trained, ("moving baseline",), UPDATES[1:]):
            runs.setdefault(run["label"], []).append(run["scores"])
    found = []
    for label, each in runs.items():
        scores = {name: float(np.median([x[name] for x in each])) for name in each[0]}
        scores["highest entropy"] = max(x["entropy"] for x in each)
        found.append({"label": label, "scores": scores})
    return found


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--marginal", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    given = parser.parse_args()
    authors = {"hard attention, weights of the authors": AUTHORS}
    both = {"soft attention": {"attention": "soft"}, **authors}
    if given.sizes:
        found = [run for grid, samples in SIZES for run in medians(grid, samples)]
    else:
        found = list(measure(2, T, both, () if given.marginal else KINDS, UPDATES))
    print(json.dumps({"runs": found}))


def copy_weights(source, target):
    """Copy the decoder's weights."""
    for ours, theirs in zip(
        target.decoder.weights, source.decoder.weights, strict=True
    ):
        ours.assign(theirs)


def rounded(scores):
    """Return scores of four significant digits."""
    return {name: float(f"{value:.4g}") for name, value in scores.items()}


if __name__ == "__main__":
    main()
