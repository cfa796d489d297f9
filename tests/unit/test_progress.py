"""Lines of progress in a narrow terminal."""

import io

from rich.console import Console

from hgpo_gym.progress import Progress


def test_a_narrow_terminal_breaks_lines_between_fields_and_words_and_no_path():
    def lines_of(text, **kind):
        Progress(Console(file=(output := io.StringIO()), width=30, **kind)).line(text)
        return output.getvalue().splitlines()

    fields = "  20/20  success   4.7%  KL      -  entropy 0.032"
    assert lines_of(fields, force_terminal=True) == ["  20/20  success   4.7%", "      KL      -  entropy 0.032"]
    path = "runs/" + "long-name" * 4
    assert lines_of(f"The report is in {path}", force_terminal=True) == ["The report is in", path]
    assert lines_of(fields, force_terminal=False) == [fields]
