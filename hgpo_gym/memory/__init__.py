"""Memory: from an episode's history to prompt text and context keys. It does not depend on training or torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hgpo_gym.memory.context import Context, PastStep
from hgpo_gym.memory.forms import MEMORIES, make_memory, register_memory
from hgpo_gym.memory.keys import (
    KEY_FUNCTIONS,
    KeyFunction,
    chain_keys,
    hash_text,
    key_function,
    register_key_function,
)
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate

if TYPE_CHECKING:
    from hgpo_gym.memory.wrapper import ContextWrapper

__all__ = [
    "KEY_FUNCTIONS",
    "MEMORIES",
    "Context",
    "ContextWrapper",
    "KeyFunction",
    "Memory",
    "PastStep",
    "PromptTemplate",
    "chain_keys",
    "hash_text",
    "key_function",
    "make_memory",
    "register_key_function",
    "register_memory",
]


def __getattr__(name: str) -> Any:
    if name == "ContextWrapper":  # the only one that needs Gymnasium
        return import_module("hgpo_gym.memory.wrapper").ContextWrapper
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
