"""Sokoban in text: push boxes onto goals, on generated levels that a solver has solved."""
