"""The Java virtual machine of this process, in which ScienceWorld's simulator runs all games.

Games share three values of the machine: the generator of `scala.util.Random`, the counter of `util.UniqueIdentifier`,
and the list of simplifications. `Jvm.enter` exchanges them before each call. A machine that dies or hangs is replaced,
and `run_in_jvm` repeats the call; games then replay their actions.
"""

import logging
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from hgpo_gym.extras import requires_extra

with requires_extra("scienceworld", "ScienceWorld"):
    from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path
    from py4j.protocol import Py4JError, Py4JJavaError
    from scienceworld.constants import JAR_PATH

OBJECT_TYPES = "object_type_ids.tsv"
"""File that the simulator writes."""
READ_TIMEOUT = 120.0
"""Seconds without an answer after which a machine is killed and replaced."""
EXIT_TIMEOUT = 10.0
"""Seconds that a machine has to end by itself."""
ATTEMPTS = 3
"""Machines that may fail at the same call."""
FLAGS = (
    "-Xmx4g",
    "-Xss4m",
    "-XX:+UseSerialGC",
    # By default the heap begins as a share of the computer's memory, and most of it is for young objects.
    "-Xms128m",
    "-Xmn64m",
    # With 64 games the other objects take 600 MB; the default ratios would keep 1 GB for them.
    "-XX:MinHeapFreeRatio=15",
    "-XX:MaxHeapFreeRatio=30",
    # ScienceWorld 1.2.3 iterates over sets by identity hash codes, which differ from one machine to the next.
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
)
NO_JAVA = (
    "ScienceWorld needs Java 8 or newer, and there is no java on the PATH: 'apt-get install default-jre-headless', "
    "'conda install openjdk' or 'brew install openjdk'."
)
NO_START = (
    "Java did not start ScienceWorld. It needs HotSpot, Java 8 or newer; 'java {} -version' shows what is wrong here."
)

_Result = TypeVar("_Result")

# py4j logs a traceback for each object of a machine that has died; the warning below is enough.
logging.getLogger("py4j").setLevel(logging.CRITICAL)
# py4j 0.10.9 logs calls that fail by the root logger.
logging.getLogger().addFilter(lambda record: record.module != "java_gateway")


class Course:
    """A game's part of the state that all games of a machine share.

    Args:
        random: the `java.util.Random` from which the game draws.
        simplifications: names, joined by commas.

    Attributes:
        count: the latest number of `util.UniqueIdentifier`.
    """

    def __init__(self, random: Any, simplifications: str):
        self.random, self.simplifications, self.count = random, simplifications, 0


