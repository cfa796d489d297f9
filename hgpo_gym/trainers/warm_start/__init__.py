"""Warm start: imitate episodes before training."""
