"""`hgpo-gym serve` under load, under attack, and left alone.

    python -m benchmarks.server --clients 64 --seconds 60 --malformed 10000

A real server in a process of its own; clients at random play in four others, on the built-in maze, on ALFWorld's and on
WebShop's generated test split, an episode after the other and a new session after five. Then malformed requests, of
which each holds a secret; then a client that is killed. Before these, one client steps 64 mazes, by a request each and
by one request for all. Exits with 1 if anything is not as it must be.
"""

import argparse
import multiprocessing
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np

from hgpo_gym.client import RemoteTextEnv
from hgpo_gym.envs import TextVectorEnv
from tests.checks.malformed import SECRET, Target, malformed_requests, send

ENVIRONMENTS = ("hgpo_gym/SignpostMaze-v0", "hgpo_gym/ALFWorld-v0", "hgpo_gym/WebShop-v0")
OFFERS = {id: ["split=generated_test"] if id != ENVIRONMENTS[0] else [] for id in ENVIRONMENTS}
PROCESSES, EPISODES, IDLE_TIMEOUT, BODY_LIMIT = 4, 5, 15, 1 << 16
Latencies = dict[str, list[float]]


class Server(NamedTuple):
    """A running server: its process, address, token and what it prints."""

    process: subprocess.Popen[bytes]
    url: str
    token: str
    log: Path

    def open_sessions(self) -> int:
        return httpx.get(f"{self.url}/health", timeout=60).json()["sessions"]

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024 / 1e6

    def processor_seconds(self) -> float:
        user, system = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def seconds_until_empty(self) -> float:
        began = time.monotonic()
        while self.open_sessions():
            time.sleep(0.1)
        return time.monotonic() - began


@contextmanager
def serving(clients: int, folder: Path) -> Iterator[Server]:
    """A server on a free port, with a token and a line in the log for each request."""
    token, log = secrets.token_urlsafe(), folder / "server.log"
    command = [sys.executable, "-m", "hgpo_gym", "serve", "--port", "0", "--access-log"]
    for id, options in OFFERS.items():
        command += ["--env", id, *options]
    command += ["--sessions-per-client", str(2 * max(clients, 32)), "--idle-timeout", str(IDLE_TIMEOUT)]
    command += ["--body", str(BODY_LIMIT)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"HGPO_GYM_SERVER_TOKEN": token}
        )
    try:
        while " Serving " not in log.read_text():
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        (line,) = [line for line in log.read_text().splitlines() if " Serving " in line]
        yield Server(process, line.split(" on ")[1].split(" ")[0], token, log)
    finally:
        process.terminate()
        process.wait()


