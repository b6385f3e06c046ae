"""Compute the attention of each head of a Transformer at the words of a caption."""

import numpy as np
from matplotlib.figure import Figure

from show_attend_tell.data.region import cell_shares
from show_attend_tell.data.vocabulary import START
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.inference.result import Caption
from show_attend_tell.inference.visualization.heads_figure import heads_figure
from show_attend_tell.models.generation import make_region_bias


def head_attention(pipeline: CaptioningPipeline, caption: Caption) -> np.ndarray | None:
    """Return the attention of all layers and heads at each word of a caption.

    The photo is encoded again, and the words are read together.

    Args:
        pipeline: the pipeline that generated the caption.
        caption: T words, and the photo as the network sees it.

    Returns:
        (layers, heads, T, rows, columns), each map of sum 1; None for an ensemble, a
        decoder without heads, and a caption without words.
    """
    captioner, T = pipeline.generator.captioner, len(caption.words)
    if captioner is None or not T:
        return None
    ids = captioner.vocabulary.encode(caption.words[:-1])
    inputs = np.array([[START, *ids]], np.int32)  # (1, T)
    features = pipeline.encoder.encode(caption.square[None])  # (1, L, D)
    bias = None
    if caption.region is not None:
        shares = cell_shares(caption.region, captioner.grid)[None]  # (1, L)
        region = make_region_bias(shares, 1, shares.shape[1], captioner.decoding)
        held = np.arange(T)[None, :, None] < region.words  # (1, T, 1)
        bias = np.where(held, region.scores[:, None], 0).astype(np.float32)
    weights = captioner.attention_heads(features, inputs, bias)
    if weights is None:
        return None
    # (1, N, H, T, L) -> (N, H, T, rows, columns)
    return weights[0].reshape(*weights.shape[1:4], *captioner.grid)


def heads_figure_of(
    pipeline: CaptioningPipeline, caption: Caption, dark: bool = False
) -> Figure | None:
    """Draw the attention of the heads, or return None; see :func:`head_attention`."""
    weights = head_attention(pipeline, caption)
    if weights is None:
        return None
    settings = pipeline.captioner.transformer
    layer = settings.alpha_layer or settings.layers
    return heads_figure(caption.view, caption.words, weights, layer, dark)
