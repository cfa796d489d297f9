"""Tool calls as actions: how calls are written and read, and what a malformed one leads to."""

import json
import random
from dataclasses import replace

import pytest

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.envs.registration import make
from hgpo_gym.memory import ContextWrapper, PromptTemplate
from hgpo_gym.memory.tools import FORMATS, MALFORMED_CALL, Functions
from hgpo_gym.policies.base import Response, Sampling
from hgpo_gym.rollouts.collect import collect

TOOLS = PromptTemplate.named("tools")
SHOP = Functions(
    [
        {
            "name": "search",
            "action": "search[{query}]",
            "description": "Search.",
            "arguments": {"query": "Words."},
        },
        {"name": "move", "action": "move {object} to {place}"},
        {"name": "look", "action": "look"},
    ]
)


@pytest.mark.parametrize("tool_format", FORMATS)
def test_every_format_is_written_and_read(tool_format):
    template = replace(TOOLS, tool_format=tool_format)
    for action in ("go back", 'say "hi" {now}', "open </tool_call> door", "開く"):
        assert template.read(template.write_response(action)) == (action, True)
        thinking = replace(template, response="<think>I call {{}}.</think>\n{call}")
        assert thinking.read(thinking.write_response(action)) == (action, True)
    assert template.list_responses(("a", "b"))[1] == ("a", "b")


def test_a_function_of_each_verb_has_the_arguments_of_the_action():
    for action, call in [
        ("search[red cup]", {"name": "search", "arguments": {"query": "red cup"}}),
        ("move cup 1 to desk 2", {"name": "move", "arguments": {"object": "cup 1", "place": "desk 2"}}),
        ("look", {"name": "look", "arguments": {}}),
    ]:
        written = SHOP.write(action)
        assert json.loads(written.removeprefix("<tool_call>").removesuffix("</tool_call>")) == call
        assert SHOP.read(written) == (action, True)
    with pytest.raises(ValueError, match="none of search, move, look can express the action 'click'"):
        SHOP.write("click")
    search, move, _ = (tool["function"]["parameters"] for tool in SHOP.schemas)
    assert search["properties"] == {"query": {"type": "string", "description": "Words."}}
    assert move["required"] == ["object", "place"]
    assert json.loads(SHOP.offered.schemas) == SHOP.schemas
    assert SHOP.offered.schemas in SHOP.offered.instructions


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ('I look. <tool_call>{"name": "look", "arguments": {}}', "look"),  # the end of text replaces the closing tag
        ('<|python_tag|>{"name": "search", "parameters": {"query": "a"}}', "search[a]"),
        ('[TOOL_CALLS][{"name": "search", "arguments": "{\\"query\\": \\"a\\"}"}]', "search[a]"),
        ('<think><tool_call>no</think>{"name": "look", "parameters": {}}', "look"),
        ("look", "You called no function."),
        ("", "You called no function."),
        ("<tool_call>look</tool_call>", "The call is not JSON (Expecting value"),
        ('<tool_call>{"name": "look"', "The call is not JSON"),
        ("<tool_call>" + "[" * 200_000, "The call is not JSON (maximum recursion depth"),
        ('{"name": ' + "9" * 5_000, "The call is not JSON (Exceeds the limit"),
        ("[TOOL_CALLS] []", "Call exactly one function."),
        (
            '<tool_call>{"name": "look"}</tool_call><tool_call>{"name": "look"}</tool_call>',
            "Call exactly one function.",
        ),
        ('{"name": "look", "parameters": {}}; {"name": "look", "parameters": {}}', "Call exactly one function."),
        ('{"name": "look", "parameters": {}} I looked.', "Text follows the call"),
        ("[TOOL_CALLS] [3]", "The call is no JSON object."),
        ('{"name": "lok"}', "Unknown tool 'lok'. Did you mean 'look'?"),
        ('{"name": ["look"]}', "Unknown tool"),
        ('{"name": "search", "parameters": {"query": 3}}', "no query that is a string"),
        ('{"name": "search", "parameters": "query"}', "The arguments are not JSON"),
        ('{"name": "look", "parameters": {"at": "x"}}', "Unknown arguments: at. Expected {}."),
    ],
)
def test_calls_are_read_and_mistakes_are_named(response, action):
    reading = SHOP.read(response)
    assert reading.in_form == (not reading.action.startswith(MALFORMED_CALL))
    assert reading.action == action if reading.in_form else action in reading.action


def test_a_malformed_call_is_an_invalid_action_and_the_next_observation_has_the_reason():
    env = ContextWrapper(TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks=1, group_size=1, sections=1), TOOLS)
    texts = iter(['<tool_call>{"name": "fly"}</tool_call>', TOOLS.write_response("walk on")])

    class Recited:
        def generate(self, requests, sampling):
            return [Response(next(texts, "walk on")) for _ in requests]

    tasks = env.unwrapped.task_ids[:1]
    rollout = collect(env, Recited(), Sampling(), task_ids=tasks, seeds=[(0,)], invalid_action_penalty=0.1)
    first, second, third, *_ = rollout.steps
    reason = f"{MALFORMED_CALL}Unknown tool 'fly'."
    assert first.action.startswith(reason)
    assert second.observation.startswith(reason)
    assert second.observation in second.prompt
    assert second.action == "walk on"
    assert MALFORMED_CALL not in third.observation
    assert rollout.batch.penalty[:3].tolist() == [0.1, 0.0, 0.1]


def test_wrong_functions_are_refused():
    for functions, message in [
        ([], "prompt.functions is empty"),
        ([{"name": "go"}], "prompt.functions .*go.* has no action"),
        ([{"name": "go", "action": "go {0}"}], "{0} is no name of an argument"),
        ([{"name": "go", "action": "go", "argument": {}}], "Did you mean 'arguments'"),
        ([{"name": "go", "action": "go", "arguments": {"place": "Where."}}], "'go' has no argument {place}"),
    ]:
        with pytest.raises(ValueError, match=message.replace("{", r"\{")):
            replace(TOOLS, functions=functions)
    with pytest.raises(ValueError, match=r"Did you mean 'hermes'\?"):
        replace(TOOLS, tool_format="hermse")
    with pytest.raises(ValueError, match=r"set both, with a \{call\} in the response, or neither"):
        replace(TOOLS, response="{action}")


@pytest.mark.parametrize(
    ("prompt", "env_id", "options"),
    [
        ("search_tools", "hgpo_gym/Search-v0", {"queries": "suggested"}),
        ("webshop_tools", "hgpo_gym/WebShop-v0", {"split": "generated", "queries": "suggested"}),
        ("alfworld_tools", "hgpo_gym/ALFWorld-v0", {"split": "generated"}),
    ],
)
def test_functions_of_an_environment_can_express_its_actions(prompt, env_id, options):
    template, env = PromptTemplate.named(prompt), make(env_id, **options)
    generator, called = random.Random(0), set()
    for seed in range(2):
        _, info = env.reset(seed=seed)
        ended = False
        while not ended:
            for action in info["admissible_actions"]:
                response = template.write_response(action)
                assert template.read(response) == (action, True)
                called.add(json.loads(response.removeprefix("<tool_call>").removesuffix("</tool_call>"))["name"])
            *_, terminated, truncated, info = env.step(generator.choice(info["admissible_actions"]))
            ended = terminated or truncated
    assert len(called) > 1
