"""Errors on their way from one process to another."""

import pickle
import traceback


def to_be_sent(error: Exception) -> Exception:
    """The error with its traceback as a note, or another that says the same where it could not be unpacked."""
    error.add_note("".join(["In a worker process:\n", *traceback.format_exception(error)]))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - anything can happen in somebody's exception
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.add_note(error.__notes__[-1])
        return other
    return error
