"""Who needs less imports less: what a part loads, in a process of its own. Who may know whom is in pyproject.toml."""

import subprocess
import sys

import pytest

TRAINING = {"torch", "transformers", "hydra", "omegaconf", "accelerate", "peft", "matplotlib"}
SERVING = {"fastapi", "starlette", "uvicorn"}


@pytest.mark.parametrize(
    ("part", "without"),
    [
        ("hgpo_gym", TRAINING | SERVING | {"gymnasium", "numpy"}),
        ("hgpo_gym.advantages", TRAINING | SERVING | {"gymnasium"}),
        ("hgpo_gym.memory", TRAINING | SERVING | {"gymnasium"}),
        ("hgpo_gym.envs", TRAINING | SERVING | {"alfworld", "textworld"}),
        ("hgpo_gym.client.env", TRAINING | SERVING),
        ("hgpo_gym.server.app", TRAINING),
        ("hgpo_gym.cli.play", TRAINING | SERVING),
        ("hgpo_gym.config.choices", TRAINING | SERVING),  # which every command names in its help
    ],
)
def test_a_part_loads_no_more_than_it_needs(part, without):
    script = f"import importlib, sys; importlib.import_module({part!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert part in loaded
    assert without.isdisjoint(loaded), sorted(without.intersection(loaded))
