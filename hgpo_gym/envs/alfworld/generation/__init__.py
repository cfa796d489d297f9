"""Games for a machine without any download: the generated `splits`, their `games`, and the `rooms` these are set in."""
