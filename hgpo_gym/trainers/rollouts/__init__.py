"""Collecting episodes."""
