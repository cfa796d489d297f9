"""Collectors: how the groups of tasks are played. A file has one, a subclass of `Collector` named after the file."""
