"""With a real pretrained model, in a separate environment: make test-pretrained."""

from tests.support.smollm2 import smollm2

__all__ = ["smollm2"]
