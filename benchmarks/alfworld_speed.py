"""Steps and resets a second: the native engine against TextWorld, in one process, on the same games and commands.

    python -m benchmarks.alfworld_speed ../shared/data/alfworld

Also the time of 128 environments for 50 steps each, 16 games of valid_seen in groups of 8, and the memory they take.
"""

import argparse
import gc
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.envs.alfworld.native import NativeEngine, compile_game
from hgpo_gym.envs.alfworld.splits import find_games
from hgpo_gym.envs.alfworld.textworld_engine import TextWorldEngine

SPLIT, GROUPS, GROUP_SIZE, STEPS = "valid_seen", 16, 8, 50


def random_walk(engine: NativeEngine, steps: int, seed: str) -> list[str]:
    """Random admissible commands from the start of the loaded game."""
    rng, state, commands = random.Random(seed), engine.reset(), []
    for _ in range(steps):
        commands.append(rng.choice(state.admissible_commands))
        state = engine.step(commands[-1])
    return commands


def seconds(action: Callable[[], object], repeat: int = 1) -> float:
    """Mean wall-clock time of an action."""
    started = time.perf_counter()
    for _ in range(repeat):
        action()
    return (time.perf_counter() - started) / repeat


def resident_bytes() -> int:
    """Memory of this process, as Linux counts it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def play(engine: NativeEngine | TextWorldEngine, commands: list[str]) -> None:
    for command in commands:
        engine.step(command)


def change(engine: NativeEngine | TextWorldEngine, game_file: Path) -> None:
    engine.load(game_file)
    engine.reset()


def compare(game_files: list[Path], cache: Path, steps: int) -> None:
    """Print seconds an operation for both engines, and the ratio."""
    native, original = NativeEngine(cache), TextWorldEngine()
    compiling = [seconds(partial(compile_game, json.loads(game_file.read_text()))) for game_file in game_files]
    for game_file in game_files:
        native.load(game_file)  # all are in the cache on disk now, and in memory the last one alone
    rows: dict[str, list[tuple[float, float]]] = {"change game and reset": [], "reset": [], "step": []}
    for number, game_file in enumerate(game_files):
        changing = [seconds(partial(change, engine, game_file)) for engine in (original, native)]
        commands = random_walk(native, steps, f"{number}")
        resetting = [seconds(original.reset), seconds(native.reset, repeat=20)]
        playing = [seconds(partial(play, engine, commands)) / steps for engine in (original, native)]
        for row, (slow, fast) in zip(rows.values(), (changing, resetting, playing), strict=True):
            row.append((slow, fast))
    print(f"compile a game, once: {1000 * sum(compiling) / len(compiling):.2f} ms")
    print(f"{'':24}{'TextWorld':>14}{'native':>14}{'ratio':>10}")
    for name, row in rows.items():
        slow, fast = (sum(column) / len(row) for column in zip(*row, strict=True))
        print(f"{name:24}{1000 * slow:11.2f} ms{1e6 * fast:11.1f} us{slow / fast:9.0f}x")


def many_environments(folder: Path) -> None:
    """Print time and memory of a vector of environments, and what one environment costs."""
    for game in find_games(folder, SPLIT).games.values():
        NativeEngine().load(game.file)  # compiled; what is measured is playing
    for num_tasks, group_size in ((1, 1), (GROUPS, GROUP_SIZE)):
        gc.collect()
        before = resident_bytes()
        env = TextVectorEnv("hgpo_gym/ALFWorld-v0", num_tasks, group_size, data=str(folder), split=SPLIT)
        took = seconds(partial(play_randomly, env))
        gc.collect()
        grown = (resident_bytes() - before) / 1e6
        steps = env.num_envs * STEPS
        print(
            f"{env.num_envs:3} environments x {STEPS} steps, with reset: {took:5.2f} s ({steps / took:6.0f} a second)"
        )
        print(f"{env.num_envs:3} environments: {grown:.1f} MB")


def play_randomly(env: TextVectorEnv) -> None:
    """An episode of random admissible actions in every sub-environment."""
    rng = random.Random(0)
    _, infos = env.reset(seed=0)
    for _ in range(STEPS):
        *_, infos = env.step([rng.choice(actions) if actions else "" for actions in infos["admissible_actions"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="games are **/game.tw-pddl below it")
    parser.add_argument("--games", type=int, default=20, help="games to play on both engines (default 20)")
    parser.add_argument("--steps", type=int, default=50, help="commands a game (default 50)")
    options = parser.parse_args()
    found = sorted(options.folder.glob("**/game.tw-pddl"))
    if len(found) < options.games:
        parser.error(f"{len(found)} games (**/game.tw-pddl) below {options.folder}; asked for {options.games}")
    game_files = random.Random(0).sample(found, options.games)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HGPO_GYM_CACHE"] = cache
        many_environments(options.folder)
        compare(game_files, Path(cache), options.steps)


if __name__ == "__main__":
    main()