def play(number: int, url: str, token: str, until: float, think: float) -> tuple[Latencies, list[str]]:
    """A client's seconds for each request by kind, and its errors. `until` is a time as time.time() tells it."""
    rng, errors = random.Random(number), []
    latencies: Latencies = defaultdict(list)
    id = ENVIRONMENTS[number % len(ENVIRONMENTS)]
    while time.time() < until:
        try:
            with timed(latencies["create"]):
                env = RemoteTextEnv(url, id, token=token)
            for _ in range(EPISODES):
                with timed(latencies["reset"]):
                    _, info = env.reset(seed=rng.randrange(2**31))
                over = False
                while not over and time.time() < until:
                    time.sleep(think)
                    action = rng.choice(info["admissible_actions"])
                    with timed(latencies["step"]):
                        _, _, terminated, truncated, info = env.step(action)
                    over = terminated or truncated
                if time.time() >= until:
                    break
            with timed(latencies["close"]):
                env.close()
        except (RuntimeError, ConnectionError, ValueError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return dict(latencies), errors


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append(time.perf_counter() - began)


@contextmanager
def starting_pool() -> Iterator[Pool]:
    """Processes for clients, once they have imported what they need."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(PROCESSES + 1)
    with context.Pool(PROCESSES, ready.wait) as pool:
        ready.wait()
        yield pool


def play_many(numbers: list[int], **settings: object) -> list[tuple[Latencies, list[str]]]:
    """The clients of a process, a thread each."""
    with ThreadPoolExecutor(len(numbers)) as threads:
        return list(threads.map(partial(play, **settings), numbers))  # type: ignore[arg-type]


def vector_steps(server: Server, count: int = 64, seconds: float = 5) -> None:
    """Print the steps a second of one client with many mazes: a request each, one request for all, and no server."""
    options: dict[str, Any] = {"url": server.url, "env": ENVIRONMENTS[0], "token": server.token, "step_limit": 0}
    remote = partial(TextVectorEnv, "hgpo_gym/Remote-v0", **options)
    ways: dict[str, Callable[[], list[TextVectorEnv]]] = {
        "a request for each step": lambda: [remote(num_tasks=1) for _ in range(count)],
        "one request for all": lambda: [remote(num_tasks=count)],
        "without a server": lambda: [TextVectorEnv(ENVIRONMENTS[0], count, max_episode_steps=-1)],
    }
    rates = {name: count * rounds_a_second(make(), seconds) for name, make in ways.items()}
    print(f"| {count} mazes, one client | steps/s | ratio |\n| --- | ---: | ---: |")
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {rate / rates['a request for each step']:.1f} |", flush=True)


def rounds_a_second(envs: list[TextVectorEnv], seconds: float) -> float:
    """Return how often all environments step in a second, and close them."""
    for env in envs:
        env.reset(seed=0)
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        for env in envs:
            env.step(["look around"] * env.num_envs)  # not admissible, so no episode ends
        rounds += 1
    rate = rounds / (time.perf_counter() - began)
    for env in envs:
        env.close()
    return rate


def under_load(server: Server, pool: Pool, clients: int, seconds: float, think: float) -> list[str]:
    """Play, print, and return the errors."""
    print(f"{clients} clients for {seconds:g} s, {1000 * think:g} ms between a response and the next action")
    began, used = time.time(), server.processor_seconds()
    shares = [list(range(first, clients, PROCESSES)) for first in range(min(PROCESSES, clients))]
    playing = pool.map_async(
        partial(play_many, url=server.url, token=server.token, until=began + seconds, think=think), shares
    )
    samples = []
    for mark in np.arange(1, seconds / 10 + 1) * 10:
        time.sleep(max(0, began + min(mark, seconds) - time.time()))
        samples.append((min(mark, seconds), server.open_sessions(), server.resident_mb()))
    results = [result for share in playing.get() for result in share]
    used, took = server.processor_seconds() - used, time.time() - began
    latencies = {kind: np.array([s for found, _ in results for s in found.get(kind, [])]) for kind in results[0][0]}
    errors = [error for _, found in results for error in found]
    count = sum(map(len, latencies.values()))
    print(f"{'':8}{'requests':>10}{'p50':>10}{'p95':>10}{'p99':>10}{'longest':>10}   ms")
    for kind, values in latencies.items():
        marks = "".join(f"{1000 * value:10.1f}" for value in (*np.percentile(values, (50, 95, 99)), values.max()))
        print(f"{kind:8}{len(values):10}{marks}")
    print(f"{count / took:.0f} requests/s, {len(errors)} errors; {1000 * used / count:.2f} ms of processor each")
    for mark, sessions, resident in samples:
        print(f"after {mark:3.0f} s: {sessions:3} sessions, {resident:6.1f} MB")
    print(f"afterwards: no session after {server.seconds_until_empty():.1f} s, {server.resident_mb():.1f} MB")
    return errors


def under_attack(server: Server, count: int) -> list[str]:
    """Send malformed requests, print, and return what is not as it must be."""
    http = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=60)
    session = http.post("/sessions", json={"environment": ENVIRONMENTS[0]}).json()["session"]
    target = Target("127.0.0.1", int(server.url.rpartition(":")[2]), session, ENVIRONMENTS[0], server.token, BODY_LIMIT)
    print(f"\nbefore malformed requests: {server.resident_mb():.1f} MB")
    began = time.monotonic()
    requests = islice(malformed_requests(0, target), count)
    statuses: Counter[int] = Counter()
    wrong = []
    with ThreadPoolExecutor(8) as threads:
        for kind, status in threads.map(lambda request: (request[0], send(target, request[1])), requests):
            statuses[status] += 1
            if not 400 <= status < 500:
                wrong.append(f"{kind}: {status}")
    print(f"after {count} of them in {time.monotonic() - began:.0f} s: {server.resident_mb():.1f} MB")
    print("  ".join(f"{status}: {times}" for status, times in sorted(statuses.items())))
    log = server.log.read_text()
    found = [secret for secret in (SECRET, server.token, session) if secret in log]
    http.delete(f"/sessions/{session}")
    print(f"{len(log.splitlines())} lines of log, {len(found)} secrets in them")
    env = RemoteTextEnv(server.url, ENVIRONMENTS[0], token=server.token)
    print(f"still serving: {env.reset(seed=0)[0]}")
    env.close()
    return wrong + [f"in the log: {secret}" for secret in found]


def vanish(url: str, token: str, plays: threading.Event) -> None:
    env = RemoteTextEnv(url, ENVIRONMENTS[0], token=token, step_limit=0)
    while True:
        env.reset()
        plays.set()


def left_alone(server: Server) -> None:
    """Kill a client while it plays, and print when its session goes."""
    context = multiprocessing.get_context("spawn")
    plays = context.Event()
    client = context.Process(target=vanish, args=(server.url, server.token, plays))
    client.start()
    plays.wait()
    client.kill()
    client.join()
    print(f"\na client was killed: {server.open_sessions()} session; ", end="")
    print(f"none {server.seconds_until_empty():.1f} s later (--idle-timeout {IDLE_TIMEOUT})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--think", type=float, nargs="*", default=[0, 0.5], help="seconds before an action, a run each (0 0.5)"
    )
    parser.add_argument("--malformed", type=int, default=10_000)
    options = parser.parse_args()
    wrong = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(options.clients, Path(folder)) as server,
        starting_pool() as pool,
    ):
        vector_steps(server)
        for think in options.think:
            wrong += under_load(server, pool, options.clients, options.seconds, think)
        wrong += under_attack(server, options.malformed)
        left_alone(server)
    if wrong:
        sys.exit("\n".join(["NOT AS IT MUST BE", *wrong[:20]]))


if __name__ == "__main__":
    main()
