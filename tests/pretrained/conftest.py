"""With a real pretrained model, in an environment of its own: make test-pretrained."""

from tests.support.smollm2 import smollm2

__all__ = ["smollm2"]
