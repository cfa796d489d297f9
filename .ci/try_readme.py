"""Runs the Python blocks of a Markdown file in order, in one namespace, as somebody would who has just installed it.

    python try_readme.py README.md

Needs nothing but what the blocks need; prints what they print and how many there were.
"""

import re
import sys
from pathlib import Path

blocks = re.findall(r"^```python\n(.*?)^```$", Path(sys.argv[1]).read_text(), flags=re.MULTILINE | re.DOTALL)
namespace: dict[str, object] = {"__name__": "__main__"}
for block in blocks:
    exec(compile(block, sys.argv[1], "exec"), namespace)
if not blocks:
    sys.exit(f"{sys.argv[1]} has no Python blocks.")
print(f"{len(blocks)} blocks of {sys.argv[1]} ran.")
