"""Configurations: composed by Hydra, checked and parsed once."""
