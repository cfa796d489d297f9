"""WebShop's catalogue at scale: time and memory to build, open and search it.

    python -m benchmarks.webshop_scale DATA --products 200000

Products are mixed from the thousand real ones. The last column extrapolates to the full catalogue of 1.18 million.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.resident_memory import peak_mib
from hgpo_gym.envs.webshop.catalogue import open_catalogue
from hgpo_gym.envs.webshop.catalogue.sources import find_sources
from hgpo_gym.envs.webshop.goals.goal_list import open_goals

FULL = 1_180_000
STAGES = ("build", "open")


def mixed_products(products: list[dict[str, Any]], count: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """`count` products, each made of parts of several real ones."""
    for number in range(count):
        product = dict(rng.choice(products))
        for part in ("name", "full_description", "small_description", "customization_options"):
            product[part] = rng.choice(products)[part]
        product["asin"] = f"B{number:09}"
        product["name"] += f" model{number} {rng.getrandbits(40):x}"
        yield product


def write_sources(data: Path, folder: Path, count: int) -> None:
    """Write WebShop's files with `count` products."""
    rng = random.Random(0)
    sources = find_sources(data)
    products = json.loads(sources.products.read_text())
    about = list(json.loads(sources.attributes.read_text()).values())
    with (folder / "items_shuffle.json").open("w") as file:
        for number, product in enumerate(mixed_products(products, count, rng)):
            file.write(("[" if number == 0 else ",\n") + json.dumps(product))
        file.write("]")
    with (folder / "items_ins_v2.json").open("w") as file:
        json.dump({f"B{number:09}": rng.choice(about) for number in range(count)}, file)


def run_stage(stage: str, folder: Path) -> None:
    """Open the catalogue, for the first time or again, and print figures as JSON."""
    figures: dict[str, float] = {}
    base = peak_mib()

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        figures[name] = time.process_time() - started

    with timed(f"{stage} catalogue, s"):
        catalogue = open_catalogue(folder)
    figures[f"{stage} catalogue, MiB"] = peak_mib() - base
    with timed(f"{stage} goals, s"):
        goals = open_goals(catalogue, "synthetic", 0)
    figures[f"{stage} catalogue and goals, MiB"] = peak_mib() - base
    if stage == "open":
        figures["goals"] = len(goals)
        rng = random.Random(0)
        tasks = [goals[rng.randrange(len(goals))].instruction for _ in range(1000)]
        with timed("1,000 searches of five words, s"):
            for task in tasks:
                catalogue.rank(" ".join(rng.sample(task.split(), 5)))
        with timed("1,000 products, s"):
            for _ in tasks:
                catalogue.product(rng.randrange(len(catalogue)))
        figures["used by these, MiB"] = peak_mib() - base
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of WebShop's files")
    parser.add_argument("--products", type=int, default=200_000, help="how many (default 200000)")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage, options.data)
        return
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(options.data, folder, options.products)
        figures["source files, MB"] = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
        environment = {**os.environ, "HGPO_GYM_CACHE": str(folder / "cache")}
        for stage in STAGES:  # a process each, since memory is measured
            command = [sys.executable, "-m", "benchmarks.webshop_scale", name, "--stage", stage]
            result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            figures |= json.loads(result.stdout)
        cached = [file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file()]
        figures["cache on disk, MB"] = sum(cached) / 1e6
    print(f"{'':36}{f'{options.products:,} products':>18}{f'{FULL:,} (by proportion)':>26}")
    for name, value in figures.items():
        print(f"{name:36}{value:18,.2f}{value * FULL / options.products:26,.1f}")


if __name__ == "__main__":
    main()
