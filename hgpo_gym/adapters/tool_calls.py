"""The tool-call loop of OpenAI-style chat completions: dicts in, dicts out, for any client and any server.

messages = [{"role": "user", "content": episode.begin(task_id)}]
while not episode.over:
    message = ask(messages=messages, tools=tools(episode))     # your client; the assistant's message as a dict
    messages += [message, *answers(episode, message)]
"""

import json
from collections.abc import Mapping
from typing import Any

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.suggest import unknown_name

TOOL = "act"
NO_CALL = f"You did not act. Call {TOOL} with an action."
_FORM = '{"action": "what to do"}'


def tools(episode: SingleEpisode, *, closed: bool = False) -> list[dict[str, Any]]:
    """Return the `tools` of a request: one function, `act(action)`.

    Args:
        episode: the current episode.
        closed: restrict the action to an `enum` of the admissible actions, if there are any. Then request the tools
            again at every turn.
    """
    action: dict[str, Any] = {"type": "string", "description": "What to do, in words."}
    if closed and episode.admissible_actions:
        action["enum"] = list(episode.admissible_actions)
    parameters = {"type": "object", "properties": {"action": action}, "required": ["action"]}
    description = "Act in the world. Answers with what you see then, and with what can be done, where that is limited."
    return [{"type": "function", "function": {"name": TOOL, "description": description, "parameters": parameters}}]


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
        action = _action(function)
    except ValueError as error:
        episode.misread(episode.turn)
        return str(error)
    return episode.act(action)


def _action(function: Mapping[str, Any]) -> str:
    """Return the action of a call. Raises ValueError with a message for the model."""
    if (name := function.get("name")) != TOOL:
        raise ValueError(unknown_name("tool", name, [TOOL]))
    arguments = function.get("arguments")
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"The arguments are not JSON ({error}). Expected {_FORM}.") from None
    if not isinstance(values, dict) or not isinstance(values.get("action"), str):
        raise ValueError(f"The arguments have no action that is a string. Expected {_FORM}.")
    if unknown := sorted(values.keys() - {"action"}):
        raise ValueError(f"Unknown arguments: {', '.join(unknown)}. Expected {_FORM}.")
    return values["action"]
