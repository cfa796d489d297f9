"""A client's connection to a server of `hgpo-gym serve`, and its errors."""

import json
import time
from collections.abc import Mapping
from typing import Any

from gymnasium.error import ResetNeeded

from hgpo_gym.client.replies import ProblemReply, R, TurnReply, checked, parsed, unlike_a_server
from hgpo_gym.extras import requires_extra
from hgpo_gym.network import media_type

with requires_extra("server", "RemoteTextEnv"):
    import httpx

_ATTEMPTS = 5
_MAX_BYTES = 1 << 26
_MISTAKES = ("unknown-environment", "unknown-option", "unknown-task", "too-long", "malformed")


class RemoteError(RuntimeError):
    """The server refused a request, or the environment failed there.

    Attributes:
        problem: the server's problem object.
    """

    def __init__(self, problem: ProblemReply):
        super().__init__(f"{problem.detail} {problem.remedy}")
        self.problem = problem


class SessionLostError(RemoteError):
    """The session no longer exists; `reset(seed=...)` opens another."""


class Connection:
    """A connection to a server by JSON. Requests that may be repeated safely are sent again after a lost connection.

    Args:
        url: of the server.
        token: None for a server without one.
        timeout: seconds to wait for a response.

    Raises:
        ValueError: not a URL of HTTP.
    """

    def __init__(self, url: str, token: str | None, timeout: float):
        if not url.startswith(("http://", "https://")) or not _is_valid(url):
            raise ValueError(f"url={url!r}: write http://host:port.")
        self.url, self.token, self._timeout = url.rstrip("/"), token, timeout
        self._http = httpx.Client(
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})},
            timeout=timeout,
            trust_env=False,  # a proxy from the environment must not get the token
            verify=url.startswith("https"),  # certificates take 20 ms to load
        )

    def request(
        self,
        kind: type[R],
        method: str,
        path: str,
        content: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
        **query: Any,
    ) -> R:
        """Send a request and return the response, which must be of this kind.

        Raises:
            ConnectionError: no response, or not from such a server.
            ValueError: an environment, option or task that the server does not know, or a malformed request.
            gymnasium.error.ResetNeeded: a step without an episode.
            RemoteError: the server refuses for another reason.
        """
        # json.dumps writes ASCII, so that an action with a lone surrogate can be sent.
        body = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"} if body else {}
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._http.stream(
                    method, self.url + path, content=body, headers=headers, params=query
                ) as response:
                    received = self._read(response)
                break
            except httpx.TransportError as error:
                # A request that never reached the server can always be repeated.
                sent = not isinstance(error, httpx.ConnectError)
                if attempt == _ATTEMPTS or (sent and not repeatable):
                    raise ConnectionError(
                        f"No response from {self.url} ({type(error).__name__}: {error}). Is 'hgpo-gym serve' there?"
                    ) from error
                time.sleep(0.05 * 2**attempt)
        media = media_type(response.headers.get("content-type"))
        if response.is_success and (not received or media == "application/json"):
            return checked(self.url, kind, parsed(self.url, received or b"{}"))
        if media != "application/problem+json":
            raise unlike_a_server(self.url, f"with status {response.status_code} and {media or 'no media type'}")
        raise _error(checked(self.url, ProblemReply, parsed(self.url, received)))

    def turn_or_error(self, reply: Mapping[str, Any]) -> TurnReply | Exception:
        """Return one of the replies of `POST /steps`, or its problem as an error. Raises ConnectionError if it is
        neither."""
        if "remedy" in reply:
            return _error(checked(self.url, ProblemReply, reply))
        return checked(self.url, TurnReply, reply)

    def _read(self, response: httpx.Response) -> bytes:
        """Return the body as it is sent. Raises ConnectionError if it is too long, or does not end in time."""
        received, until = bytearray(), time.monotonic() + self._timeout
        for chunk in response.iter_raw():
            received += chunk
            if len(received) > _MAX_BYTES or time.monotonic() > until:
                raise unlike_a_server(
                    self.url, f"with {len(received):,} bytes and more, in {self._timeout:g} s or more"
                )
        return bytes(received)

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def _error(problem: ProblemReply) -> Exception:
    """Return the error that tells a client of a problem object."""
    if problem.type in _MISTAKES:
        given = "" if problem.name is None else f" ({problem.name}={problem.value})"
        return ValueError(f"{problem.detail}{given} {problem.remedy}")
    if problem.type == "reset-needed":
        return ResetNeeded(f"{problem.detail} {problem.remedy}")
    return (SessionLostError if problem.type == "unknown-session" else RemoteError)(problem)


def _is_valid(url: str) -> bool:
    try:
        return bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        return False
