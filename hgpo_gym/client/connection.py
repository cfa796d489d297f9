"""A client's connection to a server of `hgpo-gym serve`, and its errors."""

import json
import time
from collections.abc import Mapping
from typing import Any

from gymnasium.error import ResetNeeded

from hgpo_gym.extras import install_command
from hgpo_gym.network import media_type

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"Remote environments need the package {error.name}: {install_command('server')}", name=error.name
    ) from error

_ATTEMPTS = 5
_MISTAKES = ("unknown-environment", "unknown-option", "unknown-task", "too-long", "malformed")


class RemoteError(RuntimeError):
    """The server refused a request, or the environment failed there.

    Attributes:
        problem: the server's problem object.
    """

    def __init__(self, problem: Mapping[str, Any]):
        super().__init__(f"{problem['detail']} {problem['remedy']}")
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
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url={url!r}: write http://host:port.")
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout,
            trust_env=False,  # a proxy from the environment must not get the token
            verify=url.startswith("https"),  # certificates take 20 ms to load
        )

    def request(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, *, repeatable: bool = True, **query: Any
    ) -> Any:
        """Send a request and return the response.

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
                response = self._http.request(method, self._url + path, content=body, headers=headers, params=query)
                break
            except httpx.TransportError as error:
                # A request that never reached the server can always be repeated.
                sent = not isinstance(error, httpx.ConnectError)
                if attempt == _ATTEMPTS or (sent and not repeatable):
                    raise ConnectionError(
                        f"No response from {self._url} ({type(error).__name__}: {error}). Is 'hgpo-gym serve' there?"
                    ) from error
                time.sleep(0.05 * 2**attempt)
        kind = media_type(response.headers.get("content-type"))
        if response.is_success and (not response.content or kind == "application/json"):
            return json.loads(response.content) if response.content else None
        if kind != "application/problem+json":
            raise ConnectionError(f"{self._url} answers with {response.status_code}, not as 'hgpo-gym serve' does.")
        raise _error(json.loads(response.content))

    @property
    def closed(self) -> bool:
        return self._http.is_closed

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def _error(problem: Mapping[str, Any]) -> Exception:
    if problem["type"] in _MISTAKES:
        given = f" ({problem['name']}={problem['value']})" if "name" in problem else ""
        return ValueError(f"{problem['detail']}{given} {problem['remedy']}")
    if problem["type"] == "reset-needed":
        return ResetNeeded(f"{problem['detail']} {problem['remedy']}")
    return (SessionLostError if problem["type"] == "unknown-session" else RemoteError)(problem)
