"""Curricula: which tasks are played. A file has one, a subclass of `Curriculum` named after the file."""
