"""The common PyTorch design learns, and reads and writes as it is defined.

Run by tests/test_benchmarks.py in a process without TensorFlow.
"""

import itertools

import numpy as np
import pytest
import torch

from benchmarks import synthetic, torch_design
from benchmarks.sizes import TINY, Sizes


@pytest.fixture
def model():
    """The common PyTorch design, tiny and always the same."""
    torch.set_num_threads(1)  # tiny work is slower with more threads
    torch.manual_seed(0)
    return torch_design.CommonDesign(TINY, dropout=0.0)


def torch_batch(lengths):
    arrays = synthetic.batch(np.random.default_rng(0), TINY)
    a, inputs, targets = map(torch.from_numpy, arrays)
    targets = targets.long()
    for k, length in enumerate(lengths):
        targets[k, length:] = 0
    return a.float(), inputs.long(), targets, lengths


def test_the_common_design_learns(model):
    optimizer = torch_design.make_optimizer(model)
    batch = torch_batch([4, 4, 4, 4])
    losses = [torch_design.train_step(model, optimizer, *batch) for _ in range(30)]
    assert losses[-1] < losses[0]


def test_the_common_design_reads_a_caption_alone_as_in_a_batch(model):
    a, inputs, _, lengths = torch_batch([4, 3, 3, 1])
    logits, alpha = model(a, inputs, lengths)
    alone, _ = model(a[2:3], inputs[2:3], [3])
    np.testing.assert_allclose(
        logits[2, :3].detach(), alone[0].detach(), rtol=1e-5, atol=1e-6
    )
    assert not logits[3, 1:].any()
    np.testing.assert_allclose(alpha[0].sum(-1).detach(), 1, rtol=1e-5)


@pytest.mark.parametrize("photo", range(4))
def test_a_beam_as_wide_as_the_tree_is_brute_force(photo):
    torch.manual_seed(photo)
    sizes = Sizes(1, 4, 8, 8, 8, 8, vocabulary=5, words=3)
    model = torch_design.CommonDesign(sizes).eval()
    with torch.no_grad():
        model.fc.weight.mul_(8)  # so that probabilities of captions differ
    a = torch.randn(1, 4, 8)
    end, best = torch_design.END, (-np.inf, [])
    for length in range(1, sizes.words + 1):
        for words in itertools.product(range(sizes.vocabulary), repeat=length - 1):
            if end in words:
                continue
            caption = [*words, end]
            inputs = torch.tensor([[torch_design.START, *words]])
            logits, _ = model(a, inputs, [length])
            each = torch.log_softmax(logits[0], -1)[range(length), caption]
            best = max(best, (float(each.sum().detach()), caption))
    words, score = torch_design.beam_search(model, a, 125, sizes.words)
    assert words == best[1]
    assert score == pytest.approx(best[0], rel=1e-4)
