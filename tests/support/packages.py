"""Packages of others, as if pip had installed them."""

import os
import subprocess
import sys

from tests.support import ROOT


def python(*arguments, path=(), cwd=None, interpreter=(sys.executable,)):
    """A new process that also sees what is installed in the folders `path`; of `warm.python()`, if that is the
    interpreter."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
    return subprocess.run(
        [*interpreter, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def install_by_hand(site, name, code, **entry_points):
    """A distribution `name` 2.0 of one module in the folder `site`. `entry_points` are lines of each group."""
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.0\n")
    groups = [f"[hgpo_gym.{group}]\n{line}\n" for group, line in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(groups))
