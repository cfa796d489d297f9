"""Memory: history -> prompt text and context keys. This package knows nothing of learning and needs no torch."""

from hgpo_gym.memory.keys import KEY_FUNCTIONS, KeyFunction, chain_keys, hash_text, key_function
from hgpo_gym.memory.memory import Context, Memory, PastStep
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper

__all__ = [
    "KEY_FUNCTIONS",
    "Context",
    "ContextWrapper",
    "KeyFunction",
    "Memory",
    "PastStep",
    "PromptTemplate",
    "chain_keys",
    "hash_text",
    "key_function",
]
