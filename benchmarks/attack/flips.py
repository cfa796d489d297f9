"""Flipped bits in the cache: an entry of each kind is made, damaged in one bit and opened again: it says the same."""

import os
import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hgpo_gym import digests
from hgpo_gym.envs.alfworld.generation import splits as alfworld_splits
from hgpo_gym.envs.alfworld.native.compiled_games import CompiledGames
from hgpo_gym.envs.webshop.catalogue import catalogue, open_catalogue
from hgpo_gym.envs.webshop.generation import generated_folder
from hgpo_gym.envs.webshop.goals import goal_list
from hgpo_gym.policies.base import MeteredResponse, Request, Sampling
from hgpo_gym.policies.response_cache import ResponseCache

TINY_RUN = [
    "env.sections=2",
    "env.max_episode_steps=6",
    "warmstart.source=expert",
    "warmstart.episodes=2",
    "warmstart.epochs=1",
    "tiny.hidden_size=16",
    "tiny.layers=1",
]


def generated_games() -> Any:
    """The files of three generated ALFWorld games."""
    before = alfworld_splits.GENERATED_SPLITS["generated"]
    alfworld_splits.GENERATED_SPLITS["generated"] = range(3)
    try:
        return _content(alfworld_splits.generated_folder("generated"))
    finally:
        alfworld_splits.GENERATED_SPLITS["generated"] = before


def compiled_games() -> Any:
    """Return the games as the native engine compiles them."""
    folder = Path(os.environ["HGPO_GYM_CACHE"])
    games = CompiledGames(folder / "compiled")
    if not (folder.parent / "games").is_dir():
        generated_games()
        next((folder / "alfworld" / "generated").iterdir()).rename(folder.parent / "games")
    return [games.get(file).to_json() for file in sorted((folder.parent / "games").rglob("game.tw-pddl"))]


def generated_shop() -> Any:
    """The files of a generated shop."""
    return _content(generated_folder(seed=1, products=12))


def webshop_catalogue() -> Any:
    """Products, search and goals of a shop."""
    shop = Path(os.environ["HGPO_GYM_CACHE"]).parent / "shop"
    if not shop.is_dir():
        generated_folder(seed=1, products=12).rename(shop)
    opened = open_catalogue(shop)
    goals = goal_list.open_goals(opened, "human", 0)
    products = [opened.product(number) for number in range(len(opened))]
    return [products, [opened.search(product.title) for product in products], list(goals), list(goals.prices)]


def transcripts() -> Any:
    """The episodes that a warm start imitates."""
    from hgpo_gym.config.compose import load_run
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate

    return episodes_to_imitate(load_run(TINY_RUN).for_model, 0, Progress(_silent()))


def warm_start() -> Any:
    """The weights and the tokenizer that a run starts from."""
    from hgpo_gym.config.compose import load_run
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.models.initial_weights import initial_weights

    settings = load_run(TINY_RUN)
    return _content(Path(initial_weights(settings, settings.model, Progress(_silent()))))  # type: ignore[arg-type]


def response_cache() -> Any:
    """The responses of an endpoint, asked for again where they are lost."""
    saved = ResponseCache(Path(os.environ["HGPO_GYM_CACHE"]) / "answers.jsonl")
    found = []
    for number in range(5):
        request, response = (
            Request(prompt=f"prompt {number}", seed=(number,)),
            MeteredResponse(f"go {number}", number, 2),
        )
        if saved.recall(request, Sampling()) is None:
            saved.keep(request, Sampling(), response)
        found.append(saved.recall(request, Sampling()))
    return found


KINDS: dict[str, Callable[[], Any]] = {
    "generated games": generated_games,
    "compiled games": compiled_games,
    "generated shop": generated_shop,
    "WebShop catalogue and goals": webshop_catalogue,
    "transcripts": transcripts,
    "warm-start weights": warm_start,
    "kept answers": response_cache,
}


def flip(kind: str, times: int, folder: Path, seed: int = 0) -> Counter[str]:
    """Damage a kind of entry so many times, a bit each. How often it was `named and made anew`, made anew `unnamed`, or
    gave `other content`, which must not be."""
    choice, outcomes = random.Random(seed), Counter[str]()
    cache, read = folder / "cache", KINDS[kind]
    with _cache_in(cache):
        sound = _in_a_new_process(read)
        for _ in range(times):
            files = sorted(file for file in cache.rglob("*") if file.is_file() and "unsound_" not in str(file))
            files = [file for file in files if file.stat().st_size]
            file = choice.choice(files)
            content = bytearray(file.read_bytes())
            content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
            file.write_bytes(content)
            with warnings.catch_warnings(record=True) as output:
                warnings.simplefilter("always")
                now = _in_a_new_process(read)
            named = any(part in str(warning.message) for warning in output for part in (file.name, file.parent.name))
            outcomes["other content" if now != sound else "named and made anew" if named else "made anew unnamed"] += 1
    return outcomes


def main(times: int, seed: int) -> list[tuple[str, int, int]]:
    """A row a kind: its name, flips, and how many gave other content."""
    rows = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = flip(kind, times, Path(folder), seed)
        print(f"{kind}: {times} flips, {dict(outcomes)}", flush=True)
        rows.append((kind, times, outcomes["other content"]))
    return rows


def _in_a_new_process(read: Callable[[], Any]) -> Any:
    """Return its result without a cache in this process."""
    for remembered in (digests._damage_once, catalogue._opened, goal_list._opened):
        remembered.cache_clear()
    return read()


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("HGPO_GYM_CACHE")
    os.environ["HGPO_GYM_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("HGPO_GYM_CACHE")
        if before is not None:
            os.environ["HGPO_GYM_CACHE"] = before


def _content(folder: Path) -> dict[str, bytes]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != digests.MANIFEST)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def _silent() -> Any:
    from rich.console import Console

    return Console(quiet=True)
