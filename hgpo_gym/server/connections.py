"""Connections with bounds on their number, on the time to send a request's head and on the time to read a response."""

import asyncio
import resource
import socket
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT = 15.0
"""Seconds for a request's head, from the start of the connection or the first byte after a response."""
READ_TIMEOUT = 30.0
"""Seconds for a client to read a response."""
SPARE_DESCRIPTORS = 128
"""Open files other than connections: libraries, data, logs, workers."""


class BoundedConnection(H11Protocol):
    """A connection that is closed if there are too many, or if its client is too slow to send or to read.

    Attributes:
        max_connections: the limit on open connections; one address may have half of them.
    """

    max_connections = 1024

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Without any room in asyncio's buffer, `pause_writing` is called as soon as the kernel takes no more.
        transport.set_write_buffer_limits(high=0)
        # Without a client the peer has left already: its requests would count for nobody.
        limit = self.max_connections
        if self.client is None or len(self.connections) > limit or self._from_this_address() > -(-limit // 2):
            # Now, and not when the loop reports its end: of many that arrive at once, the refused ones do not count.
            self.connections.discard(self)
            transport.abort()
        else:
            self._allow("head", HEAD_TIMEOUT)

    def data_received(self, data: bytes) -> None:
        if "head" not in self._timers and (self.cycle is None or self.cycle.response_complete):
            self._allow("head", HEAD_TIMEOUT)
        before = self.cycle
        super().data_received(data)
        # uvicorn's H11Protocol sets a new `cycle` once the head of a request is complete.
        if self.cycle is not before:
            self._stop("head")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._allow("response", READ_TIMEOUT)

    def resume_writing(self) -> None:
        self._stop("response")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._timers):
            self._stop(name)
        super().connection_lost(exc)

    def _from_this_address(self) -> int:
        assert self.client is not None
        clients = [getattr(other, "client", None) for other in self.connections]
        return sum(client is not None and client[0] == self.client[0] for client in clients)

    def _allow(self, name: str, seconds: float) -> None:
        self._timers[name] = self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        # Lingering for 0 seconds, the kernel drops what the client has not read: megabytes, which it else keeps.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _stop(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


def connections_of(max_connections: int) -> type[BoundedConnection]:
    """Return a connection class with a limit of `max_connections` connections.

    Raises:
        ValueError: the system does not let this process open so many files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + SPARE_DESCRIPTORS
    if soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise ValueError(
                f"--connections {max_connections} needs {needed} open files, the system allows {hard}: choose "
                f"{max(1, hard - SPARE_DESCRIPTORS)} or fewer."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return type("BoundedConnection", (BoundedConnection,), {"max_connections": max_connections})
