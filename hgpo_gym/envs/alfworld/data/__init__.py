"""ALFWorld's released games, and the command `hgpo-gym data alfworld` that brings them here."""
