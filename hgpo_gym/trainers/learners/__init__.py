"""What a run trains."""
