"""Endings of commands: a message and an exit status. Errors of the user never end in a traceback."""

import os
import select
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from hgpo_gym.cli.memory_errors import out_of_memory
from hgpo_gym.extras import install_command
from hgpo_gym.plain_text import for_terminal

_FORMAT_WARNING = warnings.formatwarning


class CommandFailed(SystemExit):
    """The command ends with this message and exit status."""

    def __init__(self, message: str, status: int):
        super().__init__(status)
        process = f" (process {os.environ['RANK']})" if "RANK" in os.environ else ""
        print(f"hgpo-gym{process}: {for_terminal(message)}", file=sys.stderr)


_PRINTED: set[str] = set()
"""The warnings that this process has printed."""


def warn_in_one_line() -> None:
    """Print each `UserWarning` once, without the line of code that raised it; HGPO_GYM_DEBUG=1 keeps the line."""
    if not _debugging():
        warnings.formatwarning = _one_line


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if category is UserWarning:  # others, such as FutureWarning, are for programmers
        repeated = str(message) in _PRINTED  # as where training and evaluation miss the same data
        _PRINTED.add(str(message))
        return "" if repeated else f"Warning: {message}\n"
    return _FORMAT_WARNING(message, category, filename, lineno, line)


@contextmanager
def mistakes_explained(extra: str = "train") -> Iterator[None]:
    """Turn errors that a user can fix into one message and exit status 2; HGPO_GYM_DEBUG=1 keeps the traceback.

    `extra` names the optional dependencies to install if a missing package has no hint of its own.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if _debugging():
            raise
        remedy = "" if "pip install" in str(error) else f". Install what is missing: {install_command(extra)}"
        raise CommandFailed(f"{error}{remedy}", 2) from None
    except (ValueError, OSError, ImportError) as error:
        if _debugging() or _nobody_reads(error):
            raise
        raise CommandFailed(out_of_memory(error) or str(error), 2) from None


@contextmanager
def memory_explained() -> Iterator[None]:
    """Turn errors of too little memory into one message and exit status 1; HGPO_GYM_DEBUG=1 keeps the traceback."""
    try:
        yield
    except Exception as error:
        if _debugging() or (message := out_of_memory(error)) is None:
            raise
        raise CommandFailed(message, 1) from None


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """End quietly if the reader of the output closes it, as in `hgpo-gym ... | head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if not _nobody_reads(error):
            raise
        # Python flushes the rest of the buffer when it ends, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error.__context__, SystemExit):
            raise error.__context__ from None


def _nobody_reads(error: Exception) -> bool:
    """Return True if the error means that standard output has no reader any more."""
    if not isinstance(error, BrokenPipeError):
        return False
    # A BrokenPipeError may also come from another pipe, such as that of a worker.
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(state & select.POLLERR for _, state in output.poll(0))


def _debugging() -> bool:
    return os.environ.get("HGPO_GYM_DEBUG", "") not in ("", "0")
