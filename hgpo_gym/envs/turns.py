"""Games that change what a process shares: Python's global generators, what is printed, parsers with a state."""

import threading

ONE_AT_A_TIME = threading.RLock()
"""Held while such a game works, of whatever kind: threads take turns."""
