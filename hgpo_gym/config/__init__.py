"""Configurations: composed by Hydra, then checked and parsed once."""
