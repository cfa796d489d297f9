"""Requests that a server must refuse, each with a secret somewhere in it: one after the other without end."""

import json
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

SECRET = "s3cret-marker"


@dataclass(frozen=True)
class Target:
    """The target of requests: a session that has not been reset, so that no step in it can be right.

    Attributes:
        host, port: of the server.
        session: the session's id.
        environment: an id that the server offers.
        token: a good one; empty where the server asks for none.
        body_limit: the server's, in bytes.
    """

    host: str
    port: int
    session: str
    environment: str
    token: str
    body_limit: int


Make = Callable[[random.Random, Target], bytes]


def malformed_requests(seed: int, target: Target) -> Iterator[tuple[str, bytes]]:
    """Kinds and requests without end, each kind as often as any other."""
    rng = random.Random(seed)
    kinds = {**_KINDS, **(_WITH_TOKEN if target.token else _WITHOUT_TOKEN)}
    while True:
        for kind, make in kinds.items():
            yield kind, make(rng, target)


def send(target: Target, request: bytes) -> int:
    """Send bytes over a new connection. Returns the status of the response, 0 if the server hangs up without one."""
    with socket.create_connection((target.host, target.port), timeout=60) as connection:
        response = b""
        try:
            connection.sendall(request)
            while b"\r\n" not in response and (received := connection.recv(4096)):
                response += received
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up, maybe after a response that has been read
    return int(response.split(b" ", 2)[1]) if response.startswith(b"HTTP/1.1 ") else 0


def _request(
    target: Target,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    token: str | None = None,
    length: int | None = None,
    content_type: str = "application/json",
    host: str | None = None,
    more: str = "",
) -> bytes:
    token = target.token if token is None else token
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host or target.host}\r\nConnection: close\r\nX-Note: {SECRET}\r\n"
        f"Cookie: id={SECRET}\r\nContent-Type: {content_type}\r\n{more}"
    )
    if token:
        head += f"Authorization: Bearer {token}\r\n"
    if length is None and "Transfer-Encoding" not in more:
        length = len(body)
    if length is not None:
        head += f"Content-Length: {length}\r\n"
    return head.encode("utf-8", "surrogatepass") + b"\r\n" + body


def _path(rng: random.Random, target: Target) -> str:
    return rng.choice(["/sessions", f"/sessions/{target.session}/reset", f"/sessions/{target.session}/step"])


def _json(target: Target, path: str, content: Any) -> bytes:
    return _request(target, "POST", path, json.dumps(content).encode())


def _raw_body(rng: random.Random, target: Target, body: bytes) -> bytes:
    return _request(target, "POST", _path(rng, target), body)


def _not_json(rng: random.Random, target: Target) -> bytes:
    body = f'{{"action": "{SECRET}", "turn": 1}}'
    return _raw_body(
        rng, target, rng.choice([body[: rng.randrange(1, len(body) - 1)], body * 2, "'" + body, ","]).encode()
    )


def _not_utf8(rng: random.Random, target: Target) -> bytes:
    return _raw_body(rng, target, b'{"action": "%s\xff\xfe' % SECRET.encode() + rng.randbytes(8) + b'\x80"}')


def _deep(rng: random.Random, target: Target) -> bytes:
    opening = rng.choice(['{"options": ', "[", '{"seed": [', '{"action": {"a": '])
    depth = rng.choice([200, 900, 2000, 20_000])
    closing = {"[": "]", "{": "}"}
    inside = (opening * depth) + json.dumps(SECRET)
    return _raw_body(
        rng, target, (inside + "".join(closing[c] for c in reversed(opening * depth) if c in closing)).encode()
    )


def _not_finite(rng: random.Random, target: Target) -> bytes:
    number = rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "1.5", "-1", str(2**63), str(2**64)])
    field = rng.choice(["seed", "turn"])
    return _request(
        target,
        "POST",
        f"/sessions/{target.session}/{rng.choice(['reset', 'step'])}",
        f'{{"{field}": {number}, "{SECRET}": 1}}'.encode(),
    )


