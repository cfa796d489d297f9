"""The table of promises in tests/README.md is that of the tests."""

import pytest

from tests import promises

pytestmark = pytest.mark.smoke


def test_the_table_is_that_of_the_tests():
    """`python -m tests.promises` writes it."""
    assert promises.without_seconds(promises.table({})) in promises.without_seconds(promises.PAGE.read_text())


def test_marks_make_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "ROOT", tmp_path)
    texts = {
        "unit": "@pytest.mark.promise('It adds.')",
        "docs": "pytestmark = pytest.mark.smoke\n@pytest.mark.promise('It reads.')",
    }
    for folder, marks in texts.items():
        (tmp_path / "tests" / folder).mkdir(parents=True)
        (tmp_path / "tests" / folder / "test_it.py").write_text(f"{marks}\ndef test_it():\n    pass\n")
    assert promises.table({"unit/test_it.py::test_it": 1.26}) == (
        "| It reads. | `docs/test_it.py::test_it` | `make test` |  |\n"
        "| It adds. | `unit/test_it.py::test_it` | `make test` | 1 |\n"
    )
