"""Define the types of values that several tables of settings share."""

from typing import Annotated

from pydantic import ConfigDict, Field

STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True, allow_inf_nan=False)
STRICT["str_max_length"] = 4096  # of a path on Linux

# The name of a folder: no separator and no "..", so that it cannot leave its parent.
Name = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9](\.?[A-Za-z0-9_-])*\.?$", max_length=200)
]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
Width = Annotated[int, Field(gt=0, le=4096)]  # of a layer; limits memory
NonNegative = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
# Sums such as seed + 4 must fit the 32 bits of a random generator's state.
Seed = Annotated[int, Field(ge=0, lt=2**31)]
