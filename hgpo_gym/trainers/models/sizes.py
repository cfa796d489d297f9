"""Check that a model fits in this machine's memory before it is made."""

import os
from typing import Annotated

from pydantic import Field

BYTES_A_WEIGHT = 16
"""The weight, its gradient and Adam's two means in float32."""

Threads = Annotated[int, Field(gt=0, le=1024)]
"""CPU threads of torch."""


def check_fits(weights: int, shape: str) -> None:
    """Raise ValueError if so many weights cannot be trained here. `shape` names the settings for the message."""
    needed, memory = BYTES_A_WEIGHT * weights, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"{shape}: {weights:,} weights take {needed / 2**30:,.0f} GiB to train, this machine has "
            f"{memory / 2**30:,.0f} GiB. Choose a smaller one."
        )
