"""Define the table ``[data]`` of experiments that read words, ``task = "read"``."""

import dataclasses
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from show_attend_tell.config.fields import STRICT, Count, Name, Seed

_VALIDATION = {"words": 2000, "iiit5k": 400}
_RENDERED = ("count", "fonts", "words", "photos", "seed")  # keys of rendered words


@dataclass(frozen=True, config=STRICT)
class WordSettings:
    """The words of an experiment: rendered words, or crops of photos.

    Attributes:
        name: subfolder of the work folder that holds the prepared words; experiments
            with the same name share them.
        source: ``words``, rendered words, or ``iiit5k``, crops of photos.
        count: number of rendered training words.
        validation: number of validation words; 0 means 2,000 rendered words, or 400 of
            the training crops.
        fonts: folder of font files; by default installed fonts are used.
        words: file of words, one a line; by default an installed list is used.
        photos: folder of photos whose parts become backgrounds.
        seed: seed of the rendered words.
    """

    name: Name
    source: Literal["words", "iiit5k"]
    count: Annotated[int, Field(ge=1, le=100_000_000)] = 300_000
    validation: Count = 0
    fonts: str = ""
    words: str = ""
    photos: str = ""
    seed: Seed = 0

    @model_validator(mode="after")
    def _check_source(self):
        if self.source == "iiit5k":
            usual = {field.name: field.default for field in dataclasses.fields(self)}
            for key in _RENDERED:
                if getattr(self, key) != usual[key]:
                    raise ValueError(
                        f"{key} must go with source = 'words'. Received: source = "
                        f"'iiit5k', {key} = {getattr(self, key)!r}; remove it"
                    )
        return self

    @property
    def held_out(self) -> int:
        """The number of validation words."""
        return self.validation or _VALIDATION[self.source]
