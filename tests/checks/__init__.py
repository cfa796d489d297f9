"""What tests check in small and benchmarks at length: used by both, and importing nothing of benchmarks."""
