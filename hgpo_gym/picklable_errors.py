"""Errors that are sent between processes, and errors of processes that failed to start."""

import pickle
import traceback


def picklable(error: Exception) -> Exception:
    """Return the error with its traceback as a note. An error that pickle cannot restore is replaced by a RuntimeError
    with the same text."""
    # A traceback cannot be pickled; a note can.
    error.add_note("".join(["In a worker process:\n", *traceback.format_exception(error)]))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - anything can happen in somebody's exception
        replacement = RuntimeError(f"{type(error).__name__}: {error}")
        replacement.add_note(error.__notes__[-1])
        return replacement
    return error


def describe_failed_start(exit_code: int, instead: str = "") -> str:
    """Return the message for a process that ended before it began. `instead` names an alternative without processes."""
    return (
        f"A worker process ended (exit code {exit_code}) before it began; its error stands above. Python imports the "
        "main program again in each worker process: keep it in a file, and put what it does under "
        '`if __name__ == "__main__":`'
        f"{instead and f', or {instead}'}."
    )
