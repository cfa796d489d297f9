"""The tool-call loop: what is offered, what is answered, and that nothing a model writes breaks it."""

import json

import pytest

from hgpo_gym.adapters.single_episode import OVER, SingleEpisode
from hgpo_gym.adapters.tool_calls import NO_CALL, TOOL, responses, tools


@pytest.fixture
def episode():
    episode = SingleEpisode("hgpo_gym/SignpostMaze-v0", sections=1, split="all")
    episode.begin("red")
    return episode


def saying(*calls):
    """An assistant's message with calls of (name, arguments)."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ],
    }


def acting(*actions):
    return saying(*((TOOL, json.dumps({"action": action})) for action in actions))


def test_what_is_offered(episode):
    [tool] = tools(episode)
    assert (tool["type"], tool["function"]["name"]) == ("function", "act")
    assert tool["function"]["parameters"]["required"] == ["action"]
    assert tool["function"]["parameters"]["properties"]["action"]["type"] == "string"
    [closed] = tools(episode, closed=True)
    assert closed["function"]["parameters"]["properties"]["action"]["enum"] == ["walk on"]
    free = SingleEpisode("hgpo_gym/SecretWord-v0")
    free.begin(free.env.unwrapped.task_ids[0])
    assert "enum" not in tools(free, closed=True)[0]["function"]["parameters"]["properties"]["action"]


def test_an_episode(episode):
    output = []
    for action in ("walk on", "walk on", "open red door"):
        [reply] = responses(episode, acting(action))
        assert (reply["role"], reply["tool_call_id"]) == ("tool", "call-0")
        output.append(reply["content"])
    assert output[0] == "You are in a bare corridor.\nPossible actions: walk on, go back."
    assert output[2].endswith("The task is solved.")
    assert (episode.over, episode.won, episode.turn) == (True, True, 3)
    assert [step.reward for step in episode.steps(episode.turn)] == [0, 0, 10]


def test_several_calls_are_answered_in_order_and_are_one_step(episode):
    replies = responses(episode, acting("walk on", "walk on"))
    assert [reply["tool_call_id"] for reply in replies] == ["call-0", "call-1"]
    assert "round hall" in replies[1]["content"]
    assert len(episode.steps(episode.turn)) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "response"),
    [
        ("act", "walk on", "not JSON"),
        ("act", '{"action": "walk', "not JSON"),
        ("act", "", "not JSON"),
        pytest.param("act", "[" * 200_000, "not JSON", id="too deep"),
        ("act", "[1]", "no action that is a string"),
        ("act", "{}", "no action that is a string"),
        ("act", '{"action": 3}', "no action that is a string"),
        ("act", '{"action": null}', "no action that is a string"),
        ("act", None, "no action that is a string"),
        ("act", '{"action": "walk on", "speed": 3}', "Unknown arguments: speed"),
        ("acts", '{"action": "walk on"}', "Unknown tool 'acts'. Did you mean 'act'?"),
        (None, None, "Unknown tool 'None'"),
    ],
)
def test_a_wrong_call_is_an_error_and_changes_nothing(episode, name, arguments, response):
    [reply] = responses(episode, saying((name, arguments)))
    assert response in reply["content"]
    assert episode.admissible_actions == ("walk on",)
    assert [(step.reward, step.valid) for step in episode.steps(episode.turn)] == [(0, False)]
    [reply] = responses(episode, acting("walk on"))
    assert "corridor" in reply["content"]


@pytest.mark.parametrize(
    "calls",
    [
        [("act", '{"action": "walk on"}'), ("act", "{bad"), ("fly", "{}")],
        [("fly", "{}"), ("act", '{"action": "walk on"}')],
    ],
)
def test_a_turn_with_a_call_that_is_not_understood_is_not_valid_whatever_else_it_does(episode, calls):
    responses(episode, saying(*calls))
    responses(episode, acting("walk on"))
    assert [step.valid for step in episode.steps(episode.turn)] == [False, True]
    episode.begin("red")
    responses(episode, acting("walk on"))
    assert [step.valid for step in episode.steps(episode.turn)] == [True]


@pytest.mark.parametrize("call", [None, "act", [], {"id": "call-0", "function": "act"}])
def test_what_is_no_call_at_all_is_answered_as_a_call_without_a_tool(episode, call):
    [reply] = responses(episode, {"tool_calls": [call]})
    assert "Unknown tool 'None'" in reply["content"]
    assert [(step.reward, step.valid) for step in episode.steps(episode.turn)] == [(0, False)]


def test_arguments_that_a_client_has_read_already(episode):
    [reply] = responses(episode, saying(("act", {"action": "walk on"})))
    assert "corridor" in reply["content"]


@pytest.mark.parametrize("message", [{"role": "assistant", "content": "I walk on."}, {"tool_calls": None}])
def test_a_message_without_a_call(episode, message):
    assert responses(episode, message) == [{"role": "user", "content": NO_CALL}]
    assert [step.valid for step in episode.steps(episode.turn)] == [False]


def test_after_the_end(episode):
    responses(episode, acting("walk on", "walk on", "open red door"))
    assert [reply["content"] for reply in responses(episode, acting("walk on", "walk on"))] == [OVER, OVER]
    assert responses(episode, {"role": "assistant", "content": "Done."}) == []
    assert len(episode.steps(episode.turn)) == 1
