"""The modules that a part loads, in a new process. Import contracts are in pyproject.toml."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hgpo_gym

TRAINING = {"torch", "transformers", "hydra", "omegaconf", "accelerate", "peft", "matplotlib"}
SERVING = {"fastapi", "starlette", "uvicorn"}


@pytest.mark.promise("Environments, memory and estimators need no torch.")
@pytest.mark.parametrize(
    ("part", "without"),
    [
        ("hgpo_gym", TRAINING | SERVING | {"gymnasium", "numpy"}),
        ("hgpo_gym.advantages", TRAINING | SERVING | {"gymnasium"}),
        ("hgpo_gym.creditbench", TRAINING | SERVING | {"gymnasium"}),
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


FACTORIES = {
    *("arange", "as_tensor", "empty", "eye", "from_numpy", "full", "linspace", "ones"),
    *("rand", "randint", "randn", "randperm", "tensor", "zeros"),
}
ON_THE_CPU = (
    "policies/tabular.py", "policies/scoring.py", "policies/cnn.py", "policies/features/", "objectives/bound.py",
)  # fmt: skip
"""Models that train on the CPU alone, and a toy that objectives are tried on."""


def test_tensors_that_may_meet_others_on_a_gpu_name_their_device():
    """Either by `device=`, or by `.to(...)` on the very call; a random number that becomes an int has none."""
    package, without_device = Path(hgpo_gym.__file__).parent, []
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "torch." not in text or any(part in path.as_posix() for part in ON_THE_CPU):
            continue
        tree = ast.parse(text)
        moved = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "to"}
        moved |= {id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and _named(node, "int")}
        without_device += [
            f"{path.relative_to(package)}:{call.lineno}"
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in FACTORIES
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "torch" and id(call) not in moved
            if all(keyword.arg != "device" for keyword in call.keywords)
        ]
    assert without_device == []


def _named(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name and len(call.args) == 1
