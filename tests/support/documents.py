"""The code blocks of the documentation: found, run in order, or checked where they cannot be run.

What a block is comes from its language and from what stands directly above it:

    ```python, ```sh, ```bash         run, all blocks of a page in order, in one namespace, shell and folder
    ```python title="radio/env.py"    a file that the reader writes, of any language; nothing is run
    ```text, yaml, json, ...          shown
    <!-- output -->                   over a shown block: what the block before it printed; `...` stands for anything
    <!-- not run: reason -->          only checked: Python compiles, commands of hgpo-gym have settings that exist
    <!-- run with: key=value ... -->  run with these settings on top, so that it takes seconds instead of minutes
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from hgpo_gym.adapters.verl.run_settings import Scale, verl_settings
from hgpo_gym.cli.main import SETTINGS, make_parser
from hgpo_gym.config.compose import load_config, load_run
from hgpo_gym.experiments.league import environments
from hgpo_gym.experiments.plan import seed_list, variants
from hgpo_gym.trainers.settings import RunSettings
from tests.support import ROOT

CHECKED_ONLY = ("benchmarks/",)
"""Pages whose commands take hours: as if each block were marked `not run`."""
REAL_MODEL = "docs/tutorials/small_model.md"
"""A page that needs weights of a real model: tests/pretrained follows it."""
SHELL = ("sh", "bash")
SHOWN = ("text", "yaml", "json", "toml", "math", "diff", "bibtex", "dockerfile")
FENCE = re.compile(
    r"^(?:(?P<indent> *)<!-- (?P<mark>[^\n]*?) -->\n)?(?P<inside> *)(?P<fence>```+)(?P<info>[^\n`]*)\n"
    r"(?P<text>.*?)^ *(?P=fence)[ ]*$",
    flags=re.DOTALL | re.MULTILINE,
)
LAUNCHED = re.compile(r"^(torchrun|accelerate launch) .*?-m hgpo_gym ")
"""By a launcher of several processes; what follows is as after hgpo-gym."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: of its first line, from 1.
        kind: python, shell, file, output or shown.
        run_with: settings that are added to commands of hgpo-gym.
        not_run: why it is only checked; empty if it is run.
    """

    line: int
    language: str
    kind: str
    text: str
    file: str = ""
    run_with: str = ""
    not_run: str = ""


def pages() -> list[str]:
    """The pages of the documentation, by their path in the repository."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page: str, markdown: str) -> list[Block]:
    """The blocks of a page in order.

    Raises:
        ValueError: a block without a language, or what stands above it cannot be understood.
    """
    return [_block(page, markdown, match) for match in FENCE.finditer(markdown)]


def _block(page: str, markdown: str, match: re.Match[str]) -> Block:
    line = markdown.count("\n", 0, match.start("text")) + 1
    language, _, attributes = match["info"].strip().partition(" ")
    indent = len(match["inside"])
    text = "".join(row[indent:] if row.strip() else row for row in match["text"].splitlines(keepends=True))
    if language not in ("python", *SHELL, *SHOWN):
        allowed = ", ".join(("python", *SHELL, *SHOWN))
        raise ValueError(f"{page}:{line}: a block of the language {language!r}; expected one of {allowed}.")
    name, _, value = (match["mark"] or "").partition(": ")
    if name and (name not in ("output", "not run", "run with") or (name != "output") != bool(value)):
        raise ValueError(
            f"{page}:{line}: {match['mark']!r} is no mark: output, `not run: reason`, `run with: key=value`."
        )
    file = re.search(r'title="([^"]+)"', attributes)
    kinds = {"python": "python"} | dict.fromkeys(SHELL, "shell") | dict.fromkeys(SHOWN, "shown")
    kind = "file" if file else "output" if name == "output" else kinds[language]
    if name and (kinds[language] == "shown") != (name == "output"):
        raise ValueError(f"{page}:{line}: the mark {match['mark']!r} does not suit a block of the language {language}.")
    only_checked = "benchmarks: only checked" if page.startswith(CHECKED_ONLY) else ""
    return Block(
        line,
        language,
        kind,
        text,
        file=file[1] if file else "",
        run_with=value if name == "run with" else "",
        not_run=value if name == "not run" else only_checked,
    )


