"""Problem objects (RFC 9457): the response to a failed request, with thing, value and remedy."""

import json
import reprlib
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class ProblemDetails(Exception):  # noqa: N818 - the name that RFC 9457 has for it
    """An exception that becomes the problem object of a response.

    Args:
        status: the HTTP status: 4xx for a client's mistake, 502 to 504 for the server's or an environment's failure.
        type: the kind of problem, for programs, e.g. `unknown-task`.
        detail: the problem, for people.
        remedy: how to solve it.
        name: the wrong field or option.
        value: the client's value of it, shortened.
        headers: HTTP headers of the response.
    """

    def __init__(
        self,
        status: int,
        type: str,
        detail: str,
        remedy: str,
        *,
        name: str | None = None,
        value: Any = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(detail)
        self._status, self._headers = status, headers
        self._content = {"type": type, "status": status, "detail": detail, "remedy": remedy}
        if name is not None:
            self._content |= {"name": name, "value": shown(value)}

    @property
    def content(self) -> bytes:
        """The problem object as JSON."""
        return json.dumps(self._content).encode()

    def response(self) -> Response:
        """Return the HTTP response."""
        return Response(self.content, self._status, self._headers, MEDIA_TYPE)


def shown(value: Any) -> str:
    """Return the `repr` of a value, shortened in length and depth."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100
