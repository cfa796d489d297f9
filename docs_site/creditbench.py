"""The leaderboard of the credit benchmark, from the CSV that the command writes."""

import csv

from docs_site.links import ROOT
from docs_site.markdown import results, table

SCORES = ROOT / "benchmarks" / "results" / "creditbench.csv"


def leaderboard(_: str = "") -> str:
    """Return a row for each method, the best first."""
    with SCORES.open(newline="", encoding="utf-8") as file:
        rows = [
            (
                f"[{line['method']}](all_estimators.md#{line['method']})",
                f"{float(line['score']):.2f} ({float(line['low']):.2f} to {float(line['high']):.2f})",
                f"{100 * float(line['signs']):.0f} %",
                f"{float(line['rank']):.2f}",
                f"{100 * float(line['nonzero']):.0f} %",
                f"{float(line['microseconds']):.1f}",
            )
            for line in csv.DictReader(file)
        ]
    return results(table(("method", "score", "signs", "rank", "nonzero", "µs"), rows))