def _wrong_type(rng: random.Random, target: Target) -> bytes:
    wrong = rng.choice([[], {}, [SECRET], {"a": SECRET}, 1.5, True])
    path, content = rng.choice(
        [
            ("/sessions", {"environment": wrong}),
            ("/sessions", {"environment": target.environment, "options": rng.choice([[SECRET], SECRET, 3])}),
            ("/sessions", {"environment": target.environment, "step_limit": rng.choice([SECRET, -1, 1.5, [1]])}),
            (f"/sessions/{target.session}/step", {"action": wrong}),
            (f"/sessions/{target.session}/reset", {"task_id": wrong}),
            (f"/sessions/{target.session}/reset", {"seed": rng.choice([SECRET, True, [], "3", 3.0])}),
            (f"/sessions/{target.session}/reset", {"turn": rng.choice([SECRET, 0, -5, 1.0, "1"])}),
        ]
    )
    return _json(target, path, content)


def _not_an_object(rng: random.Random, target: Target) -> bytes:
    path = rng.choice(["/sessions", f"/sessions/{target.session}/step"])
    return _json(target, path, rng.choice([None, SECRET, [SECRET], 3, True, [[]]]))


def _unknown_field(rng: random.Random, target: Target) -> bytes:
    name = rng.choice([SECRET, "game_file", "goal", "__class__", "", "A" * 1000, "\ud800"])
    content: dict[str, Any] = {"environment": target.environment, "action": "x"}
    path = _path(rng, target)
    keep = {"/sessions": "environment", "step": "action"}.get(path if path == "/sessions" else path[-4:])
    return _json(target, path, {key: content[key] for key in content if key == keep} | {name: SECRET})


def _missing_field(rng: random.Random, target: Target) -> bytes:
    return _json(target, rng.choice(["/sessions", f"/sessions/{target.session}/step"]), {})


def _not_offered(rng: random.Random, target: Target) -> bytes:
    content: dict[str, Any] = rng.choice(
        [
            {"environment": rng.choice([SECRET, "", "../../etc/passwd", "os:system", "CartPole-v1", "\ud800"])},
            {"environment": target.environment, "options": {"data": f"/etc/{SECRET}"}},
            {"environment": target.environment, "options": {"split": f"../../{SECRET}"}},
            {"environment": target.environment, "options": {"split": ["train", SECRET]}},
            {"environment": target.environment, "options": {"sections": 10**9}},
            {"environment": target.environment, "options": {"render_mode": SECRET}},
            {"environment": target.environment, "options": {SECRET * 100: None}},
        ]
    )
    return _json(target, "/sessions", content)


def _out_of_order(rng: random.Random, target: Target) -> bytes:
    path = f"/sessions/{target.session}"
    return rng.choice(
        [
            _json(target, f"{path}/step", {"action": SECRET}),
            _json(target, f"{path}/step", {"action": SECRET, "turn": 1}),
            _json(target, f"{path}/step", {"action": SECRET, "turn": rng.randrange(2, 2**60)}),
            _json(target, f"{path}/reset", {"turn": rng.randrange(2, 2**60)}),
            _json(target, f"{path}/reset", {"task_id": rng.choice([SECRET, "", "\ud800", "a" * 10_000])}),
        ]
    )


def _too_large(rng: random.Random, target: Target) -> bytes:
    size = target.body_limit + rng.choice([1, 1000])
    body = b'{"action": "' + SECRET.encode() + b"a" * size + b'"}'
    if rng.random() < 0.5:
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        return _request(target, "POST", _path(rng, target), chunked, more="Transfer-Encoding: chunked\r\n")
    return _request(target, "POST", _path(rng, target), body)


def _wrong_length(rng: random.Random, target: Target) -> bytes:
    more = rng.choice(["Content-Length: -1\r\n", "Content-Length: x\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"])
    return _request(target, "POST", _path(rng, target), SECRET.encode(), more=more)


