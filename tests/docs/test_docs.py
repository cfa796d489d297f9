"""The documentation is true: its code runs, its links lead somewhere, its commands have settings that exist."""

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

from docs_site.hook import GENERATED
from hgpo_gym.cli.main import make_parser
from hgpo_gym.config.compose import load_config
from tests.support import ROOT, warm
from tests.support.documents import REAL_MODEL, blocks, check_command, commands, pages, run_page
from tests.support.serving import ServerProcess

PAGES = pages()
SERVED = "docs/guides/server.md"


def read(page):
    return (ROOT / page).read_text()


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One for all pages, also of several test processes, so that games and catalogues are made once."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "documentation-cache"


def has_something_to_run(page):
    return any(block.kind != "shown" and not block.not_run for block in blocks(page, read(page)))


@pytest.mark.timeout(600)
@pytest.mark.promise("What a page of the documentation shows can be typed in order, and prints what it shows.")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.smoke if page == "docs/quickstart.md" else [])
        for page in PAGES
        if page not in (SERVED, REAL_MODEL) and has_something_to_run(page)
    ],
)
def test_a_page_can_be_followed(page, tmp_path, cache):
    """`run_page` raises where a block fails or prints something else than the page says. README's reports draw."""
    draws = page == "README.md"
    run_page(page, tmp_path, cache, pictures=draws, python=warm.python())
    drawn = {path.stat().st_size > 0 for path in (tmp_path / "page").rglob("figures/*.*")}
    assert drawn <= {draws}
    assert drawn or not draws


@pytest.mark.timeout(600)
def test_what_the_page_of_the_server_says_runs_against_one(tmp_path, cache):
    with ServerProcess("--env", "hgpo_gym/SignpostMaze-v0", "split=[train,test]") as server:
        responses = run_page(
            SERVED,
            tmp_path,
            cache,
            lambda text: text.replace("http://127.0.0.1:8000", server.url),
            python=warm.python(),
        )
        assert server.open_sessions() == 0
    assert '"task_ids":["red-red-blue","red-red-green","red-blue-red"]' in responses
    assert '{"turn": 2, "observation": "You are in a bare corridor."' in responses
    assert '"unknown-option"' in responses


@pytest.mark.timeout(600)
@pytest.mark.smoke
@pytest.mark.promise("Every command and Python block on a page of the documentation is one that the package knows.")
def test_every_block_is_valid():
    """Python compiles; every command of hgpo-gym has settings that exist, with values that can be. The
    settings of those that need a file which the page writes are only followed."""
    known, wrong = set(), []
    for page in PAGES:
        of_page = blocks(page, read(page))
        names = {word for block in of_page if block.kind == "file" for word in re.findall(r"\w+", block.file)}
        for block in of_page:
            if block.kind == "python":
                compile(block.text, f"{page}:{block.line}", "exec")
            for command in commands(block) if block.kind == "shell" else ():
                if tuple(command) not in known:
                    known.add(tuple(command))
                    needs_file = not block.not_run and names & set(re.findall(r"\w+", " ".join(command)))
                    try:
                        (make_parser().parse_args if needs_file else check_command)(command)
                    except (SystemExit, TypeError, ValueError) as error:
                        wrong.append(f"{page}:{block.line}: {' '.join(command)}: {error}")
    assert wrong == []


def test_comparisons_of_a_block_do_not_meet_in_one_folder():
    """Whoever types one after the other is not refused: one folder has one comparison."""
    for page in PAGES:
        for block in blocks(page, read(page)):
            folders = defaultdict(set)
            for command, *overrides in commands(block) if block.kind == "shell" else ():
                if command == "compare":
                    compare_only = ("algos=", "jobs=", "plugins=", "seeds=")
                    env_and_out = [override for override in overrides if override.startswith(("env=", "out="))]
                    out = load_config("compare", env_and_out)["out"]
                    folders[out].add(tuple(override for override in overrides if not override.startswith(compare_only)))
            assert [out for out, settings in folders.items() if len(settings) > 1] == [], f"{page}:{block.line}"


@pytest.mark.smoke
def test_links_lead_somewhere():
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", read(page), flags=re.S | re.M)
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
            path = (Path(page).parent / target).as_posix()
            if not target.startswith("http") and path.removeprefix("docs/") not in GENERATED:
                assert (ROOT / path).exists(), f"{page} links to {target}"


@pytest.mark.parametrize(
    ("markdown", "message"),
    [
        ("```\nls\n```\n", "language ''"),
        ("<!-- not-run: hours -->\n```sh\nls\n```\n", "is no mark"),
        ("<!-- not run -->\n```sh\nls\n```\n", "is no mark"),
        ("<!-- output -->\n```sh\nls\n```\n", "does not suit"),
    ],
)
def test_a_block_that_nobody_would_run_is_refused(markdown, message):
    with pytest.raises(ValueError, match=message):
        blocks("page.md", markdown)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "trainer.iteration=1"], ["train", "correction=tokens"], ["compare", "algos=[gigpo,hgpoo]"],
        ["compare", "seeds=[1,1]"], ["train", "env=signpost_maz"],
    ],
)  # fmt: skip
def test_a_command_with_a_mistake_is_refused(command):
    with pytest.raises(ValueError, match=r"."):
        check_command(command)


def test_a_page_whose_code_fails_or_prints_something_else_is_refused(tmp_path, monkeypatch):
    """Blocks share a namespace, a shell and a folder."""
    page = "```python\nprint(6 * 7)\n```\n\n<!-- output -->\n```text\n4...\n```\n\n```sh\nmkdir a\ncd a\nX=1\n```\n"
    page += '```text title="b/c.py"\nhello\n```\n```sh\n[ $X = 1 ]\ncat ../a/b/c.py\n```\n'
    page += "<!-- output -->\n```text\nhello\n```\n"
    monkeypatch.setattr("tests.support.documents.ROOT", tmp_path)
    for number, (end, message) in enumerate(
        [
            ("", None),
            ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
            ("<!-- output -->\n```text\nbye\n```\n", "shows"),
        ]
    ):
        (tmp_path / "page.md").write_text(page + end)
        if message is None:
            assert run_page("page.md", tmp_path / str(number), tmp_path) == "42\nhello\n"
        else:
            with pytest.raises(AssertionError, match=message):
                run_page("page.md", tmp_path / str(number), tmp_path)
