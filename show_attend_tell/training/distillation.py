"""Distil an ensemble: train one captioner on the word probabilities of several.

The teachers and the student read the given captions y (teacher forcing). A teacher's
words are p_mt = softmax(l_mt / tau), and its weight grows with its probability of the
caption, v_m ~ prod_t p_mt(y_t)^kappa: with 0 all teachers weigh the same, with 1 v_m is
the posterior of a mixture of the teachers, so that each teaches the photos that it
knows best. With their mean p_t = sum_m v_m p_mt, the student's q_t = softmax(l_t / tau)
and the weight w of the given captions, the loss of a caption is::

    (1 - w) tau^2 sum_t KL(p_t || q_t) - w sum_t log q(y_t) + lambda sum_i (...)^2
        + mu sum_t KL(sum_m v_m alpha_mt || alpha_t)

(Hinton et al., arXiv:1503.02531, Sec. 2); the third term is that of Eq. (14), and log q
is taken at tau = 1. With mu the student also learns where the teachers look: alpha_mt
is the attention that a teacher shows, of the layer and head chosen in its file
(Zagoruyko and Komodakis, arXiv:1612.03928, teach attention by its squared distance).
The teachers run without dropout, in the compiled step, outside of its gradient.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from keras import ops

from show_attend_tell.config.captioner import DECODERS
from show_attend_tell.config.settings import DistillationSettings, Experiment
from show_attend_tell.data.dataset import FeatureViews
from show_attend_tell.data.encoder_identity import identity_difference
from show_attend_tell.data.splits import Split
from show_attend_tell.data.vocabulary import PAD
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.generator import Generator
from show_attend_tell.models.saving import load_captioner
from show_attend_tell.runtime.errors import ConfigError, ModelFileError
from show_attend_tell.training.maximum_likelihood import Likelihood
from show_attend_tell.training.step import compile_parts
from show_attend_tell.training.workers import Workers

_DROPOUT = ("dropout", "embedding_dropout", "init_dropout", "channel_dropout")


def make_distillation(
    experiment: Experiment,
    model: Captioner,
    data: Split,
    views: FeatureViews,
    workers: Workers,
    files: Sequence[Path],
) -> Likelihood:
    """Return the objective that trains a model on the words of teachers.

    The arguments are those of :class:`maximum_likelihood.Likelihood`, and ``files``,
    the model files of the teachers.

    Raises:
        ConfigError: there are several workers, or attention must be learnt and a model
            has none.
        ModelFileError: a file is no captioner, or has another vocabulary or encoder.
    """
    if workers.count > 1:
        raise ConfigError(
            "`training.objective` must be likelihood or cider on several workers. "
            "Received: 'distil'; train it on one machine"
        )
    teachers = [load_captioner(file) for file in files]
    names = ["the experiment", *map(str, files)]
    # Refuses models that differ in vocabulary or encoder.
    ensemble = Generator([model, *teachers], names=names)
    if difference := identity_difference(
        ensemble.encoder_identity, model.encoder_identity
    ):
        raise ModelFileError(
            "the features must be made by the teachers' encoder. Received: "
            f"{difference}; extract them with encoder.weights = 'imagenet_8bit'"
        )
    teachers = [_without_dropout(teacher) for teacher in teachers]
    members = zip(names, [model, *teachers], strict=True)
    without = [name for name, one in members if not one.settings.attends]
    if experiment.distillation.attention and without:
        raise ConfigError(
            "`distillation.attention` needs attention in the model and its teachers. "
            f"Received: {without[0]} without it; set distillation.attention = 0"
        )
    for teacher in teachers:
        compile_parts(teacher, experiment.training)
    loss_of = loss_of_batch(model, teachers, experiment.distillation)
    return Likelihood(
        experiment, model, data, views, loss_of=loss_of, teachers=teachers
    )


def _without_dropout(teacher: Captioner) -> Captioner:
    """Return a copy whose training pass, the one compiled in parts, has no dropout."""
    config = teacher.get_config()
    config["settings"] |= dict.fromkeys(_DROPOUT, 0.0)
    # A Transformer has its dropout in a table of its own.
    config[DECODERS[teacher.settings.decoder].table] |= {"dropout": 0.0}
    copy = Captioner.from_config(config)
    copy.set_weights(teacher.weights)
    return copy


def loss_of_batch(
    model: Captioner, teachers: Sequence[Captioner], settings: DistillationSettings
) -> Callable:
    """Return a function of a batch, x and targets, that returns a student's loss.

    The teachers have no dropout.
    """

    def loss_of(x, targets):
        probabilities, attention = mean_outputs(teachers, x, targets, settings)
        return distillation_loss(model, x, targets, probabilities, attention, settings)

    return loss_of


def mean_outputs(
    teachers: Sequence[Captioner], x: dict, targets, settings: DistillationSettings
) -> tuple:
    """Return the teachers' weighted mean p, (B, T, K), and alpha, (B, T, L).

    Args:
        teachers: captioners without dropout.
        x: annotations (B, L, D) and input tokens (B, T).
        targets: words of the given captions, (B, T), 0 for padding.
        settings: temperature and exponent of the weights.
    """
    mask = ops.cast(ops.not_equal(targets, PAD), "float32")  # (B, T)
    words = []
    alphas = []
    scores = []
    for teacher in teachers:
        # In training, because only then the compiled parts are used. Not by calling the
        # teacher, which would sample locations if its attention is hard.
        outputs = teacher.teacher_force(x, training=True)
        logits = ops.cast(outputs["logits"], "float32")
        words.append(ops.softmax(logits / settings.temperature))
        alphas.append(ops.cast(outputs["alpha"], "float32"))
        truth = ops.take_along_axis(words[-1], targets[..., None], axis=-1)[..., 0]
        scores.append(ops.sum(ops.log(ops.maximum(truth, 1e-9)) * mask, axis=1))
    # v_m = prod_t p_mt(y_t)^kappa / sum_m of the same, in logarithms: the product over
    # a caption would underflow.
    scores = settings.posterior * ops.stack(scores)  # (M, B)
    # v_m, (M, B, 1, 1)
    weights = ops.exp(scores - ops.logsumexp(scores, axis=0))[..., None, None]
    # By their index, because a graph of TensorFlow cannot iterate over a tensor.
    mean_words = sum(weights[m] * each for m, each in enumerate(words))
    mean_alpha = sum(weights[m] * each for m, each in enumerate(alphas))
    return mean_words, mean_alpha


def distillation_loss(
    model: Captioner,
    x: dict,
    targets,
    probabilities,
    attention,
    settings: DistillationSettings,
):
    """Return the mean over captions of the loss of this module.

    ``model`` is the student, ``probabilities`` and ``attention`` are the teachers', see
    :func:`mean_outputs`.
    """
    outputs = model(x, training=True)
    mask = ops.cast(ops.not_equal(targets, PAD), "float32")  # (B, T)
    # The weight multiplies the words' term of the loss, but not the term of Eq. (14).
    weight = settings.truth_weight * ops.ones_like(mask[:, 0])  # (B,)
    truth = model.compute_loss(x, targets, outputs, weight, training=True)
    logits = outputs["logits"]
    tau = settings.temperature
    log_q = ops.log_softmax(ops.cast(logits, "float32") / tau)
    # tau^2 keeps the size of the gradient, which falls with 1 / tau^2 (Hinton et al.,
    # Sec. 2).
    words = tau**2 * _divergence(probabilities, log_q)  # (B, T)
    taught = (1 - settings.truth_weight) * words
    if settings.attention:
        alpha = ops.cast(outputs["alpha"], "float32")
        log_alpha = ops.log(ops.maximum(alpha, 1e-30))
        taught += settings.attention * _divergence(attention, log_alpha)
    # The mean over captions, as in `compute_loss`: rows that fill up a batch have no
    # words.
    captions = ops.sum(ops.cast(ops.any(mask > 0, axis=1), "float32"))
    return truth + ops.sum(taught * mask) / ops.maximum(captions, 1.0)


def _divergence(p, log_q):
    """Return KL(p || q) over the last axis; 0 log 0 = 0."""
    log_p = ops.log(ops.maximum(p, 1e-30))
    return ops.sum(p * (log_p - log_q), axis=-1)
