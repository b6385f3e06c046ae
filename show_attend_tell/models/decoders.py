"""List the decoders by the names that ``model.decoder`` takes.

To add a decoder, implement :class:`models.decoder_interface.CaptionDecoder` in a folder
beside ``lstm/`` and ``transformer/``, add it to :data:`DECODERS`, and add its name to
``ModelSettings.decoder`` in :mod:`config.captioner`.
"""

from show_attend_tell.models.decoder_interface import CaptionDecoder
from show_attend_tell.models.lstm.decoder import LstmDecoder
from show_attend_tell.models.transformer.decoder import TransformerDecoder

DECODERS: dict[str, type[CaptionDecoder]] = {
    "lstm": LstmDecoder,
    "transformer": TransformerDecoder,
}
