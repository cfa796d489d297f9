"""The command hgpo-gym, which tells at last which threads of its process are left when Python ends, those of C++ among
them: a line that starts with THREADS. For Linux."""

import atexit
import sys
from contextlib import suppress
from pathlib import Path


@atexit.register  # before all others are, so it comes last
def tell() -> None:
    names = []
    for task in Path("/proc/self/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append(task.joinpath("comm").read_text().strip())
    sys.stdout.write(f"THREADS {' '.join(names)}\n")


import tests.support.held  # noqa: E402, F401
from hgpo_gym.cli.main import main  # noqa: E402

main()
