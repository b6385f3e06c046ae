"""A trained model with its encoder: photos in, captions out, from Python."""

import os
from pathlib import Path

from show_attend_tell.config.runs import find_model
from show_attend_tell.inference.captioning import caption_photos, decoding_of
from show_attend_tell.inference.captioning import load as load_parts
from show_attend_tell.inference.result import Caption, Failure
from show_attend_tell.models.captioner import Captioner
from show_attend_tell.models.encoder import Encoder
from show_attend_tell.runtime.errors import CaptionError


class PhotoCaptioner:
    """Writes captions of photos.

    Attributes:
        captioner: the Keras model, annotation vectors -> sentences.
        encoder: photo -> annotation vectors.
    """

    def __init__(self, captioner: Captioner, encoder: Encoder):
        self.captioner = captioner
        self.encoder = encoder

    def caption(
        self,
        photo: str | os.PathLike,
        beam: int | None = None,
        locations: str | None = None,
        seed: int | None = None,
    ) -> Caption:
        """Write the caption of a photo.

        Args:
            photo: its file.
            beam: hypotheses, 1 is greedy; by default the model's own.
            locations: what a word is written from, the ``expected`` context, the
                ``likeliest`` or a ``sampled`` location; by default the model's own.
            seed: of the locations ``sampled``; by default the model's own.

        Returns:
            Its ``text`` and ``words`` (T), ``log_prob``, ``attention`` (T, rows,
            columns), ``beta`` (T), ``locations`` (T) where each word was written from
            one, and ``alternatives``. In Jupyter it shows itself.

        Raises:
            CaptionError: the photo cannot be read, an argument is out of range, or a
                seed is given that changes nothing.
        """
        decoding = decoding_of(self.captioner, beam, locations, seed)
        path = Path(photo)
        if path.is_dir():
            raise CaptionError(
                f"`photo` must be a file. Received: the folder {path}; name one of its "
                "photos, or use caption.caption_photos for all of them"
            )
        (result,) = caption_photos(self.captioner, self.encoder, [path], decoding)
        if isinstance(result, Failure):
            raise CaptionError(result.reason)
        return result


def load(
    model: str | os.PathLike,
    encoder_weights: str | os.PathLike | None = None,
    runs: str | os.PathLike = "experiments/runs",
) -> PhotoCaptioner:
    """Load a trained model with the encoder that it reads.

    Args:
        model: a ``.keras`` file, the folder of a run, or an experiment's name.
        encoder_weights: a file where Keras cannot download the weights; by default
            what the model was trained with.
        runs: folder of the runs that names are looked up in.

    Raises:
        CaptionError: the encoder's weights are not at hand or others than the model
            was trained with.
        ModelFileError: the model's file is absent, damaged or of another model.
        EncoderError: the encoder's weights cannot be loaded.
    """
    return PhotoCaptioner(
        *load_parts(find_model(os.fspath(model), runs), encoder_weights)
    )
