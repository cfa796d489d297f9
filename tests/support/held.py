"""The command `hgpo-gym` for tests that interrupt or kill it: with HELD_AFTER=3 a run waits after its third iteration
for a signal, with a file `held` in its folder, so that it does not matter how busy a machine is. Of several processes
the second one waits, and the others for it. The command prints its process id first.

HELD_AFTER=3 python -m tests.support.held train ...
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hgpo_gym.trainers.run import Run
from tests.support import warm

iterate = Run._iterate


def wait_for_a_signal(run: Run) -> dict[str, Any]:
    """Wait if it is time, then do an iteration."""
    waits = run.processes.count == 1 or not run.processes.main
    if waits and run.iteration == int(os.environ["HELD_AFTER"]):
        (run.directory.path / "held").touch()
        while not run.interrupts.noted:  # without several processes, the signal is raised here
            time.sleep(0.01)
    return iterate(run)


@contextmanager
def held(after: int, run_dirs: Sequence[Path], *command: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start the command, and wait until all these runs wait. Yields what has its output and its exit status, and its
    process id, which is that of its group: at the end nothing of it is left."""
    with subprocess.Popen(
        [*warm.python(), "-m", "tests.support.held", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HELD_AFTER": str(after)},
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        try:
            while not all((run_dir / "held").exists() for run_dir in run_dirs):
                assert process.poll() is None, process.stdout.read()
                time.sleep(0.01)
            yield process, pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


if "HELD_AFTER" in os.environ:
    Run._iterate = wait_for_a_signal  # type: ignore[assignment, method-assign]

if __name__ == "__main__":
    from hgpo_gym.cli.main import main

    os.setsid()
    print(os.getpid(), flush=True)
    main()
