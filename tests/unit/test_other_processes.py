"""What a seed decides is the same in every process, although Python hashes strings differently in each."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("alfworld", reason="alfworld is not installed: pip install '.[alfworld]'")
pytest.importorskip("textarena")

from hgpo_gym.envs.alfworld.generation.games import generate_game
from hgpo_gym.envs.features import hashed_counts
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.webshop.env import WebShopEnv
from tests.support import ROOT
from tests.unit.policies.test_features_policy import digest


def seeded(webshop_data):
    """Return what seeds decide: games, tasks and goals, and features of texts."""
    games = [generate_game(seed) for seed in range(60, 72)]
    goals = {"data": webshop_data, "goals": "synthetic", "split": "all"}
    webshop = [WebShopEnv(**goals, catalogue_seed=seed).task_ids for seed in (0, 1)]
    return {
        "ALFWorld": hashlib.sha256(json.dumps([game.game for game in games]).encode()).hexdigest(),
        "features": digest(),
        "hashed text": hashed_counts({"a": "the red door"}, 16, 2).tolist(),
        "TextArena": [
            make("hgpo_gym/TextArena-v0", game=game, tasks=12, split="test").unwrapped.task_ids
            for game in ("Mastermind-v0", "FrozenLake-v0", "LightsOut-v0")
        ],
        "WebShop": [hashlib.sha256(" ".join(ids).encode()).hexdigest() for ids in webshop],
        "WebShop, number of goals": [len(set(ids)) for ids in webshop],
    }


def test_what_a_seed_decides_is_the_same_in_another_process(webshop_data, webshop_cache, tmp_path, monkeypatch):
    """The other process has an empty cache, too."""
    command = [sys.executable, "-m", "tests.unit.test_other_processes", str(webshop_data)]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "HGPO_GYM_CACHE": str(tmp_path)}
    other = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))
    here = json.loads(json.dumps(seeded(webshop_data)))
    assert json.loads(other.stdout) == here
    assert here["WebShop"][0] != here["WebShop"][1]
    assert here["WebShop, number of goals"] == [6910, 6910]


if __name__ == "__main__":
    print(json.dumps(seeded(sys.argv[1])))
