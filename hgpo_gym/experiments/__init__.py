"""Many runs: comparisons."""
