"""What a league found, as the tables and sentences of a page: docs/league.md, from the lines a run that
`benchmarks.league_runs` writes.

    python -m benchmarks.league_page docs/league.md benchmarks/results/league_headline.csv
    python -m benchmarks.league_page benchmarks/results/league_headline.csv --only alfworld --tell "hgpo less grpo"

Replaces what stands in the pages between `<!-- league: NAME -->` and `<!-- end -->`. NAME is `while training` or `in
the end` (success of every algorithm in every environment, and its mean rank), the same with `, less ALGORITHM` (mean
differences at the same seed, in points, with 95 % t intervals over the seeds that both have, and an asterisk
where p is below 0.05 by flipping their signs, corrected for how many the table has), `ENVIRONMENT less ENVIRONMENT`
(the same of every algorithm in two settings), `ALGORITHM less ALGORITHM` (the same of these two in every environment;
several such pairs with `; ` between them stand side by side), `cost`, the name of an environment (what its runs tell
of the best algorithm and each of the others), or `best against ALGORITHM ALGORITHM` (the same of these others alone,
in every environment). With `, only ENVIRONMENT ENVIRONMENT` after any of them these alone count. Algorithms that are
not in every environment are left out but of pairs and of two settings, and so is an environment from scores in which
most algorithms have the same.
`--tell` prints such a block instead: a number that stands in a sentence comes from there, and `League.told_of` says
of whom it is.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations, islice, product
from pathlib import Path

import numpy as np

from benchmarks.league_runs import NO_SEED, check_lines, in_percent, in_points, lines_of
from docs_site.markdown import table
from hgpo_gym.analysis.report.intervals import Estimate, at_shared_seeds, interquartile_mean, mean, typical
from hgpo_gym.analysis.report.standings import best_against_each, mean_ranks
from hgpo_gym.suggest import unknown_name

BLOCK = re.compile(r"(?<=<!-- league: )(.+?)( -->\n).*?(?=<!-- end -->)", flags=re.DOTALL)
DIFFERENCE = re.compile(r"(-?\d+\.\d)\*?(?:\s+points)?(?:\s+\(|,\s+)(-?\d+\.\d)\s+to\s+(-?\d+\.\d)\b")
"""As a sentence has it, maybe over the end of a line: its mean, and the ends of its interval, in brackets or, inside
brackets, after a comma."""

COLUMNS = {"while training": "while_training", "in the end": "final"}
"""Of the CSV, by the name of a score."""

ALIKE = "No algorithm differs from another.\n"

Runs = Sequence[Mapping[str, str]]
"""Lines of a CSV."""

Numbers = Mapping[str, Mapping[str, np.ndarray]]
"""By environment, by algorithm: a number for each run."""

Row = tuple[list[str], list[np.ndarray]]
"""Of a table: its first cells, and of each other the differences that it tells, none where there is nothing to tell."""


class League:
    """The runs of some CSV files: the environments in their order, the algorithms that all of these have.

    Args:
        files: of `benchmarks.league_runs`.
        only: these environments, in this order; empty: all.

    Raises:
        ValueError: no such environment; no algorithm is in every environment; a run is there twice, or runs of an
            environment have different numbers of iterations; a file has other columns.
    """

    def __init__(self, files: Sequence[Path], only: Sequence[str] = ()):
        self._files = files
        runs: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
        lines = [line for path in files for line in lines_of(path)]
        for line in lines:
            run = line.by_column
            runs[run["environment"]][run["algorithm"]].append(run)
        for name in only:
            if name not in runs:
                raise ValueError(unknown_name("environment", name, runs))
        runs = {name: runs[name] for name in only or runs}
        check_lines(line for line in lines if line.cells[0] in runs)
        self._runs = runs
        self.environments = list(runs)
        self.algorithms = [name for name in next(iter(runs.values())) if all(name in own for own in runs.values())]
        if not self.algorithms:
            raise ValueError(f"No algorithm has runs in each of {', '.join(runs)}.")

    @property
    def _played(self) -> set[str]:
        """Algorithms that are in any environment."""
        return {name for own in self._runs.values() for name in own}

    def numbers(self, column: str) -> Numbers:
        """A column of the CSV."""
        return {
            environment: {name: np.array([float(run[column]) for run in own[name]]) for name in self.algorithms}
            for environment, own in self._runs.items()
        }

    def differences(self, score: str, other: str) -> dict[str, dict[str, np.ndarray]]:
        """Of every other algorithm less this one, by environment: a number for each seed that both have.

        Args:
            score: of `COLUMNS`.
            other: the algorithm that is taken off.
        """
        return {
            name: {
                environment: _differences(own[name], own[other], COLUMNS[score])
                for environment, own in self._runs.items()
            }
            for name in self.algorithms
            if name != other
        }

    def told_of(self, value: float, low: float, high: float) -> set[tuple[str, str]]:
        """The pairs of algorithms that differ by so many points in an environment, one less the other or the other way.

        Where there are two environments, as for two kinds of keys, also one in the first and one in the second.

        Args:
            value, low, high: of `differences_in` a text.
        """
        ways = ((value, low, high), (-value, -high, -low))
        near = self._apart.get(f"{abs(value):.1f}", ())
        return {pair for pair, differences in near if differences_in(in_percent(mean(differences)))[0] in ways}

    @cached_property
    def _apart(self) -> Mapping[str, list[tuple[tuple[str, str], np.ndarray]]]:
        """Any two algorithms and their differences at the same seed, by the mean of these without its sign."""
        places = [list(own.items()) for own in self._runs.values()]
        pools = [places[0] + places[1]] if len(places) == 2 else places
        found: dict[str, list[tuple[tuple[str, str], np.ndarray]]] = defaultdict(list)
        for pool, column in product(pools, COLUMNS.values()):
            for (one, runs), (other, others) in combinations(pool, 2):
                differences = _differences(runs, others, column)
                if len(differences) > 1:
                    found[f"{100 * abs(differences.mean()):.1f}"].append(((one, other), differences))
        return found

    def block(self, name: str) -> str:
        """The Markdown that a name stands for.

        Raises:
            ValueError: there is no such block.
        """
        name, _, only = name.partition(", only ")
        if only:
            return League(self._files, only.split(" ")).block(name)
        score, _, other = name.partition(", less ")
        if name in COLUMNS:
            return self._success(name)
        if score in COLUMNS and other in self.algorithms:
            return self._less(score, other)
        one, _, other = name.partition(" less ")
        if one in self._runs and other in self._runs:
            return self._between(one, other)
        pairs = [pair.split(" less ") for pair in name.split("; ")]
        if all(len(pair) == 2 and set(pair) <= self._played for pair in pairs):
            return self._beside(pairs)
        start, _, others = name.partition("best against ")
        if not start and set(others.split(" ")) <= set(self.algorithms):
            told = {one: self._told(one, others.split(" ")) for one in self._runs}
            return "\n".join(f"*{one}*:\n\n{sentences}" for one, sentences in told.items() if sentences)
        if name == "cost":
            return self._cost()
        if name in self._runs:
            return self._told(name)
        raise ValueError(
            f"<!-- league: {name} -->: write {' or '.join(COLUMNS)}, alone or with ', less' and one of "
            f"{'; '.join(self.algorithms)}; or cost; or an environment, alone or 'less' another, of "
            f"{'; '.join(self._runs)}; or an algorithm 'less' another, of {'; '.join(sorted(self._played))}; "
            "or 'best against' some of the first."
        )

    def telling(self, score: str) -> Numbers:
        """A score where it tells algorithms apart: without environments in which most have the same."""
        return {name: own for name, own in self.numbers(COLUMNS[score]).items() if _differ(own)}

    def _success(self, score: str) -> str:
        """Interquartile means, and mean ranks, by which the rows stand."""
        numbers = self.telling(score)
        if not numbers:
            return ALIKE
        ranks = ranks_in(numbers)
        sure = ranks.low is not None
        head = ["algorithm", "mean rank", *(f"{name}, {_seeds(own)}, %" for name, own in numbers.items())]
        return table(
            head,
            (
                [
                    f"`{self.algorithms[row]}`",
                    f"{ranks.value[row]:.1f}" + (f" ({ranks.low[row]:.1f} to {ranks.high[row]:.1f})" if sure else ""),
                    *(in_percent(typical(own[self.algorithms[row]])) for own in numbers.values()),
                ]
                for row in np.argsort(ranks.value, kind="stable")
            ),
        )

    def _less(self, score: str, other: str) -> str:
        """Differences as a table, the best on average first; who lacks one in some environment stands last."""
        told = self.telling(score)
        if not told:
            return ALIKE
        found = self.differences(score, other)
        rows: list[Row] = [([f"`{name}`"], [own[one] for one in told]) for name, own in found.items()]
        return _compared(["algorithm", *told], sorted(rows, key=_standing), NO_SEED)

    def _between(self, one: str, other: str) -> str:
        """Of every algorithm that two environments have, over the seeds that it has in both."""

        def row(name: str) -> Row:
            runs, others = self._runs[one][name], self._runs[other][name]
            found = [_differences(runs, others, column) for column in COLUMNS.values()]
            return [f"`{name}`", str(len(found[0]))], found

        both = [name for name in self._runs[one] if name in self._runs[other]]
        return _compared(["algorithm", "seeds", *COLUMNS], map(row, both))

    def _beside(self, pairs: Sequence[Sequence[str]]) -> str:
        """Of each pair the one less the other, environment by environment; nothing where no seed tells them apart."""
        rows: list[Row] = []
        for environment, own in self._runs.items():
            played = [(own.get(one, ()), own.get(other, ())) for one, other in pairs]
            found = [[_differences(*runs, column) for column in COLUMNS.values()] for runs in played]
            seeds = [len(scores[0]) for scores in found]
            if any(seeds):
                told = [one if np.any(one) else one[:0] for scores in found for one in scores]
                rows.append(([environment, " / ".join(map(str, seeds if len(set(seeds)) > 1 else seeds[:1]))], told))
        head = [cell for pair in pairs for cell in (f"{' less '.join(pair)}, training", "in the end")]
        return _compared(["environment", "seeds", *head], rows)

    def _cost(self) -> str:
        """Of a run: environment steps, the mean over seeds, and seconds, the median: some had less of the machine."""
        steps, seconds = self.numbers("steps"), self.numbers("seconds")
        return table(
            ["algorithm", *steps],
            (
                [
                    f"`{name}`",
                    *(f"{steps[one][name].mean():,.0f} steps, {np.median(seconds[one][name]):,.0f} s" for one in steps),
                ]
                for name in self.algorithms
            ),
        )

    def _told(self, environment: str, others: Sequence[str] | None = None) -> str:
        return "".join(
            f"- {score[0].upper()}{score[1:]}, {sentence}\n"
            for score in COLUMNS
            if environment in self.telling(score)
            for sentence in best_against_each(
                {name: _by_seed(self._runs[environment][name], COLUMNS[score]) for name in self.algorithms}, others
            )
        )


def _standing(row: Row) -> tuple[bool, float]:
    """To sort rows by."""
    _, differences = row
    return not all(map(len, differences)), -sum(one.mean() for one in differences if len(one))


def _compared(head: Sequence[str], rows: Iterable[Row], nothing: str = "") -> str:
    """A table of differences, which are judged together; `nothing` stands where there is none."""
    rows = list(rows)
    told = (cell or nothing for cell in in_points([differences for _, own in rows for differences in own]))
    return table(head, ([*first, *islice(told, len(own))] for first, own in rows))


def rewritten(page: str, league: League) -> str:
    """The page with its blocks as the league has them."""
    return BLOCK.sub(lambda block: f"{block[1]}{block[2]}\n{league.block(block[1])}\n", page)


def ranks_in(numbers: Numbers) -> Estimate:
    """Of each algorithm the mean of its ranks in the environments, float64[algorithms]."""
    return mean_ranks([list(own.values()) for own in numbers.values()])


def differences_in(text: str) -> list[tuple[float, ...]]:
    """Of every difference that sentences or tables tell its mean, and the ends of its interval, in points."""
    return [tuple(map(float, found.groups())) for found in DIFFERENCE.finditer(text)]


def _differences(runs: Runs, others: Runs, column: str) -> np.ndarray:
    """At the seeds that both have."""
    return at_shared_seeds(_by_seed(runs, column), _by_seed(others, column))


def _by_seed(runs: Runs, column: str) -> dict[int, float]:
    return {int(run["seed"]): float(run[column]) for run in runs}


def _differ(own: Mapping[str, np.ndarray]) -> bool:
    """Half of the algorithms or more have a number that is not that of most."""
    found = [float(interquartile_mean(numbers)) for numbers in own.values()]
    return max(map(found.count, found)) <= len(found) / 2


def _seeds(own: Mapping[str, np.ndarray]) -> str:
    counts = sorted({len(numbers) for numbers in own.values()})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) + (" seed" if counts == [1] else " seeds")


def main(arguments: Sequence[str] | None = None) -> None:
    """Rewrites pages, prints blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="pages (.md), and CSV files of benchmarks.league_runs")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENVIRONMENT", help="these, in this order")
    parser.add_argument("--tell", nargs="+", default=[], metavar="NAME", help="print these blocks")
    parsed = parser.parse_args(arguments)
    pages = [path for path in parsed.files if path.suffix == ".md"]
    runs = [path for path in parsed.files if path not in pages]
    if not runs or not (pages or parsed.tell):
        parser.error("Name a CSV file of runs, and a page to rewrite or, by --tell, a block to print.")
    league = League(runs, parsed.only)
    for page in pages:
        page.write_text(rewritten(page.read_text(encoding="utf-8"), league), encoding="utf-8")
    for name in parsed.tell:
        print(league.block(name))


if __name__ == "__main__":
    main()
