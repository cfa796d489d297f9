"""The fixture of a real model."""

from tests.support.smollm2 import smollm2

__all__ = ["smollm2"]
