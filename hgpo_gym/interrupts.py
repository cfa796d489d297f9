"""Ctrl-C (SIGINT) and SIGTERM, which schedulers send to end a job. Both raise KeyboardInterrupt at a safe moment."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


ONE_PRESS = 2.0
"""Seconds in which signals count as one Ctrl-C: a terminal sends it to all processes, and launchers repeat it."""


class StoppedAtOnceError(KeyboardInterrupt):
    """The second Ctrl-C: the work in progress is not finished."""


class Interrupts:
    """Notes the first signal instead of raising, and reports what is being finished.

    Args:
        say: shows a line to a person.
        twice: a second Ctrl-C raises StoppedAtOnceError. With several processes, their launcher does that instead.

    Attributes:
        noted: True after the first signal.
        doing: what is being finished.
    """

    def __init__(self, say: Callable[[str], None], *, twice: bool = True):
        self.noted, self.doing = False, "what was begun"
        self._say, self._twice, self._first = say, twice, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Note signals inside the block instead of raising."""
        with _handled_by(self._note):
            yield

    def _note(self, number: int, _frame: object) -> None:
        now = time.monotonic()
        if not self.noted:
            self.noted, self._first = True, now
            again = " Ctrl-C again stops at once, without saving." if self._twice else ""
            self._say(f"{signal.Signals(number).name}: finishing {self.doing} first, then saving.{again}")
        elif self._twice and number == signal.SIGINT and now - self._first > ONE_PRESS:
            raise StoppedAtOnceError


@contextmanager
def interrupts_raised() -> Iterator[None]:
    """Raise KeyboardInterrupt at once when a signal arrives inside the block."""
    with _handled_by(_raise):
        yield


def _raise(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    previous = [(number, signal.signal(number, handler)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, previous_handler in previous:
            signal.signal(number, previous_handler)
