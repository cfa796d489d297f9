"""Environments that are played over HTTP."""
