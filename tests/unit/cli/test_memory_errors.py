"""Commands that run out of memory name what was too large and the settings for it."""

import errno

import numpy as np
import pytest
import torch

from hgpo_gym.cli.errors import CommandFailed, memory_explained, mistakes_explained
from hgpo_gym.cli.main import main
from hgpo_gym.cli.memory_errors import PLACES, out_of_memory
from hgpo_gym.config.compose import load_config
from hgpo_gym.memory.keys import KeyChain
from hgpo_gym.runs.directory import flatten

HUGE = 1 << 50


@pytest.mark.parametrize(
    ("allocate", "message"),
    [
        (lambda: KeyChain(HUGE), "out of memory for the history of the episodes"),
        (lambda: np.zeros(HUGE), "8.00 PiB for an array with shape (1125899906842624,) more are not available"),
        (lambda: torch.empty(HUGE), "4503599627370496 bytes more are not available"),
    ],
)
def test_real_errors_of_too_little_memory_are_one_sentence(allocate, message, capsys):
    with pytest.raises(CommandFailed) as failed, memory_explained():
        allocate()
    assert failed.value.code == 1
    shown = capsys.readouterr().err
    assert message in shown
    assert ". Lower " in shown
    assert "Traceback" not in shown


def test_a_system_call_without_memory_is_explained_and_other_errors_are_left(capsys):
    with pytest.raises(CommandFailed), mistakes_explained():
        raise OSError(errno.ENOMEM, "Cannot allocate memory")
    assert "out of memory for this command" in capsys.readouterr().err
    for error in (ValueError("seeds: out of memory"), RuntimeError("CUDA error: invalid device"), KeyError("memory")):
        assert out_of_memory(error) is None
        with pytest.raises(type(error)), memory_explained():
            raise error


def test_less_address_space_than_the_libraries_take_is_named(monkeypatch, capsys):
    monkeypatch.setattr("resource.getrlimit", lambda _: (700 << 20, 700 << 20))
    with pytest.raises(CommandFailed):
        main(["train"])
    assert "734,003,200 bytes of address space are allowed" in capsys.readouterr().err


def test_the_settings_that_are_named_exist():
    settings = flatten(load_config("config", []))
    named = " ".join(remedy for _, remedy in PLACES.values()).replace(",", " ").split()
    for name in named:
        assert "." not in name or name in settings or name in ("env.max_episode_steps", "model.lora.rank"), name
