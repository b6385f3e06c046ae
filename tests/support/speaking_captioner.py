"""A captioner and its encoder, without training, that write different captions."""

import numpy as np

from show_attend_tell.config.settings import EncoderSettings, ModelSettings
from show_attend_tell.data.vocabulary import SPECIAL, Vocabulary
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder

WORDS = ("a", "red", "blue", "circle", "square", "above", "below", "the")
ENCODER = EncoderSettings("SceneNet", "annotations", "none", 32, "crop")
DECODING = {"beam": 3, "max_words": 6, "length_normalisation": 0.5}


def make_captioner(encoder: Encoder, identity: dict | None = None) -> Captioner:
    """A small captioner with weights so large that photos get different captions."""
    model = Captioner(
        Vocabulary((*SPECIAL, *WORDS)),
        ModelSettings(embedding_width=8, lstm_width=8, attention_width=8),
        annotation_width=encoder.width,
        grid=encoder.grid,
        encoder_identity=encoder.identity() if identity is None else identity,
        decoding=DECODING,
    )
    model.set_annotation_scale(1 / 60)
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.7, variable.shape))
    return model
