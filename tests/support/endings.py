"""A stand-in for training that ends as the name of its run folder says."""

import os
import signal
import sys
from pathlib import Path

WAYS = {"fine": 0, "gone": "exit", "after": 0, "raised": "raise", "refused": 2, "last": 0}
LOST = "lost"
"""Killed at the first try, fine at the second."""


def end_as_asked(config):
    run_dir = Path(config["run_dir"])
    name = run_dir.name
    how = WAYS.get(name, 0)
    print(f"This is {name} in process {os.getpid()}")
    if name == LOST and not (been_here := run_dir / "been_here").exists():
        been_here.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        os._exit(7)
    if how == "raise":
        raise RuntimeError("the sky fell")
    sys.exit(how)
