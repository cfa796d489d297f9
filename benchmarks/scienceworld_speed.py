"""How fast is ScienceWorld beside its own Python wrapper, and how much memory do many environments take? Times of the
processor, those of Java included.

    python -m benchmarks.scienceworld_speed [--envs 64]
"""

import argparse
import random
from collections.abc import Callable, Sequence

import psutil
from scienceworld import ScienceWorldEnv

from hgpo_gym.envs.registration import make
from hgpo_gym.envs.scienceworld import jvm
from hgpo_gym.envs.scienceworld.game import TaskVariation, gold_path

ID = "hgpo_gym/ScienceWorld-v0"
EPISODES = 3
"""Episodes that are measured, of the simulator's solution of a task."""
TASKS = ("boil", "find-animal", "power-component", "grow-plant")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64)
    args = parser.parse_args()
    original = original_step()
    print(f"{'':<36}{'ms a step':>10}{'ratio':>8}")
    print(f"{'the original':<36}{original * 1e3:>10.1f}{1:>8.2f}", flush=True)
    for lists in (True, False):
        seconds, what = our_step(lists=lists), f"one Java for all, {'with' if lists else 'without'} the list"
        print(f"{what:<36}{seconds * 1e3:>10.1f}{original / seconds:>8.2f}", flush=True)
    print(f"{args.envs} environments: {memory(args.envs) / 2**20:,.0f} MB in one Java virtual machine")


def cpu_seconds() -> float:
    """Return the seconds that this process and those it has started have used of a processor."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children())]
    return sum(time.user + time.system for time in times)


def mean_step(begin: Callable[[], object], step: Callable[[str], object], actions: Sequence[str]) -> float:
    """Return the seconds of a step in episodes of these actions, after one that warms Java up."""
    seconds = 0.0
    for episode in range(EPISODES + 1):
        begin()
        start = cpu_seconds()
        for action in actions:
            step(action)
        seconds += (cpu_seconds() - start) * (episode > 0)
    return seconds / EPISODES / len(actions)


def original_step() -> float:
    env = ScienceWorldEnv("", envStepLimit=10**6)
    env.load("boil", 0, "")
    seconds = mean_step(env.reset, env.step, solution())
    env.close()
    return seconds


def our_step(*, lists: bool) -> float:
    env = make(ID, split="all", max_episode_steps=10**6, parity=lists)
    seconds = mean_step(lambda: env.reset(options={"task_id": "boil-0"}), env.step, solution())
    env.close()
    return seconds


def solution() -> list[str]:
    """Return the first actions of the simulator's solution of the first variation of boil, which end no episode."""
    return list(gold_path(TaskVariation("boil", 0, ""))[:25])


def memory(count: int) -> int:
    """Return the resident bytes of the Java virtual machine, after some steps in each environment."""
    envs = [make(ID, split="all", actions="valid") for _ in range(count)]
    for number, env in enumerate(envs):
        _, info = env.reset(options={"task_id": f"{TASKS[number % len(TASKS)]}-{number % 20}"})
        for _ in range(3):
            *_, info = env.step(random.Random(number).choice(info["admissible_actions"] or ("wait",)))
            if not info["admissible_actions"]:
                break
    assert jvm._MACHINES.jvm is not None
    resident = psutil.Process(jvm._MACHINES.jvm.process.pid).memory_info().rss
    for env in envs:
        env.close()
    return resident


if __name__ == "__main__":
    main()
