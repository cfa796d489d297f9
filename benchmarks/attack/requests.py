"""A server on this machine: what its documentation promises, tried by schemathesis; idle, slow and cut connections."""

import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.serving import ServerProcess

MAZE = "hgpo_gym/SignpostMaze-v0"
CONNECTIONS = 100
CONFIG = """
[checks.positive_data_acceptance]
# 422 too: which options, tasks and texts there are depends on the environment, which the schema cannot say.
expected-statuses = ["2xx", 401, 404, 409, 422, 429, 503]
"""


def main(examples: int) -> list[tuple[str, int, int]]:
    """A row an attack: what, how many requests or connections, how many were not answered as they should be."""
    with ServerProcess("--env", MAZE, "split=[train,test]", "--connections", str(CONNECTIONS)) as server:
        rows = [schemathesis(server, examples), cut_bodies(server, 50), idle_connections(server, 3 * CONNECTIONS)]
        print(f"log: {len(server.output):,} characters", flush=True)
    return rows


def schemathesis(server: ServerProcess, examples: int) -> tuple[str, int, int]:
    """Its checks of what is served against what is documented, all of them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(CONFIG)
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", f"{folder}/schemathesis.toml", "run"]
        command += [f"{server.url}/openapi.json", "--checks", "all", "--max-examples", str(examples), "--seed", "0"]
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
