"""The notebooks of the three users run twice in a row, and print what is saved in them."""

import re

import pytest

from tests.support import warm
from tests.support.notebooks import NOTEBOOKS, code_cells, printed

pytestmark = pytest.mark.timeout(600)


def without_numbers(text):
    """Other machines round otherwise, which changes what is learned."""
    return re.sub(r"\d+", "#", text)


def test_there_is_one_for_each_user():
    assert [path.stem for path in NOTEBOOKS] == ["agent", "compare", "environment"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_twice_and_prints_what_it_shows(path, tmp_path):
    saved = ["".join(output["text"]) for cell in code_cells(path) for output in cell["outputs"]]
    for _ in range(2):
        assert list(map(without_numbers, printed(path, tmp_path, warm.python()))) == list(map(without_numbers, saved))
