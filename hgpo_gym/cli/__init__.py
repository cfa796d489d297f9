"""The command hgpo-gym."""
