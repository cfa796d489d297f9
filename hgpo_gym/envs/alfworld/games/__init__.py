"""ALFWorld's games on disk: their `files`, and the `index` of what was found in them."""
