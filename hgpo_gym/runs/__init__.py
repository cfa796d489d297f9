"""Run directories: checkpoints, metrics, loggers and diagnostics. Nothing here loads torch."""
