"""Cost that grows only as the work does: ragged batches, long histories, many environments. Times of the processor.

    python -m benchmarks.growth [--envs 4096] [--history 4000]

Each row has a baseline in the same run: what the code did before, or the same work at a small size.
"""

import argparse
from collections.abc import Callable
from time import process_time

import numpy as np

from hgpo_gym.advantages.statistics import later_in_sequence
from hgpo_gym.envs import make_vec
from hgpo_gym.memory import PromptTemplate, make_memory
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.policies.base import Sampling
from hgpo_gym.policies.scripted import RandomPolicy
from hgpo_gym.rollouts.collect import collect

MAZE = "hgpo_gym/SignpostMaze-v0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=4096)
    parser.add_argument("--history", type=int, default=4000)
    args = parser.parse_args()
    print(f"{'':<48}{'us':>12}{'baseline, us':>14}{'ratio':>8}")
    ragged_batches()
    long_histories(args.history)
    many_environments(args.envs)


def show(what: str, seconds: float, baseline: float) -> None:
    print(f"{what:<48}{seconds * 1e6:>12.2f}{baseline * 1e6:>14.2f}{baseline / seconds:>8.2f}", flush=True)


def seconds_of(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least of several times."""
    times = []
    for _ in range(repeats):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def ragged_batches() -> None:
    """A row of discounted sums, of one long episode among short ones, against a dense table."""
    for longest in (500, 2_000, 8_000):
        lengths = np.array([longest] + [10] * (longest // 10))
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        place = np.concatenate([np.arange(length) for length in lengths])
        values = np.random.default_rng(0).normal(size=len(place))
        packed = seconds_of(lambda: later_in_sequence(values, sequence, place, 0.95))  # noqa: B023 - called here
        dense = seconds_of(lambda: dense_table(values, sequence, place, 0.95))  # noqa: B023
        show(f"ragged, longest {longest:,}: a row", packed / len(place), dense / len(place))


def dense_table(values: np.ndarray, sequence: np.ndarray, place: np.ndarray, factor: float) -> np.ndarray:
    """Return what `later_in_sequence` does, by a table of all places by all sequences."""
    table = np.zeros((place.max() + 2, sequence.max() + 1))
    table[place, sequence] = values
    for position in range(len(table) - 2, -1, -1):
        table[position] += factor * table[position + 1]
    return table[place + 1, sequence]


def long_histories(longest: int) -> None:
    """A prompt with the whole episode, against formatting every past step anew."""
    template = PromptTemplate.named("brief")
    for steps in (longest // 16, longest // 4, longest):
        shown = seconds_of(lambda: walk(template, steps, copied=False), 1)  # noqa: B023
        anew = seconds_of(lambda: walk(template, steps, copied=True), 1)  # noqa: B023
        show(f"history of {steps:,} steps: a prompt", shown / steps, anew / steps)


def walk(template: PromptTemplate, steps: int, *, copied: bool) -> None:
    """Render the prompts of an episode; with `copied` from a tuple of its past steps."""
    memory = make_memory(window=None)
    for number in range(steps):
        context = memory.observe(f"You are in room {number % 50}.", ("go on",))
        if copied:
            context = context._replace(history=tuple(context.history))
        template.render("Go.", context)
        memory.record("go on")


def many_environments(most: int) -> None:
    """Construction and a collected row, against 64 environments."""
    baselines: tuple[float, float] | None = None
    for count in (64, 512, most):
        start = process_time()
        env = ContextWrapper(make_vec(MAZE, num_tasks=count // 8, group_size=8, split="all"))
        made = (process_time() - start) / count
        ids = env.unwrapped.task_ids  # type: ignore[attr-defined]
        tasks = [ids[number % len(ids)] for number in range(count // 8)]
        seeds = [(0, number) for number in range(count // 8)]
        start = process_time()
        rows = len(collect(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds).batch)
        collected = (process_time() - start) / rows
        baselines = baselines or (made, collected)
        show(f"{count:,} environments: construction of one", made, baselines[0])
        show(f"{count:,} environments: a collected row", collected, baselines[1])
        env.close()


if __name__ == "__main__":
    main()
