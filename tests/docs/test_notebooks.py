"""The notebooks of the three users run from top to bottom, and are kept without outputs."""

import json

import pytest

from tests.support import ROOT, warm
from tests.support.packages import python

pytestmark = pytest.mark.timeout(600)

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells(path):
    return json.loads(path.read_text())["cells"]


def test_there_is_one_for_each_user():
    assert [path.stem for path in NOTEBOOKS] == ["agent", "compare", "environment"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    assert all(cell["outputs"] == [] for cell in cells(path) if cell["cell_type"] == "code")
    code = "\n\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code")
    (tmp_path / "notebook.py").write_text(f"if __name__ == '__main__':\n    exec({code!r})\n")
    done = python(tmp_path / "notebook.py", cwd=tmp_path, interpreter=warm.python())
    assert done.returncode == 0, done.stdout + done.stderr
