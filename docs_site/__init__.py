"""Builds the documentation site: what mkdocs is told beside mkdocs.yml, and the parts that are generated."""
