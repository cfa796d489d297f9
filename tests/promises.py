"""The table of promises in tests/README.md: what a user may rely on, and the test that fails where it does not hold.

A test is in it by `@pytest.mark.promise("...")`. Tests are read, not imported.

    python -m tests.promises          # write the table, with the seconds of the last run of pytest
    python -m tests.promises --check  # exit with 1 where the table is out of date, seconds aside
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

PAGE = ROOT / "tests" / "README.md"
SECONDS = ROOT / ".pytest_cache" / "v" / "hgpo_gym" / "seconds"
BEFORE = "| promise | test | tier | seconds |\n| --- | --- | --- | --- |\n"
ELSEWHERE = ("openenv", "pretrained", "verifiers", "verl", "vllm")
"""Folders with a separate environment."""


class Promise(NamedTuple):
    """A promise, and where it is proved."""

    text: str
    test: str
    tier: str


def promises() -> list[Promise]:
    """Return the promises of all tests, in the order of files and lines."""
    return [promise for path in sorted((ROOT / "tests").rglob("test_*.py")) for promise in promises_of(path)]


def promises_of(path: Path) -> Iterator[Promise]:
    """Return the promises of a file's tests."""
    folder, statements = path.relative_to(ROOT / "tests").parts[0], ast.parse(path.read_text()).body
    of_all = dict(
        mark(one.value)
        for one in statements
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"
    )
    for function in statements:
        if isinstance(function, ast.FunctionDef):
            marks = of_all | dict(map(mark, function.decorator_list))
            if "promise" in marks:
                first = "smoke" in marks or (folder == "unit" and "slow" not in marks)
                tier = f"test-{folder}" if folder in ELSEWHERE else "test" if first else "test-all"
                yield Promise(marks["promise"], f"{path.relative_to(ROOT / 'tests').as_posix()}::{function.name}", tier)


def mark(decorator: ast.expr) -> tuple[str, str]:
    """The name and the first argument of a decorator `@pytest.mark.NAME(...)`; of others nothing."""
    called, arguments = (decorator.func, decorator.args) if isinstance(decorator, ast.Call) else (decorator, [])
    if not ast.unparse(called).startswith("pytest.mark."):
        return "", ""
    return ast.unparse(called).rpartition(".")[2], _text(arguments[0]) if arguments else ""


def table(seconds: dict[str, float]) -> str:
    """The rows of the table; `seconds` are those of tests, by their names in it."""
    return "".join(
        f"| {promise.text} | `{promise.test}` | `make {promise.tier}` | {_rounded(seconds.get(promise.test))} |\n"
        for promise in promises()
    )


def without_seconds(text: str) -> str:
    """The page without its last column."""
    return re.sub(r"\|[^|\n]*\|$", "|", text, flags=re.MULTILINE)


def _text(argument: ast.expr) -> str:
    return str(argument.value) if isinstance(argument, ast.Constant) else ""


def _rounded(seconds: float | None) -> str:
    """One digit that counts, so that a page that is written again seldom changes."""
    return "" if seconds is None else "1" if seconds < 1 else f"{float(f'{seconds:.1g}'):.0f}"


def _known(page: str) -> dict[str, float]:
    """The seconds that a page has, and over them those of the last run of pytest, of all parameters together."""
    known = {test: float(seconds) for test, seconds in re.findall(r"`(\S+::\S+)` .* ([\d.]+) \|$", page, re.MULTILINE)}
    if SECONDS.exists():
        measured: dict[str, float] = {}
        for test, seconds in json.loads(SECONDS.read_text()).items():
            name = test.removeprefix("tests/").partition("[")[0]
            measured[name] = measured.get(name, 0.0) + seconds
        known |= measured
    return known


def main() -> None:
    page = PAGE.read_text()
    above, _, _ = page.partition(BEFORE)
    if "--check" not in sys.argv:
        PAGE.write_text(above + BEFORE + table(_known(page)))
    elif without_seconds(above + BEFORE + table({})) != without_seconds(page):
        sys.exit("tests/README.md is not the table of the tests' promises: run python -m tests.promises.")


if __name__ == "__main__":
    main()
