"""Forms of memory, chosen by `memory=`: what the next prompt shows, and which steps have equal context keys.

To add one: write its file and add its line to `MEMORIES`, or, from elsewhere, call `register_memory` or name it as an
entry point of the group `hgpo_gym.memories`.
"""

from typing import Any

from hgpo_gym.memory.memory import Memory
from hgpo_gym.registry import Choice, Registry

MEMORIES = Registry(
    "memory",
    {
        "window": "hgpo_gym.memory.forms.window:Window",
        "full": "hgpo_gym.memory.forms.full:Full",
        "conversation": "hgpo_gym.memory.forms.conversation:Conversation",
        "notes": "hgpo_gym.memory.forms.notes:Notes",
        "none": "hgpo_gym.memory.forms.none:NoHistory",
    },
    arguments=0,
    entry_points="hgpo_gym.memories",
)
register_memory = MEMORIES.register
"""Add a form of memory: `@register_memory` or `@register_memory("name")` above a class derived from `Memory`."""


def make_memory(name: str = "window", **options: Any) -> Memory:
    """Return a new memory of a form, such as `make_memory("window", window=4)`.

    Raises:
        ValueError: an unknown name, option or value.
    """
    return MEMORIES.bind(Choice(name, options))()
