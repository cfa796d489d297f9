"""Ctrl-C (SIGINT) and SIGTERM, by which schedulers end a job: both are a KeyboardInterrupt, where it does no harm."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


ONE_PRESS = 2.0
"""Seconds in which signals are one Ctrl-C: the terminal sends it to every process, and launchers pass it on."""


class StoppedAtOnceError(KeyboardInterrupt):
    """Ctrl-C for the second time: what was to be finished is not."""


class Interrupts:
    """Notes the first signal instead of raising, and says what it waits for.

    Args:
        say: shows a line to a person.
        twice: Ctrl-C again raises StoppedAtOnceError; else that is for the launcher of several processes to do.

    Attributes:
        noted: whether there was one.
        doing: what is being finished.
    """

    def __init__(self, say: Callable[[str], None], *, twice: bool = True):
        self.noted, self.doing = False, "what was begun"
        self._say, self._twice, self._first = say, twice, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, a signal is only noted."""
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
    """Inside, a signal raises KeyboardInterrupt at once."""
    with _handled_by(_raise):
        yield


def _raise(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, object], None]) -> Iterator[None]:
    before = [(number, signal.signal(number, handler)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, own in before:
            signal.signal(number, own)
