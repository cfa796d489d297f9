"""Weights that imitate episodes, before training."""
