"""Middleware before the routes: authentication, request limits and the access log."""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from http import HTTPMethod

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgpo_gym.network import is_loopback, media_type
from hgpo_gym.server.problems import ProblemDetails

LOG = logging.getLogger(__name__)
OPEN_PATHS = ("/health", "/docs", "/openapi.json")
"""Paths that need no token, because they hold no client's data."""
BODY_TIMEOUT = 30.0
"""Seconds for a body to arrive."""
_DISCARDED = 4
"""A body that is too large is read up to this multiple of the limit, so that the client can read the response."""


class Guard:
    """ASGI middleware that authenticates clients. It reads bodies completely, so that no handler waits for a client.

    Args:
        app: the wrapped application.
        tokens: one for each client; if empty, every address is a client.
        body_limit: the most bytes of a body.
        requests_per_client: the most requests of a client at once.
        access_log: log method, route, status and time of each request, and nothing that the client sent.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: Sequence[str], body_limit: int, requests_per_client: int, access_log: bool
    ):
        self._app = app
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]
        self._body_limit, self._requests_per_client = body_limit, requests_per_client
        self._access_log = access_log
        self._busy: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1003})
            return
        started, status = time.perf_counter(), 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._response(scope, receive, send_and_note)
        except ProblemDetails as problem:
            await problem.response()(scope, receive, send_and_note)
        if self._access_log:
            method = scope["method"] if scope["method"] in HTTPMethod.__members__ else "?"
            route = getattr(scope.get("route"), "path", "?")
            LOG.info("%s %s %d %.1f ms", method, route, status, 1000 * (time.perf_counter() - started))

    async def _response(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._client(scope)
        scope.setdefault("state", {})["client"] = client
        if self._busy[client] >= self._requests_per_client:
            raise ProblemDetails(
                429,
                "too-many-requests",
                f"{self._busy[client]} requests of yours are worked on, as many as one client may have.",
                "Wait for their responses.",
                headers={"Retry-After": "1"},
            )
        self._busy[client] += 1
        try:
            body = await self._read_body(receive)
            _check_json(scope, body)
            await self._app(scope, _replay(body, receive), send)
        finally:
            self._busy[client] -= 1
            if not self._busy[client]:
                del self._busy[client]

    def _client(self, scope: Scope) -> str:
        """Return the client: the number of its token, or its address. Raises `ProblemDetails`."""
        headers = Headers(scope=scope)
        if not scope["client"]:  # it left before its request was read, and nobody could be held to the limits
            raise ProblemDetails(400, "incomplete", "The connection broke off.", "Send the request again.")
        address = f"address {scope['client'][0]}"
        if not self._digests:
            _check_host(headers.get("host", ""))
            return address
        if scope["path"] in OPEN_PATHS:
            return address
        scheme, _, token = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(token.strip().encode("latin-1")).digest()
        # Compare all, so that the time reveals nothing.
        matches = [secrets.compare_digest(digest, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise ProblemDetails(
                401,
                "unauthorized",
                "The token is missing or not one of this server's.",
                "Send the header Authorization: Bearer TOKEN; the operator has the token.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return f"token {matches.index(True) + 1}"

    async def _read_body(self, receive: Receive) -> bytes:
        """Return the complete body. Raises `ProblemDetails`."""
        chunks, size = [], 0
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                more = True
                while more and size <= _DISCARDED * self._body_limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # a partial body is no request
                        raise ProblemDetails(
                            400, "incomplete", "The connection broke off in the body.", "Send it again."
                        )
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= self._body_limit:
                        chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            raise ProblemDetails(
                408, "too-slow", f"The body did not arrive within {BODY_TIMEOUT:g} s.", "Send it at once."
            ) from None
        if size > self._body_limit:
            raise ProblemDetails(
                413,
                "too-large",
                f"The body has more than {self._body_limit} bytes.",
                "Send less; the operator sets --body.",
                headers={"Connection": "close"},
            )
        return b"".join(chunks)


def _check_json(scope: Scope, body: bytes) -> None:
    content_type = media_type(Headers(scope=scope).get("content-type"))
    if body and content_type != "application/json":
        raise ProblemDetails(
            415,
            "not-json",
            "The Content-Type of the body is not JSON.",
            "Send the header Content-Type: application/json.",
            name="Content-Type",
            value=content_type,
        )


def _check_host(host: str) -> None:
    """Raise `ProblemDetails` unless the Host header names this machine. This stops DNS rebinding: a page of another
    site cannot reach a server without tokens by a name that resolves to this machine."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if not is_loopback(name.strip("[]")):
        raise ProblemDetails(
            421,
            "wrong-host",
            "This server is for its own machine.",
            "Use localhost or 127.0.0.1 in the address.",
            name="Host",
            value=host,
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body in one piece, then later messages."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
