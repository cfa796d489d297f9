"""Tool calls of language models: chat templates show the functions, and write the calls that our prompts do."""

import json
from dataclasses import replace

import pytest

from hgpo_gym.memory import PromptTemplate
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.language_model import LanguageModelPolicy
from tests.support.chat_models import CHATML, chat_model
from tests.support.tool_templates import TEMPLATES

TOOLS = PromptTemplate.named("tools")
ACTIONS = ("walk on", "open red door", "go back")
CALLS = [
    {"id": "call12345", "type": "function", "function": {"name": "act", "arguments": {"action": action}}}
    for action in ACTIONS
]


def made(tool_format):
    """A model, its tokenizer and the template of prompts of this format."""
    style, chat_template, tags = TEMPLATES[tool_format]
    template = replace(TOOLS, tool_format=tool_format)
    texts = [template.tools.instructions, *map(template.write_response, ACTIONS), "A hall. <|im_start|>user"]
    model, tokenizer = chat_model(style, texts, tags=tags, size=450)
    tokenizer.chat_template = chat_template
    return model, tokenizer, template


@pytest.mark.parametrize("tool_format", TEMPLATES)
def test_functions_are_shown_and_calls_written_as_by_the_chat_template(tool_format):
    model, tokenizer, template = made(tool_format)
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    request = Request("A hall.", literal_text=template.literal_text, tools=template.tools)
    ((ids, _),) = policy.read_prompts([request])
    user = {"role": "user", "content": "A hall."}
    tools = json.loads(template.tools.schemas)
    expected = tokenizer.apply_chat_template([user], tools=tools, tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(ids) == expected
    assert "Act in the world" in expected
    for action, call in zip(ACTIONS, CALLS, strict=True):
        called = {"role": "assistant", "content": "", "tool_calls": [call]}
        whole = tokenizer.apply_chat_template([user, called], tools=tools, tokenize=False)
        response = template.write_response(action)
        assert whole.startswith(expected + response)
        assert template.read(response) == (action, True)
        written = policy.encode_response(response, template.literal_text)
        end = tokenizer(whole, add_special_tokens=False)["input_ids"][len(ids) :]
        assert written.tolist() == end[: len(written)]


@pytest.mark.parametrize("tool_format", TEMPLATES)
def test_constrained_calls_are_admissible_actions(tool_format):
    model, tokenizer, template = made(tool_format)
    policy = LanguageModelPolicy(model, tokenizer, constrain="admissible")
    texts, meanings = template.list_responses(ACTIONS)
    shared = {"literal_text": template.literal_text, "tools": template.tools}
    requests = [Request("A hall.", texts, seed=(n,), choices=meanings, **shared) for n in range(12)]
    responses = policy.generate(requests, Sampling(temperature=20.0, max_new_tokens=64))
    assert {response.text for response in responses} <= set(texts)
    assert len({template.read(response.text).action for response in responses}) > 1


@pytest.mark.parametrize("templated", [True, False])
def test_functions_stand_in_the_prompt_where_no_chat_template_shows_them(templated):
    model, tokenizer, template = made("hermes")
    tokenizer.chat_template = CHATML if templated else None
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    request = Request("A hall.", literal_text=template.literal_text, tools=template.tools)
    (ids, _), (without, _) = policy.read_prompts([request, Request("A hall.")])
    assert template.tools.instructions + "A hall." in tokenizer.decode(ids)
    assert "act" not in tokenizer.decode(without)


def test_a_tag_in_an_observation_is_plain_text_where_no_tools_are_called():
    model, tokenizer, _ = made("hermes")
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    ((ids, _),) = policy.read_prompts([Request("A hall. <tool_call>")])
    assert tokenizer.convert_tokens_to_ids("<tool_call>") not in ids.tolist()
