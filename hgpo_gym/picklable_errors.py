"""Errors on their way from one process to another, and of processes that never began."""

import pickle
import traceback


def picklable(error: Exception) -> Exception:
    """The error with its traceback as a note, or another that says the same where it could not be unpacked."""
    error.add_note("".join(["In a worker process:\n", *traceback.format_exception(error)]))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - anything can happen in somebody's exception
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.add_note(error.__notes__[-1])
        return other
    return error


def describe_failed_start(exit_code: int, instead: str = "") -> str:
    """What to say of a started process that ended by itself before it did anything; `instead`: what needs none."""
    return (
        f"A worker process ended (exit code {exit_code}) before it began; its error stands above. Python imports the "
        "main program again in each worker process: keep it in a file, and put what it does under "
        '`if __name__ == "__main__":`'
        f"{instead and f', or {instead}'}."
    )
