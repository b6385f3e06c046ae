"""Trace the search of new settings beside the requests whose search is traced."""

from collections.abc import Callable
from functools import partial

from show_attend_tell.config.settings import DecodingSettings
from show_attend_tell.inference.pipeline import CaptioningPipeline
from show_attend_tell.models.generation import static_settings


class Variants:
    """The decoding settings, with their model, whose search is traced already.

    Args:
        samples: captions sampled for a photo.
    """

    def __init__(self, samples: int):
        self.samples = samples
        self._ready: set[tuple[int, DecodingSettings, bool]] = set()

    def compilation(
        self,
        pipeline: CaptioningPipeline,
        decoding: DecodingSettings,
        with_region: bool = False,
    ) -> Callable[[], None] | None:
        """Return the function that traces these settings, None if it is done."""
        key = id(pipeline), static_settings(decoding), with_region
        if key in self._ready:
            return None
        return partial(self._compile, key, pipeline, decoding)

    def _compile(
        self,
        key: tuple[int, DecodingSettings, bool],
        pipeline: CaptioningPipeline,
        decoding: DecodingSettings,
    ) -> None:
        if key not in self._ready:  # another request may have waited for the same
            pipeline.compile(self.samples, decoding, key[-1])
            self._ready.add(key)
