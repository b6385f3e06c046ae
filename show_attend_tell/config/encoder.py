"""Define the settings of the encoder, and the layers of it that are fine-tuned."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

_STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
_STRICT["str_max_length"] = 4096  # of a path on Linux

# Network and layer whose convolutions can be fine-tuned -> those of its block.
_TRAINABLE = {
    ("VGG16", "block5_conv3"): ("block5_conv1", "block5_conv2", "block5_conv3"),
    ("VGG19", "block5_conv4"): (
        *("block5_conv1", "block5_conv2", "block5_conv3", "block5_conv4"),
    ),
}
_BEFORE = "block4_pool"  # the layer before those convolutions


@dataclass(frozen=True, config=_STRICT)
class EncoderSettings:
    """The network that computes annotation vectors of a photo.

    Attributes:
        network: a class of ``keras.applications``, or ``SceneNet`` of this package.
        layer: name of the layer whose output is stored (after its ReLU for VGG).
        weights: ``imagenet`` (downloaded), ``imagenet_8bit`` (of VGG16, packaged),
            ``scenes`` (of SceneNet, packaged), ``none`` (random, seeded) or the path
            of a ``.weights.h5`` file.
        image_size: side, in pixels, of the network's square input.
        resize: ``crop`` scales the shortest side to 8/7 of ``image_size`` (256 for
            224, the paper's) and crops the centre; ``squash`` scales both sides.
        precision: ``float32``, ``bfloat16``, or ``auto``, which is bfloat16 on a
            graphics processor and on a processor with matrix units for it (AMX), and
            float32 elsewhere; features are stored as float16 in either case.
        mirror: whether to extract mirrored training photos too, which training then
            samples with probability 1/2.
        seed: seed of the random weights, used with ``weights = "none"`` only.
        trainable_from: first convolution to fine-tune, up to ``layer``, the last of
            block 5 of VGG16 or VGG19; empty for none. The output of the layer before
            it is stored, and the fine-tuned convolutions are part of the captioner.
    """

    network: str = "VGG19"
    layer: str = "block5_conv4"
    weights: str = "imagenet"
    image_size: Annotated[int, Field(gt=0, lt=2**31)] = 224
    resize: Literal["crop", "squash"] = "crop"
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    mirror: bool = False
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    trainable_from: str = ""

    @model_validator(mode="after")
    def _check_trainable(self):
        names = _TRAINABLE.get((self.network, self.layer), ())
        if self.trainable_from and self.trainable_from not in names:
            known = " or ".join(f"{one}'s {layer}" for one, layer in _TRAINABLE)
            raise ValueError(
                "trainable_from must be empty or a convolution of block 5, such as "
                f"block5_conv1, with {known} as network and layer. Received: "
                f"trainable_from = {self.trainable_from!r}, network = "
                f"{self.network!r}, layer = {self.layer!r}"
            )
        return self

    @property
    def trainable_layers(self) -> tuple[str, ...]:
        """The names of the fine-tuned convolutions, in order; empty for none."""
        if not self.trainable_from:
            return ()
        names = _TRAINABLE[self.network, self.layer]
        return names[names.index(self.trainable_from) :]

    @property
    def cached_layer(self) -> str:
        """The layer whose output is stored: ``layer``, or the one before the above."""
        if not self.trainable_from:
            return self.layer
        names = (_BEFORE, *_TRAINABLE[self.network, self.layer])
        return names[names.index(self.trainable_from) - 1]
