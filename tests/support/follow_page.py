"""Runs the blocks of a page of the documentation, in order, in this process and folder; `documents.run_page` starts it.

python follow_page.py PAGE < blocks.json
"""

import contextlib
import doctest
import io
import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

BEFORE = """set -aeuo pipefail
[ ! -f "$1/variables" ] || . "$1/variables"
trap 'pwd > "$1/folder"; export -p > "$1/variables"' EXIT
RUN_WITH=$2
"""
"""The blocks of a page are one shell to the reader: variables and folder are kept from one to the next."""


def follow(page, blocks):
    reader = types.ModuleType("__main__")
    sys.modules["__main__"] = reader
    output = ""
    with tempfile.TemporaryDirectory() as kept:
        for block in blocks:
            place = f"{page}:{block['line']}"
            if block["kind"] == "file":
                Path(block["file"]).parent.mkdir(parents=True, exist_ok=True)
                Path(block["file"]).write_text(block["text"])
            elif block["kind"] == "output":
                compare(place, block["text"], output)
            else:
                output = (
                    run_python(place, block, reader) if block["kind"] == "python" else run_shell(place, block, kept)
                )
                print(output, end="", flush=True)


def run_python(place, block, reader):
    """Run Python and return its output. In tracebacks its lines are numbered as on the page."""
    page, _, line = place.partition(":")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (int(line) - 1) + block["text"], page, "exec"), reader.__dict__)
    return printed.getvalue()


def run_shell(place, block, kept):
    """Run a shell block and return its output. Exits with the output and the errors if it fails."""
    command = ["bash", "-c", BEFORE + block["text"], "bash", kept, block["run_with"]]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{place}: exit status {done.returncode}\n{block['text']}\n{done.stdout}\n{done.stderr}")
    os.chdir((Path(kept) / "folder").read_text().strip())
    return done.stdout


def compare(place, expected, output):
    """Exits with both if what was printed is not what the page shows, white space aside; `...` stands for anything."""
    rules = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(expected, output, rules):
        sys.exit(f"{place}: the page shows\n{expected}\nbut the block before it prints\n{output}")


if __name__ == "__main__":
    follow(sys.argv[1], json.load(sys.stdin))
