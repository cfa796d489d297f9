"""Filters: which groups, episodes and steps are learned from. A file has one, a subclass of `Filter` named after the
file."""
