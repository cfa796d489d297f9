"""Experiments of many runs: comparisons and leagues."""
