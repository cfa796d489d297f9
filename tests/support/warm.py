"""A Python process that has imported what training needs, and forks for each command: a new interpreter takes seconds
to import torch and transformers, a fork milliseconds.

`python()` starts it, and stands before arguments as `sys.executable` does: -m MODULE, -c CODE, or a script. The command
is a process with standard streams, separate environment, folder and exit status, as in a new interpreter. Its
comparisons train in forks, too, see `forks.py`.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import site
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hgpo_gym.experiments import pool
from hgpo_gym.plugins import load_entry_points
from tests.support import ROOT

CLIENT = Path(__file__).with_name("warm_client.py")
IMPORTED = [
    "hgpo_gym.cli.evaluation", "hgpo_gym.cli.looking", "hgpo_gym.cli.models", "hgpo_gym.cli.play",
    "hgpo_gym.cli.settings_help", "hgpo_gym.cli.training", "accelerate", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg", "scipy.optimize", "torch._dynamo", "transformers.integrations.peft",
    "transformers.models.qwen2.modeling_qwen2", "transformers.quantizers.auto",
]  # fmt: skip


@cache
def python() -> list[str]:
    """The command that asks the process, of which each process of tests has one. It ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="warm")
    address = str(Path(folder.name) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"The warm process ended with exit code {process.wait()}.")
    return [sys.executable, "-I", "-S", str(CLIENT), address]


def serve(address: str) -> list[str]:
    """Fork for each request until standard input is closed. Returns in forks only: the arguments of the command."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            connection, _ = listening.accept()
            if os.fork() == 0:
                break
            connection.close()
            with contextlib.suppress(ChildProcessError):  # none is left
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        else:
            sys.exit()
    # The first fork waits for the second one, the command, to report its exit status.
    request, streams = receive(connection)
    command = os.fork()
    if command:
        _, status = os.waitpid(command, 0)
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # The old ones remember what the files of the server could do.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    take_on(request["environment"], request["folder"])
    return request["arguments"]


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request and the standard streams that came with it."""
    size = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
    text, streams, _, _ = socket.recv_fds(connection, 1, 3)
    text += connection.recv(size - 1, socket.MSG_WAITALL)
    return json.loads(text), list(streams)


def take_on(environment: dict[str, str], folder: str) -> None:
    """Change to another environment and folder, as far as a new interpreter would look at them."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[0:1] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if prefix := environment.get("VIRTUAL_ENV"):
        sys.prefix, sys.executable = prefix, f"{prefix}/bin/python"
        for packages in Path(prefix).glob("lib/python*/site-packages"):
            site.addsitedir(str(packages))
            if (packages / "sitecustomize.py").exists():
                runpy.run_path(str(packages / "sitecustomize.py"))
    importlib.invalidate_caches()
    load_entry_points("hgpo_gym.envs")  # of packages that this environment has; others are looked for when named


def run(arguments: list[str]) -> None:
    """Run `python` with arguments."""
    if arguments[0] == "-u":
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(arguments[1], sys.modules["__main__"].__dict__)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    from tests.support import forks

    for name in IMPORTED:
        importlib.import_module(name)
    pool.multiprocessing = forks
    run(serve(sys.argv[1]))
