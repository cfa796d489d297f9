"""The table of methods with what was measured: one CSV, shown in the README and on the home page."""

import csv

from docs_site.cards import PAGES
from docs_site.links import ROOT
from docs_site.markdown import table

SOURCE = ROOT / "benchmarks" / "results" / "methods.csv"
"""A line a method: its name, what it compares, and a column for each measurement, titled as it is shown."""


def methods(folder: str) -> str:
    """The table; names link to the pages in `folder`."""
    with SOURCE.open(newline="") as file:
        columns, *rows = csv.reader(file)
    return table(columns, ([f"[{name}]({folder}/{PAGES[name]})", *cells] for name, *cells in rows))
