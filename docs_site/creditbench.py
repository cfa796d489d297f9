"""The credit benchmark's leaderboard, and what its score says about training, from CSVs."""

import csv
from collections import defaultdict

import numpy as np

from docs_site.links import ROOT
from docs_site.markdown import results, table

SCORES = ROOT / "benchmarks" / "results" / "creditbench.csv"

HEADLINE = ROOT / "benchmarks" / "results" / "headline.csv"


def validity(_: str = "") -> str:
    """Return for each environment of the headline table the correlation of score and success over methods."""
    with SCORES.open(newline="", encoding="utf-8") as file:
        score = {line["method"]: float(line["score"]) for line in csv.DictReader(file)}
    success: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    lines = HEADLINE.read_text(encoding="utf-8").splitlines()
    for run in csv.DictReader(line for line in lines if not line.startswith("#")):
        if run["algorithm"] in score and run["while_training"]:
            success[run["environment"]][run["algorithm"]].append(float(run["while_training"]))
    rows = []
    for environment, methods in success.items():
        pairs = [(score[method], float(np.mean(values))) for method, values in methods.items()]
        correlation = float(np.corrcoef(np.array(pairs).T)[0, 1])
        # Fisher's z of so few methods has a standard error of 1 / sqrt(n - 3).
        low, high = np.tanh(np.arctanh(correlation) + np.array([-1.96, 1.96]) / np.sqrt(len(pairs) - 3))
        rows.append((environment, str(len(pairs)), f"{correlation:.2f} ({low:.2f} to {high:.2f})"))
    return results(table(("environment", "methods", "correlation"), rows))


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
