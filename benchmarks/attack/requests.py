"""A server on this machine: what its documentation promises, tried by schemathesis; idle, slow and cut connections."""

import json
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
from gymnasium.error import ResetNeeded

from benchmarks.attack.hostile_runs import changed
from hgpo_gym.client import RemoteError, RemoteTextEnv
from tests.support.serving import ServerProcess

MAZE = "hgpo_gym/SignpostMaze-v0"
CONNECTIONS = 100
CONFIG = """
[checks.positive_data_acceptance]
# 422 too: which options, tasks and texts there are depends on the environment, which the schema cannot say.
expected-statuses = ["2xx", 401, 404, 409, 422, 429, 503]
"""


def main(examples: int, seed: int) -> list[tuple[str, int, int]]:
    """A row an attack: what, how many requests or connections, how many were not answered as they should be."""
    with ServerProcess("--env", MAZE, "split=[train,test]", "--connections", str(CONNECTIONS)) as server:
        rows = [
            schemathesis(server, examples, seed),
            cut_bodies(server, 50),
            cut_sessions(server, 150),
            idle_connections(server, 3 * CONNECTIONS),
            never_reading(server, CONNECTIONS),
        ]
    with ServerProcess("--env", MAZE) as server:
        rows.append(hostile_replies(server, 20 * examples, seed))
    return rows


def schemathesis(server: ServerProcess, examples: int, seed: int) -> tuple[str, int, int]:
    """Its checks of what is served against what is documented, all of them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(CONFIG)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", f"{folder}/schemathesis.toml", "run"]
        command += [
            f"{server.url}/openapi.json",
            "--checks",
            "all",
            "--max-examples",
            str(examples),
            "--seed",
            str(seed),
        ]
        command += ["--request-timeout", "10", "--suppress-health-check", "all", "--no-color"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=folder)
    print(result.stdout[-6000:] + result.stderr[-2000:], flush=True)
    generated = re.search(r"(\d[\d,]*) generated", result.stdout)
    failed = re.search(r"(\d+) (?:unique )?failure", result.stdout)
    count = int(generated[1].replace(",", "")) if generated else 0
    return "schemathesis, all checks", count, int(failed[1]) if failed else result.returncode


def cut_bodies(server: ServerProcess, count: int) -> tuple[str, int, int]:
    """Resets and steps whose connection is cut in the body: none of them is played."""
    path = f"/sessions/{server.post('/sessions', {'environment': MAZE}).json()['session']}"
    server.post(f"{path}/reset", {"turn": 1})
    for number in range(count):
        body = b'{"action": "walk on"}'[: number % 20]
        what = "reset" if number % 2 else "step"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = f"POST {path}/{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 21\r\n\r\n".encode() + body)
    server.get("/health")
    return "bodies that break off", count, server.get(path).json()["turn"] - 1


def idle_connections(server: ServerProcess, count: int) -> tuple[str, int, int]:
    """Connections that say nothing, or a head by single bytes: all are closed, and others are answered."""
    began, open_still = time.monotonic(), 0
    with ExitStack() as stack:
        connections = []
        for number in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            with suppress(OSError):
                connection.sendall(b"GET /hea" if number % 2 else b"")
            connections.append(connection)
        for connection in connections:
            try:
                open_still += connection.recv(1) != b""
            except TimeoutError:
                open_still += 1
            except OSError:
                pass
        print(f"{count} idle connections were closed within {time.monotonic() - began:.0f} s", flush=True)
    return "idle and slow connections", count, open_still + (server.get("/health").status_code != 200)


def cut_sessions(server: ServerProcess, count: int) -> tuple[str, int, int]:
    """Connections that are cut after `POST /sessions`: no more sessions than one client may have."""
    body = json.dumps({"environment": MAZE})
    head = "POST /sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for number in range(count):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            if number % 2:  # cut by RST: the server no longer sees the address
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with elsewhere() as client:  # this address may still have all of its connections
        return "sessions cut off", count, max(0, client.get(f"{server.url}/health").json()["sessions"] - 64)


def elsewhere() -> httpx.Client:
    """A client at another address."""
    return httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=60)


def never_reading(server: ServerProcess, count: int) -> tuple[str, int, int]:
    """Connections that ask and never read: another address is answered at once, and in the end this one too."""
    requests, refused = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300, 0
    with ExitStack() as stack, elsewhere() as client:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(requests)
        began = time.monotonic()
        while time.monotonic() < began + 90:
            refused += client.get(f"{server.url}/health").status_code != 200
            with suppress(httpx.TransportError):
                server.get("/health", timeout=5)
                print(f"{count} that never read: disconnected after {time.monotonic() - began:.0f} s", flush=True)
                return "clients that never read", count, refused
            time.sleep(1)
    return "clients that never read", count, refused + 1


def hostile_replies(server: ServerProcess, count: int, seed: int) -> tuple[str, int, int]:
    """A server whose replies are those of this one with values replaced: the client raises what it promises."""
    choice, wrong = random.Random(seed), Counter[str]()

    def changing(request: httpx.Request) -> httpx.Response:
        reply = httpx.request(request.method, request.url, content=request.read(), headers=request.headers)
        if choice.random() < 0.5 or not reply.content:
            return httpx.Response(reply.status_code, headers=reply.headers, stream=httpx.ByteStream(reply.content))
        content = json.dumps(changed(reply.json(), choice)).encode()
        if choice.random() < 0.2:
            content = choice.choice([content[: len(content) // 2], b"[" * 10**5, b"9" * 5000, b"\xff", b""])
        kinds = ["application/json", "application/json", "application/problem+json", "text/html"]
        media_type = {"Content-Type": choice.choice(kinds)}
        return httpx.Response(
            choice.choice([reply.status_code, 200, 404, 503]), headers=media_type, stream=httpx.ByteStream(content)
        )

    for _ in range(count):
        try:
            env = RemoteTextEnv(server.url, MAZE)
            env._connection._http = httpx.Client(transport=httpx.MockTransport(changing))
            env.reset(seed=0)
            for _ in range(3):
                env.step("walk on")
            list(env.task_ids[:3])
        except (ConnectionError, RemoteError, ResetNeeded, ValueError):
            pass  # a TurnError too: a text that is too long, an episode that is over before it begins
        except Exception as error:  # noqa: BLE001 - these are what is looked for
            wrong[f"{type(error).__name__}: {error}"[:150]] += 1
        httpx.delete(f"{server.url}{env._path}")
    print(f"hostile replies: {dict(wrong)}", flush=True)
    return "replies of a hostile server", count, wrong.total()
