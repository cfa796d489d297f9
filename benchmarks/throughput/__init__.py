"""Generated tokens a second and trained tokens a second, ours beside others'."""
