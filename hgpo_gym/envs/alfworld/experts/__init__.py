"""Experts for ALFWorld: the `explorer`, which knows only what it has seen, and the usual places of objects
(`likely_places`)."""
