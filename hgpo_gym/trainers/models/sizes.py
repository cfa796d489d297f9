"""Whether what is about to be made fits this machine: said before its memory is gone."""

import os
from typing import Annotated

from pydantic import Field

BYTES_A_WEIGHT = 16
"""The weight, its gradient and Adam's two means in float32."""

Threads = Annotated[int, Field(gt=0, le=1024)]
"""CPU threads of torch."""


def check_fits(weights: int, shape: str) -> None:
    """Raises ValueError, naming the settings that `shape` quotes, where so many weights cannot be trained here."""
    needed, memory = BYTES_A_WEIGHT * weights, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"{shape}: {weights:,} weights take {needed / 2**30:,.0f} GiB to train, this machine has "
            f"{memory / 2**30:,.0f} GiB. Choose a smaller one."
        )
