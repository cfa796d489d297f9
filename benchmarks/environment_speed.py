"""The speed of the built-in environments: a random agent, in one process, times of the processor.

python -m benchmarks.environment_speed
"""

import argparse
import random
from time import process_time

import gymnasium

import hgpo_gym  # noqa: F401 - registers the ids

IDS = ("SignpostMaze", "SecretWord", "Sokoban", "GymCards", "FrozenLake", "Taxi")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    print(f"{'':<14}{'reset, us':>11}{'step, us':>11}")
    for name in IDS:
        reset, step = measure(f"hgpo_gym/{name}-v0", steps)
        print(f"{name:<14}{reset * 1e6:>11.1f}{step * 1e6:>11.1f}")


def measure(id: str, steps: int) -> tuple[float, float]:
    """Return the mean seconds of a reset and of a step, with the choice of its action.

    Where no action is listed, the agent says the name of a task: a word.
    """
    env = gymnasium.make(id)
    words = env.get_wrapper_attr("task_ids")
    generator = random.Random(0)
    reset_seconds = step_seconds = 0.0
    resets = count = 0
    while count < steps:
        start = process_time()
        _, info = env.reset(seed=resets)
        begun = process_time()
        ended = False
        # The clock takes longer than a step of some environments: it is read once an episode.
        while not ended:
            actions = info["admissible_actions"] or words
            _, _, terminated, truncated, info = env.step(actions[int(generator.random() * len(actions))])
            ended = terminated or truncated
            count += 1
        step_seconds += process_time() - begun
        reset_seconds += begun - start
        resets += 1
    env.close()
    return reset_seconds / resets, step_seconds / count


if __name__ == "__main__":
    main()