def _wrong_content_type(rng: random.Random, target: Target) -> bytes:
    content_type = rng.choice(["text/plain", "application/x-www-form-urlencoded", SECRET, "multipart/form-data", ""])
    return _request(
        target, "POST", _path(rng, target), b'{"action": "%s"}' % SECRET.encode(), content_type=content_type
    )


def _wrong_method(rng: random.Random, target: Target) -> bytes:
    method = rng.choice(["PUT", "PATCH", "TRACE", "OPTIONS", "GET", SECRET.replace("-", "").upper(), "post"])
    return _request(target, method, f"/sessions/{target.session}/step?{SECRET}={SECRET}")


def _wrong_path(rng: random.Random, target: Target) -> bytes:
    path = rng.choice(
        [
            f"/{SECRET}", f"/sessions/{SECRET}", f"/sessions/{SECRET}/tasks", f"/sessions/{target.session}/",
            f"/sessions/{target.session}/{SECRET}", f"/sessions/%ff%fe{SECRET}", f"/environments/{SECRET}/tasks",
            f"/environments/../../{SECRET}", f"/environments/{quote('é' + SECRET)}/tasks", "/sessions//step",
            "//health/" + SECRET, "/" + "a" * 5000 + SECRET,
        ]
    )  # fmt: skip
    return _request(target, rng.choice(["GET", "POST"]), path)


def _wrong_query(rng: random.Random, target: Target) -> bytes:
    query = rng.choice(
        ["offset=-1", f"offset={SECRET}", "limit=0", "limit=1001", "limit=1e3", f"offset={10**30}", "limit="]
    )
    return _request(target, "GET", f"/sessions/{target.session}/tasks?{query}&note={SECRET}")


def _not_http(rng: random.Random, target: Target) -> bytes:
    secret = SECRET.encode()
    return rng.choice(
        [
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + secret + b"\r\n\r\n",
            b"GET /%s\r\n\r\n" % secret,
            b"GET /health HTTP/one\r\n%s: 1\r\n\r\n" % secret,
            b"GET /health HTTP/1.1\r\n%s\r\n\r\n" % secret,
            b"\x00\xff" * 50 + secret + b"\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: a\r\nHost: %s\r\n\r\n" % secret,
            b"GET /health HTTP/1.1\r\n\r\n",
        ]
    )


def _huge_header(rng: random.Random, target: Target) -> bytes:
    more = rng.choice([f"X-{SECRET}: {'a' * 1_000_000}\r\n", "".join(f"X-{n}: {SECRET}\r\n" for n in range(50_000))])
    return _request(target, "GET", "/health", more=more)


def _wrong_token(rng: random.Random, target: Target) -> bytes:
    token = rng.choice([SECRET, target.token[:-1], target.token + "x", target.token.swapcase(), "é", " "])
    return _request(target, "POST", rng.choice(["/sessions", "/environments", f"/{SECRET}"]), b"{}", token=token)


def _wrong_host(rng: random.Random, target: Target) -> bytes:
    host = rng.choice([f"{SECRET}.example.com", "example.com:80", "0.0.0.0", "10.0.0.1", "localhost.example.com"])
    return _request(target, "GET", "/health", host=host)


_KINDS: dict[str, Make] = {
    "not JSON": _not_json, "not UTF-8": _not_utf8, "deep": _deep, "not finite": _not_finite, "wrong type": _wrong_type,
    "not an object": _not_an_object, "unknown field": _unknown_field, "missing field": _missing_field,
    "not offered": _not_offered, "out of order": _out_of_order, "too large": _too_large, "wrong length": _wrong_length,
    "wrong content type": _wrong_content_type, "wrong method": _wrong_method, "wrong path": _wrong_path,
    "wrong query": _wrong_query, "not HTTP": _not_http, "huge header": _huge_header,
}  # fmt: skip
_WITH_TOKEN: dict[str, Make] = {"wrong token": _wrong_token}
_WITHOUT_TOKEN: dict[str, Make] = {"wrong host": _wrong_host}
