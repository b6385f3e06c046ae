"""List the decoders by the names that ``model.decoder`` takes."""

from show_attend_tell.models.decoder_interface import CaptionDecoder
from show_attend_tell.models.lstm.decoder import LstmDecoder
from show_attend_tell.models.transformer.decoder import TransformerDecoder

DECODERS: dict[str, type[CaptionDecoder]] = {
    "lstm": LstmDecoder,
    "transformer": TransformerDecoder,
}
