"""WebShop in one process: milliseconds by kind of action, environments side by side, memory.

    python -m benchmarks.webshop_speed ../shared/data/webshop

Beside each figure stands the original's, as recorded with it (two cores): its steps without the list of admissible
actions, which adds about 4 ms; ours always have it. Times are of the processor, so that neighbours do not count.
"""

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.resident_memory import peak_mib
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.vector import TextVectorEnv

ENV = "hgpo_gym/WebShop-v0"
ORIGINAL_MS = {
    "search": 18.0,
    "open item": 17.5,
    "option": 15.0,
    "page turn": 24.0,
    "sub-page": 6.0,
    "purchase": 8.0,
    "all steps": 13.8,
}
TOTAL_STEPS = 150 * 128
"""Of all environments together, so that as many products have been looked at whatever their number."""
SUB_PAGES = ("click[description]", "click[features]", "click[reviews]")
BUTTONS = {
    "click[buy now]": "purchase",
    "click[next >]": "page turn",
    "click[back to search]": "back to search",
    **dict.fromkeys(SUB_PAGES, "sub-page"),
}


def random_action(rng: np.random.Generator, info: dict, query: str) -> str:
    """A uniformly random admissible action; a search is for two to six words of `query`."""
    action = str(rng.choice(info["admissible_actions"]))
    if not action.startswith("search["):
        return action
    words = rng.choice(query.split(), size=rng.integers(2, 7))
    return f"search[{' '.join(words)}]"


def kind_of(action: str, info: dict) -> str:
    """The kind of an action; `info` is from before it."""
    if action.startswith("search["):
        return "search"
    if action == "click[< prev]":
        return "page turn" if "click[next >]" in info["admissible_actions"] else "back"
    if action in BUTTONS:
        return BUTTONS[action]
    return "open item" if "click[next >]" in info["admissible_actions"] else "option"


def by_kind(data: Path, steps: int) -> None:
    """Print milliseconds by kind of action of a random agent."""
    rng = np.random.default_rng(0)
    env = make(ENV, data=data, goals="synthetic", split="all")
    seconds: dict[str, list[float]] = defaultdict(list)
    _, info = env.reset(seed=0)
    for _ in range(steps):
        action = random_action(rng, info, info["task"])
        kind = kind_of(action, info)
        started = time.process_time()
        _, _, terminated, truncated, info = env.step(action)
        seconds[kind].append(time.process_time() - started)
        if terminated or truncated:
            started = time.process_time()
            _, info = env.reset()
            seconds["reset"].append(time.process_time() - started)
    seconds["all steps"] = [each for kind, row in seconds.items() if kind != "reset" for each in row]
    print(f"{'':16}{'times':>8}{'mean ms':>10}{'99 % below':>12}{'original ms':>13}{'ratio':>8}")
    for kind, row in sorted(seconds.items(), key=lambda item: len(item[1])):
        mean, most = 1000 * np.mean(row), 1000 * np.percentile(row, 99)
        original = f"{ORIGINAL_MS[kind]:13.1f}{ORIGINAL_MS[kind] / mean:7.0f}x" if kind in ORIGINAL_MS else ""
        print(f"{kind:16}{len(row):8}{mean:10.3f}{most:12.3f}{original}")


def side_by_side(data: Path, num_envs: int, steps: int) -> None:
    """Play `num_envs` environments in this process; print time and the process's largest memory."""
    started = time.process_time()
    vector = TextVectorEnv(ENV, num_tasks=max(num_envs // 8, 1), group_size=min(num_envs, 8), data=data)
    _, infos = vector.reset(seed=0)
    ready = time.process_time() - started
    rng, taken = np.random.default_rng(0), 0
    started = time.process_time()
    for _ in range(steps):
        rows = [{"admissible_actions": actions} for actions in infos["admissible_actions"]]
        tasks = infos["task"]
        actions = [
            random_action(rng, row, task) if active else ""
            for row, task, active in zip(rows, tasks, vector.active, strict=True)
        ]
        taken += int(vector.active.sum())
        *_, infos = vector.step(actions)
        if not vector.active.any():
            _, infos = vector.reset()
    took = time.process_time() - started
    memory = peak_mib()
    print(f"{num_envs:4} environments: ready in {ready:.2f} s, {taken / took:7.0f} steps/s, {memory:6.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of WebShop's files")
    parser.add_argument("--steps", type=int, default=10_000, help="of the random agent (default 10000)")
    parser.add_argument("--envs", type=int, help="only play so many environments side by side")
    options = parser.parse_args()
    if options.envs:
        side_by_side(options.data, options.envs, TOTAL_STEPS // options.envs)
        return
    by_kind(options.data, options.steps)
    for num_envs in (1, 8, 128):  # a process each, since memory is measured
        command = [sys.executable, "-m", "benchmarks.webshop_speed", str(options.data), "--envs", str(num_envs)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
