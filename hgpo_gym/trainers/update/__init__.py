"""The policy update."""
