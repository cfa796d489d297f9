"""What a client is told when a request fails: a problem object (RFC 9457) with thing, value and remedy."""

import json
import reprlib
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class ProblemDetails(Exception):  # noqa: N818 - the name that RFC 9457 has for it
    """A request that is answered by a problem object.

    Args:
        status: of the answer: 4xx where the client can mend it, 502 to 504 where the server or an environment must.
        type: what went wrong, in words for programs, e.g. `unknown-task`.
        detail: what went wrong, in words for people.
        remedy: what helps.
        name: the thing that is wrong: a field, an option.
        value: what the client gave for it; shortened.
        headers: of the answer.
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

    def response(self) -> Response:
        """The answer."""
        return Response(json.dumps(self._content), self._status, self._headers, MEDIA_TYPE)


def shown(value: Any) -> str:
    """A value as Python writes it, shortened in length and depth."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100
