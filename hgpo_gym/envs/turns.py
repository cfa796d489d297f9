"""Lock for games that change the state of the process: Python's global generators, standard output, parsers with a
state."""

import threading

ONE_AT_A_TIME = threading.RLock()
"""Lock held while any such game works: threads take turns."""
