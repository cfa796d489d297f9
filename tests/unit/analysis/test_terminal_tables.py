"""Tables in a terminal keep what a reader looks for first."""

from io import StringIO

from rich.console import Console

from hgpo_gym.analysis.report.blocks import Chapter, Column, Section, Table
from hgpo_gym.analysis.report.write import show


def test_labels_of_rows_stay_on_one_line_where_numbers_need_the_room():
    columns = (Column("estimator"), *(Column(f"advantage {count}", "number") for count in range(4)))
    table = Table("credit", "Credit.", columns, (("nested Bellman credit", *[0.5] * 4),))
    console = Console(file=StringIO(), width=60)
    show("Run", [Chapter("", "", [Section("Credit", [table])])], console)
    shown = console.file.getvalue()
    assert "nested Bellman credit" in shown
    assert "Left out in 60 characters" in shown
