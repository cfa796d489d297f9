"""Who plays ALFWorld well: the `explorer`, who knows what was seen, and where things usually are (`likely_places`)."""
