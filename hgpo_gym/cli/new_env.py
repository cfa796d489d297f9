"""`hgpo-gym new-env`: write a package with an environment that installs, passes its test and trains."""

import argparse
import importlib.util
import keyword
import re
from pathlib import Path

from hgpo_gym.envs import ENVIRONMENTS

TEMPLATE = Path(__file__).parent / "templates" / "new_env"
SUFFIX = ".template"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `hgpo-gym new-env`."""
    command.add_argument("name", metavar="NAME", help="of the package and of the environment, such as my_game")
    command.add_argument("--to", type=Path, metavar="FOLDER", help="where it is written (./NAME)")


def new_env(parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym new-env`."""
    folder = parsed.to or Path(parsed.name)
    for path in write_package(parsed.name, folder):
        print(f"wrote {path}")
    print(
        f"Next:\n  cd {folder}\n  pip install --editable '.[test]'\n  python -m pytest\n"
        f"  hgpo-gym play env={parsed.name}\n  hgpo-gym train env={parsed.name} algo=hgpo\n"
        f"Your game goes into {parsed.name}/env.py there."
    )


def write_package(name: str, folder: Path) -> list[Path]:
    """Write the package `name` into `folder`. Returns the paths of its files.

    Raises:
        ValueError: a name that a package cannot have, or that is in use.
        FileExistsError: the folder exists and is not empty.
    """
    _check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder: choose another by --to FOLDER.")
    written = []
    for source in sorted(TEMPLATE.rglob(f"*{SUFFIX}")):
        target = folder / _renamed(str(source.relative_to(TEMPLATE)), name).removesuffix(SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_renamed(source.read_text(encoding="utf-8"), name), encoding="utf-8")
        written.append(target)
    return written


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise ValueError(
            f"The name {name!r} cannot be that of a package: write lower-case letters, digits and single underscores, "
            "beginning with a letter, such as my_game."
        )
    ids_by_name = {record.name: record.id for record in ENVIRONMENTS.values()}
    if name in ids_by_name:
        raise ValueError(f"The name {name!r} is taken by the environment {ids_by_name[name]}: choose another.")
    if importlib.util.find_spec(name):
        raise ValueError(f"The name {name!r} is taken by an installed package: choose another.")


def _renamed(text: str, name: str) -> str:
    class_name = "".join(part.capitalize() for part in name.split("_"))
    return text.replace("my_game", name).replace("MyGame", class_name)
