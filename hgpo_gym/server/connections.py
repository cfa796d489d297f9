"""Connections with a bound on their number and on the time to send a request's head."""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT = 15.0
"""Seconds for a request's head, from the start of the connection or the first byte after a response."""
SPARE_DESCRIPTORS = 128
"""Open files other than connections: libraries, data, logs, workers."""


class BoundedConnection(H11Protocol):
    """A connection that is closed if there are too many, or if its request does not arrive in time.

    Attributes:
        most: the most connections at once.
    """

    most = 1024
    _waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        if self._waits is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_a_head()
        before = self.cycle
        super().data_received(data)
        # uvicorn's H11Protocol sets a new `cycle` once the head of a request is complete.
        if self.cycle is not before:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_a_head(self) -> None:
        self._waits = self.loop.call_later(HEAD_TIMEOUT, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None


def connections_of(most: int) -> type[BoundedConnection]:
    """Return a connection class with a limit of `most` connections.

    Raises:
        ValueError: the system does not let this process open so many files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = most + SPARE_DESCRIPTORS
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ValueError(
                f"--connections {most} needs {needed} open files, the system allows {hard}: choose "
                f"{max(1, hard - SPARE_DESCRIPTORS)} or fewer."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return type("BoundedConnection", (BoundedConnection,), {"most": most})
