"""The number of lines that a reader of docs/tutorials/your_environment.md writes. test_docs.py follows the page."""

from hgpo_gym.cli.main import main
from tests.support import ROOT
from tests.support.documents import blocks

PAGE = "docs/tutorials/your_environment.md"


def test_the_lines_that_are_written_are_as_many_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["new-env", "radio"])
    text = (ROOT / PAGE).read_text()
    files = {block.file: block.text for block in blocks(PAGE, text) if block.file}
    assert sorted(files) == ["radio/__init__.py", "radio/env.py", "tests/test_radio.py"]
    lines = 0
    for name, written in files.items():
        existing = (tmp_path / "radio" / name).read_text().splitlines()
        new = [line for line in written.splitlines() if line and (line not in existing or name == "radio/env.py")]
        lines += len(new)
    assert f"with {lines} lines of your own" in text
    assert lines <= 42