class Jvm:
    """A running machine. It ends with this process, however that ends.

    Raises:
        FileNotFoundError: there is no Java.
        RuntimeError: it does not start.
    """

    def __init__(self) -> None:
        classes = os.pathsep.join((find_jar_path(), JAR_PATH))
        self._folder = Path(tempfile.mkdtemp(prefix=f"hgpo_gym-scienceworld-{os.getpid()}-"))
        self._file = self._folder / "texts"
        command = ["java", *FLAGS, "-cp", classes, "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
        try:
            self.process = subprocess.Popen(
                command,
                cwd=self._folder,  # the simulator writes a table of object types there
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is for this process alone
            )
        except FileNotFoundError as error:
            self._folder.rmdir()
            raise FileNotFoundError(NO_JAVA) from error
        self._client: Any = None
        try:
            self._connect()
            self._find_shared_state()
        # Ctrl-C too: no Java virtual machine may outlive a failed start.
        except BaseException:
            self.kill()
            raise

    def _connect(self) -> None:
        assert self.process.stdout is not None
        port, token = self.process.stdout.readline().strip(), self.process.stdout.readline().strip()
        if not token:
            raise RuntimeError(NO_START.format(" ".join(FLAGS)))
        # Without a token every user of the computer could run code in the machine.
        parameters = GatewayParameters(port=int(port), auth_token=token.decode(), read_timeout=READ_TIMEOUT)
        gateway = JavaGateway(gateway_parameters=parameters)
        self._client, self._gateway, self._java = gateway._gateway_client, gateway, gateway.jvm.java
        # Before the first class of Scala is loaded, which keeps the stream: the simulator prints at each step.
        stream = self._java.io.PrintStream(self._java.io.ByteArrayOutputStream())
        self._java.lang.System.setOut(stream)
        stream.close()

    def _find_shared_state(self) -> None:
        loader = self._java.lang.ClassLoader.getSystemClassLoader()

        def module(name: str) -> Any:
            return loader.loadClass(name).getField("MODULE$").get(None)

        self._random, self._ids = module("scala.util.Random$"), module("util.UniqueIdentifier$")
        self._simplifier = module("main.scala.scienceworld.runtime.SimplifierProcessor$")
        self._generator = loader.loadClass("scala.util.Random").getDeclaredField("self")
        self._generator.setAccessible(True)
        self._course: Course | None = None
        # If this process is killed, the machine removes its folder: what was named last goes first.
        for path in (self._folder, self._folder / OBJECT_TYPES, self._file):
            file = self._java.io.File(str(path))
            file.deleteOnExit()
        self._path = file.toPath()
        self._no_options = self._gateway.new_array(self._gateway.jvm.java.nio.file.OpenOption, 0)
        # Kept: py4j asks the machine for each part of a name such as java.nio.file.Files.
        self._files, self._new_random = self._java.nio.file.Files, self._java.util.Random

    def new_course(self, simplifications: str = "") -> Course:
        """Return the course of a game that begins."""
        return Course(self._new_random(0), simplifications)

    def new_simulator(self) -> Any:
        """Return ScienceWorld's `PythonInterface`, for one game at a time."""
        # Making one draws numbers: not from a game that is being played.
        self.enter(self.new_course())
        return self._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def enter(self, course: Course) -> None:
        """Give the machine a course's shared state, and note that of the course before."""
        before = self._course
        if before is course:
            return
        if before is not None:
            before.count = self._ids.count()
        self._generator.set(self._random, course.random)
        getattr(self._ids, "count_$eq")(course.count)
        if before is None or before.simplifications != course.simplifications:
            self._simplifier.parseSimplificationStr(course.simplifications)
        self._course = course

    @contextmanager
    def without_side_effects(self, course: Course) -> Iterator[None]:
        """Let questions draw from another generator, so that they change nothing in a game."""
        self.enter(self.new_course(course.simplifications))
        try:
            yield
        finally:
            self.enter(course)

    def texts(self, values: Any) -> list[str]:
        """Return a Java list of texts without line breaks. A file carries them: py4j would ask for one at a time."""
        self._files.write(self._path, values, self._no_options)
        return self._file.read_text("utf-8").split("\n")[:-1]

    def close(self) -> None:
        """End the machine."""
        self._disconnect()
        try:
            self.process.wait(EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End the machine at once."""
        self.process.kill()
        self.process.wait()
        self._disconnect()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _disconnect(self) -> None:
        """Close the connections. The machine ends when its standard input does."""
        if self._client is not None:
            self._client.is_connected = False  # else each object here would still be released there
            self._client.close()
        self._close_pipes()

    def leave_to_parent(self) -> None:
        """Release what a forked process has of its parent's machine, which goes on."""
        if self._client is not None:
            self._client.is_connected = False
            for connection in self._client.deque:
                # The file descriptors alone: py4j would shut the parent's connections down.
                connection.stream.close()
                connection.socket.close()
            self._client.deque.clear()
        self._close_pipes()
        self.process.returncode = 0  # no child of this process

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class _Machines:
    """The machine of this process, and the games that are played in it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.jvm: Jvm | None = None
        self.games: set[object] = set()

    def leave_to_parent(self) -> None:
        if self.jvm is not None:
            self.jvm.leave_to_parent()
        self.__init__()  # type: ignore[misc]  # another thread of the parent may hold the lock


_MACHINES = _Machines()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_MACHINES.leave_to_parent)


def run_in_jvm(work: Callable[[Jvm], _Result]) -> _Result:
    """Return the result of `work` in the machine of this process, which is started if necessary. Threads take turns.

    If the machine dies or hangs, another one is started, and `work` is called again.

    Raises:
        RuntimeError: several machines have failed.
        MemoryError: the machine's memory is full.
    """
    with _MACHINES.lock:
        for attempt in range(1, ATTEMPTS + 1):
            if _MACHINES.jvm is None:
                _MACHINES.jvm = Jvm()
            try:
                return work(_MACHINES.jvm)
            except Py4JJavaError as error:  # the machine is well
                if "OutOfMemoryError" in str(error.java_exception):
                    raise MemoryError(_no_memory()) from error
                raise
            except (Py4JError, OSError) as error:
                _kill()
                if attempt == ATTEMPTS:
                    raise RuntimeError(
                        f"ScienceWorld's Java virtual machine has failed {ATTEMPTS} times at the same call ({error}). "
                        "Is there memory left, and does something kill processes named java?"
                    ) from error
                warnings.warn(
                    f"ScienceWorld's Java virtual machine died or did not answer in {READ_TIMEOUT:g} s: another one is "
                    "started, and its games are replayed.",
                    stacklevel=2,
                )
            except BaseException:  # Ctrl-C: the call may still be running
                _kill()
                raise
    raise AssertionError


def _no_memory() -> str:
    return (
        f"The memory of ScienceWorld's Java virtual machine is full, with {len(_MACHINES.games)} games: play fewer in "
        "this process (rollout.workers), or set the environment variable _JAVA_OPTIONS=-Xmx8g."
    )


def _kill() -> None:
    if _MACHINES.jvm is not None:
        _MACHINES.jvm.kill()
        _MACHINES.jvm = None


def register_game(token: object) -> None:
    """Note that a game is being played, so that the machine goes on."""
    with _MACHINES.lock:
        _MACHINES.games.add(token)


def release_game(token: object) -> None:
    """Note that a game is over. The machine ends with the last one."""
    with _MACHINES.lock:
        _MACHINES.games.discard(token)
        if not _MACHINES.games and _MACHINES.jvm is not None:
            jvm, _MACHINES.jvm = _MACHINES.jvm, None
            jvm.close()