def run_page(
    page: str,
    folder: Path,
    cache: Path,
    change: Callable[[str], str] = str,
    *,
    pictures: bool = False,
    python: Sequence[str] = (),
) -> str:
    """Follow a page as a reader would: its blocks in order, in a new Python environment and an empty folder.

    Args:
        page: its path in the repository.
        folder: an empty one, for the environment and for what the page makes.
        cache: of hgpo-gym.
        change: of the text of each block before it is run.
        pictures: whether reports draw theirs.
        python: what runs the page and its commands of hgpo-gym, see `warm`; empty: the reader's new environment.

    Returns:
        What its blocks have printed.

    Raises:
        AssertionError: a block failed or printed something else; with the place and the output.
    """
    followed = [block for block in blocks(page, (ROOT / page).read_text()) if not block.not_run]
    tasks = [{**asdict(block), "text": change(block.text)} for block in followed if block.kind != "shown"]
    python = python or [str(folder / "reader" / "bin" / "python")]
    environment = _reader(folder / "reader", cache, python, pictures=pictures)
    (folder / "page").mkdir()
    done = subprocess.run(
        [*python, str(Path(__file__).with_name("follow_page.py")), page],
        input=json.dumps(tasks),
        cwd=folder / "page",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _reader(folder: Path, cache: Path, python: Sequence[str], *, pictures: bool) -> dict[str, str]:
    """The variables of a reader with a separate Python environment, in which all that is installed here is too."""
    venv.create(folder, with_pip=False)
    [site] = folder.glob("lib/python*/site-packages")
    here = [sysconfig.get_paths()["purelib"], *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "here.pth").write_text("".join(f"{path}\n" for path in [ROOT, *dict.fromkeys(here)]))
    if not pictures:
        shutil.copy(Path(__file__).with_name("blank_pictures.py"), site / "sitecustomize.py")
    with_settings = f'case $1 in {"|".join(SETTINGS)}) set -f; set -- "$@" $RUN_WITH;; esac\n'
    interpreter = shlex.quote(str(folder / "bin" / "python"))
    for name, command in (
        ("hgpo-gym", f"{with_settings}exec {shlex.join(python)} -m hgpo_gym"),
        ("pip", f"exec {interpreter} -m pip"),
    ):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\n{command} "$@"\n')
        script.chmod(0o755)
    added = {
        "HGPO_GYM_CACHE": str(cache),
        "VIRTUAL_ENV": str(folder),
        "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        # What is installed here suffices, and there may be no network.
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "120",
    }
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | added


def commands(block: Block) -> Iterator[list[str]]:
    """The arguments of each command of hgpo-gym in a block, without what the shell makes of the output."""
    for line in block.text.replace("\\\n", " ").splitlines():
        line = LAUNCHED.sub("hgpo-gym ", line.strip())
        if line.startswith("hgpo-gym "):
            yield words(line)


def words(command: str) -> list[str]:
    """The arguments of a command, without what the shell makes of its output."""
    split = shlex.split(command, comments=True)[1:]
    return split[: next((number for number, word in enumerate(split) if word in (">", "|", "&", "&&", ";")), None)]


def check_command(arguments: list[str]) -> None:
    """A command is understood, without being run: its arguments, or its settings, names and values.

    Raises:
        SystemExit, ValueError, TypeError: it is not.
    """
    if "--help" in arguments:
        arguments = [argument for argument in arguments if argument != "--help"]
    if arguments[:1] == ["verl"] and "--" in arguments:  # after it come settings of verl, which .venv lacks
        arguments = arguments[: arguments.index("--")]
    parsed = make_parser().parse_args(arguments)
    if parsed.command not in SETTINGS:
        return
    config = load_config("config" if parsed.command == "train" else parsed.command, parsed.overrides)
    run = RunSettings.parse(config)
    if parsed.command == "verl":
        verl_settings(run, Scale(gpus=config["gpus"], nodes=config["nodes"], mode=config["mode"]))
    if parsed.command in ("compare", "league"):
        seed_list(config["seeds"])
        for variant in variants(config["algos"]):
            _check_run(tuple(variant.overrides))
    if parsed.command == "league":
        for overrides in environments(config["environments"], config["only"]).values():
            _check_run(tuple(overrides))


@cache  # the same algorithms and environments stand in many commands
def _check_run(overrides: tuple[str, ...]) -> None:
    load_run(list(overrides))
