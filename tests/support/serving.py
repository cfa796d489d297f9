"""Real servers for tests: `hgpo-gym serve` in a new process, with environments that tests control."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import httpx

from hgpo_gym.envs import TextEnv, Turn, register
from tests.support import ROOT

TEST, MANY = "hgpo_gym_tests/Told-v0", "hgpo_gym_tests/Many-v0"


class Told(TextEnv):
    """Does what the action says. `gate` is a file for which `wait` waits, `closed` one that gets a line a close."""

    task_ids: Sequence[str] = ("a", "b")

    def __init__(self, gate="", closed="", render_mode=None):
        super().__init__(render_mode=render_mode)
        self._gate, self._closed = gate, closed
        if Path(f"{gate}.broken").exists():
            raise OSError("Broken for the test.")

    def begin_episode(self, task_id):
        self.actions = 0
        return Turn(f"Begin {self.np_random.integers(10**9)}.", task="Obey.")

    def take_action(self, action):
        self.actions += 1
        if action.startswith("raise"):
            raise KeyError(action)
        if action.startswith("exit"):
            raise SystemExit(action)
        if action == "wait":
            Path(f"{self._gate}.waited-for").touch()
            wait_for_file(Path(self._gate))
        if action == "roll":
            return Turn(str(self.np_random.integers(10**9)))
        if action == "win":
            return Turn("Won.", reward=1.0, terminated=True, won=True)
        extras = {"object": {"thing": object()}, "nan": {"number": float("nan")}}.get(action, {})
        return Turn(f"{self.actions}: {action}", extras=extras)

    def close(self):
        if self._closed:
            with Path(self._closed).open("a") as file:
                file.write("closed\n")


class TenMillion(Sequence):
    """Task ids that nobody may copy."""

    def __len__(self):
        return 10**7

    def __getitem__(self, index):
        if isinstance(index, slice):
            positions = range(10**7)[index]
            assert len(positions) <= 1000
            return [f"task-{position}" for position in positions]
        return f"task-{range(10**7)[index]}"

    def __contains__(self, task_id):
        return task_id.startswith("task-") and int(task_id[5:]) < 10**7

    def __iter__(self):
        raise AssertionError("ten million tasks were copied")


class Many(Told):
    task_ids = TenMillion()


register(TEST, Told, max_episode_steps=10, description="for tests")
register(MANY, Many, max_episode_steps=10, description="for tests")


def wait_for_file(path):
    """Wait until another process has written this file."""
    while not path.exists():
        time.sleep(0.01)


def stop_clock(late):
    """Stop the clock of the server in this process: limits of time are over only while the file `late` exists."""
    from hgpo_gym.server import sessions, threads

    sessions.time = threads.time = SimpleNamespace(monotonic=lambda: 1e9 * Path(late).exists())


class ServerProcess:
    """`hgpo-gym serve` with these arguments on a free port; `before` is run in its process first.

    Attributes:
        url: where it serves.
        process: it.
    """

    def __init__(self, *arguments, before="", **environment):
        start = (
            f"import tests.support.serving; {before or 'pass'}; from hgpo_gym.cli.main import main; "
            f"main({['serve', '--port', '0', *arguments]!r})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", start], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env=os.environ | environment,
        )  # fmt: skip
        self._output, self._ended, self._marks = "", False, 0
        self._printed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.wait_for_output(" Serving ")
        self.url = re.search(r" Serving .* on (\S+)", self._output)[1]

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    def wait_for_output(self, text, count=1):
        """Wait until it has printed this text, so many times. A request may be answered before that."""
        with self._printed:
            self._printed.wait_for(lambda: self._output.count(text) >= count or self._ended)
            assert self._output.count(text) >= count, self._output

    def log(self):
        """Return what it has printed until now, with the log of all requests that were answered. Needs --access-log."""
        self._marks += 1
        httpx.head(f"{self.url}/no-such-route")
        self.wait_for_output(" INFO HEAD ? ", self._marks)
        return self._output

    def get(self, path, **options):
        return httpx.get(self.url + path, **options)

    def post(self, path, content=None, **options):
        return httpx.post(self.url + path, json={} if content is None else content, **options)

    def new_session(self, environment=TEST, **options):
        """The path of a new session."""
        response = self.post("/sessions", {"environment": environment}, **options)
        assert response.status_code == 201, response.text
        return f"/sessions/{response.json()['session']}"

    def open_sessions(self):
        return self.get("/health").json()["sessions"]

    def until_open(self, count):
        """Ask until so many sessions are open."""
        while self.open_sessions() != count:
            time.sleep(0.01)

    def stop(self, signal_number=signal.SIGTERM):
        """Return its exit status and all that it printed."""
        self.process.send_signal(signal_number)
        status = self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        return status, self._output

    def _read(self):
        for line in self.process.stdout:
            with self._printed:
                self._output += line
                self._printed.notify_all()
        with self._printed:
            self._ended = True
            self._printed.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
