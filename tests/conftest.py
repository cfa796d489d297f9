"""Tiers and seconds of tests; real data, `../shared/data` beside the repository or where HGPO_GYM_DATA points; reports
without their pictures, but where a test looks at them."""

import importlib.util
import os
import shutil
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tiny models are fastest with one thread

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.support import ROOT

# A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


FOLDERS = ("unit", "integration", "docs", "parity")


class Seconds:
    """Adds up the seconds of tests, their fixtures included, and keeps them for the table of promises."""

    def __init__(self) -> None:
        self.of_tests: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.of_tests[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """With --durations the seconds of files, too."""
        if (cache := getattr(config, "cache", None)) is not None:
            cache.set("hgpo_gym/seconds", cache.get("hgpo_gym/seconds", {}) | self.of_tests)
        if config.getoption("durations"):
            files: defaultdict[str, float] = defaultdict(float)
            for test, seconds in self.of_tests.items():
                files[test.partition("::")[0]] += seconds
            terminalreporter.section("seconds of files")
            for name, seconds in sorted(files.items(), key=lambda item: -item[1]):
                terminalreporter.write_line(f"{seconds:8.1f} {name}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seconds())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test is marked with the name of its folder. Those with a separate environment start engines and load real
    models, which takes longer."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in FOLDERS:
            item.add_marker(folder)
        else:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def pictures() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Reports that this process writes have blank pictures: to draw them takes longer than all else in a small run.
    Inside of `with pictures():` they are drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        yield nullcontext
        return
    from hgpo_gym.analysis.report.blocks import Picture

    patch = pytest.MonkeyPatch()

    def leave_blank() -> None:
        patch.setattr(Picture, "svg", "")

    @contextmanager
    def drawn() -> Iterator[None]:
        patch.undo()
        try:
            yield
        finally:
            leave_blank()

    leave_blank()
    yield drawn
    patch.undo()


@pytest.fixture(scope="session", autouse=True)
def forked_runs() -> Iterator[None]:
    """Comparisons of this process train in forks. In test_compare.py a worker is a new interpreter, as users' are."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    from hgpo_gym.experiments import pool
    from tests.support import forks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "multiprocessing", forks)
        yield


@pytest.fixture(scope="session")
def data_root() -> Path:
    return Path(os.environ.get("HGPO_GYM_DATA") or ROOT.parent / "shared" / "data")


@pytest.fixture(scope="session")
def webshop_data(data_root: Path) -> Path:
    """A folder with the catalogue of 1,000 products, and in `reference` what the original says of it."""
    folder = data_root / "webshop"
    if not folder.is_dir():
        pytest.skip(f"no WebShop catalogue in {folder}: set HGPO_GYM_DATA")
    return folder


@pytest.fixture(scope="session")
def webshop_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory that all tests of WebShop share."""
    return tmp_path_factory.mktemp("webshop-cache")


@pytest.fixture(scope="session")
def alfworld_data(data_root: Path) -> Path:
    """A folder that holds `json_2.1.1`, with the splits valid_train (200 games) and valid_seen (140)."""
    folder = data_root / "alfworld"
    if not folder.is_dir():
        pytest.skip(f"no ALFWorld games in {folder}: set HGPO_GYM_DATA")
    return folder


@pytest.fixture(scope="session")
def textworld_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two small games of TextWorld, each .z8 and .json."""
    textworld = pytest.importorskip("textworld")
    folder = tmp_path_factory.mktemp("textworld")
    for seed in (1, 2):
        options = textworld.GameOptions()
        options.seeds, options.path = seed, str(folder / f"game{seed}.z8")
        options.nb_rooms, options.nb_objects, options.chaining.max_depth = 2, 3, 2
        textworld.make(options)
    return folder


@pytest.fixture(scope="session")
def java() -> None:
    """ScienceWorld's package and a Java for its simulator."""
    pytest.importorskip("scienceworld")
    if shutil.which("java") is None:
        pytest.skip("no Java: apt-get install default-jre-headless")
    # Compiles less, and starts faster.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium; a test without it is skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    from tests.checks.browser import open_browser

    with sync_api.sync_playwright() as playwright:
        try:
            browser = open_browser(playwright)
        except sync_api.Error:
            pytest.skip("no browser: playwright install chromium, or chromium on PATH")
        yield browser
        browser.close()
