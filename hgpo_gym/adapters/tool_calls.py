"""The tool-call loop of OpenAI-style chat completions: dicts in, dicts out, for any client and any server.

messages = [{"role": "user", "content": episode.begin(task_id)}]
while not episode.over:
    message = ask(messages=messages, tools=tools(episode))     # your client; the assistant's message as a dict
    messages += [message, *answers(episode, message)]
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.tools import Functions

FUNCTIONS = Functions(PromptTemplate.named("tools").functions or [])
TOOL = "act"
NO_CALL = f"You did not act. Call {TOOL} with an action."


def tools(episode: SingleEpisode, *, closed: bool = False) -> list[dict[str, Any]]:
    """Return the `tools` of a request: one function, `act(action)`.

    Args:
        episode: the current episode.
        closed: restrict the action to an `enum` of the admissible actions, if there are any. Then request the tools
            again at every turn.
    """
    offered = deepcopy(FUNCTIONS.schemas)
    if closed and episode.admissible_actions:
        offered[0]["function"]["parameters"]["properties"]["action"]["enum"] = list(episode.admissible_actions)
    return offered


def responses(episode: SingleEpisode, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Execute the actions of an assistant's message, and return the reply messages.

    Each call gets a tool message, in order. A wrong call changes nothing in the environment, its tool message names the
    error, and the step is not valid. A message without calls before the end gets a user message that asks for one.
    Each message is a turn of the episode, see `SingleEpisode.steps`.
    """
    calls = [_mapping(call) for call in message.get("tool_calls") or []]
    replies = [
        {
            "role": "tool",
            "tool_call_id": call.get("id", ""),
            "content": _response(episode, _mapping(call.get("function"))),
        }
        for call in calls
    ]
    if not calls and not episode.over:
        replies = [{"role": "user", "content": NO_CALL}]
    episode.turn += 1
    return replies


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty mapping, which is reported as a wrong call."""
    return value if isinstance(value, Mapping) else {}


def _response(episode: SingleEpisode, function: Mapping[str, Any]) -> str:
    try:
        action = FUNCTIONS.action(function)
    except ValueError as error:
        episode.misread(episode.turn)
        return str(error)
    return episode.act(action)
