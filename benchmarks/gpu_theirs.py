"""Prepare PyTorch's contenders, eager and compiled, for :mod:`benchmarks.gpu`."""

import contextlib

import numpy as np
import torch
from torch import nn

from benchmarks import synthetic, torch_design
from benchmarks.machine import best_rate
from benchmarks.sizes import Sizes
from benchmarks.turns import Work

_NEVER = -1e4  # added to the logit of <end>
# Channels of VGG19's blocks and how many convolutions each has, up to block5_conv4.
_VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _facts() -> dict:
    on_gpu = _device().type == "cuda"
    return {"peak": torch.cuda.max_memory_allocated() if on_gpu else None}


def _wait() -> None:
    if _device().type == "cuda":
        torch.cuda.synchronize()


def _in_precision(precision: str):
    """Set the precision of products and convolutions; return a context manager.

    By default PyTorch rounds the factors of convolutions to TensorFloat-32, and those
    of products not.
    """
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if precision == "bfloat16":
        return torch.autocast(_device().type, torch.bfloat16)
    return contextlib.nullcontext()


def device() -> dict:
    """Return the GPU's name and memory, None without a GPU."""
    if not torch.cuda.is_available():
        return {"gpu": None, "gpu_memory_gib": None}
    about = torch.cuda.get_device_properties(0)
    return {"gpu": about.name, "gpu_memory_gib": about.total_memory / 2**30}


def rates(side: int, copied: int) -> dict[str, float]:
    """Return operations a second in products and bytes a second in a copy."""
    where = _device()
    found = {}
    for name in ("float32", "tf32", "bfloat16"):
        kind = torch.bfloat16 if name == "bfloat16" else torch.float32
        _in_precision(name)
        a, b = (torch.randn(side, side, device=where).to(kind) for _ in range(2))

        def multiply(a=a, b=b):
            torch.matmul(a, b)
            _wait()

        found[name] = best_rate(multiply, 2 * side**3)
    source = torch.ones(copied // 4, device=where)
    target = torch.empty_like(source)

    def copy():
        target.copy_(source)
        _wait()

    return {**found, "bandwidth": best_rate(copy, 2 * copied)}


def train_step(sizes: Sizes, precision: str, steps: int, compiled: bool) -> Work:
    """Prepare the common design's step."""
    where = _device()
    torch.manual_seed(1)
    model = torch_design.CommonDesign(sizes).to(where).train()
    optimizer = torch_design.make_optimizer(model)
    annotations, inputs, targets = synthetic.batch(np.random.default_rng(1), sizes)
    batch = (
        torch.from_numpy(annotations).to(where).float(),
        torch.from_numpy(inputs).to(where).long(),
        torch.from_numpy(targets).to(where).long(),
        [sizes.words] * sizes.batch,
    )
    called = torch.compile(model) if compiled else model
    autocast = _in_precision(precision)

    def run():
        for _ in range(steps):
            torch_design.train_step(called, optimizer, *batch, autocast=autocast)
        _wait()

    return Work(run, steps, _facts)


def decode(
    sizes: Sizes, precision: str, beam: int, words: int, photos: int, compiled: bool
) -> Work:
    """Prepare the common design's search, one photo at a time."""
    where = _device()
    torch.manual_seed(2)
    model = torch_design.CommonDesign(sizes).to(where).eval()
    with torch.no_grad():
        model.fc.bias[torch_design.END] = _NEVER
    if compiled:
        model.step = torch.compile(model.step)
    rng = np.random.default_rng(2)
    annotations = torch.from_numpy(synthetic.features(rng, photos, sizes))
    annotations = annotations.to(where).float()
    autocast = _in_precision(precision)

    def run():
        with autocast:
            for photo in annotations:
                torch_design.beam_search(model, photo[None], beam, words)
        _wait()

    return Work(run, photos, _facts)


def vgg19() -> nn.Sequential:
    """Return VGG19 up to block5_conv4 and its ReLU."""
    layers = []
    channels = 3
    for block, (width, convolutions) in enumerate(_VGG19):
        layers += [nn.MaxPool2d(2)] if block else []
        for _ in range(convolutions):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
    return nn.Sequential(*layers)


def extract(batch: int, side: int, precision: str, compiled: bool) -> Work:
    """Prepare VGG19 to block5_conv4: bytes in, float16 out."""
    where = _device()
    model = vgg19().to(where).eval().to(memory_format=torch.channels_last)
    model = torch.compile(model) if compiled else model
    squares = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
    squares = squares.to(where).contiguous(memory_format=torch.channels_last)
    mean = torch.tensor([103.939, 116.779, 123.68], device=where).view(1, 3, 1, 1)
    autocast = _in_precision(precision)

    def run():
        with torch.no_grad(), autocast:
            model(squares.flip(1).float() - mean).half()
        _wait()

    return Work(run, batch, _facts)
