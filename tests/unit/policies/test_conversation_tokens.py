"""Conversations are tokens: what was generated stays, and the rest is what the chat template shows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import EarlierTurn, Response
from hgpo_gym.policies.conversation_tokens import ConversationTokens
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.update.conversations import continues
from tests.support.chat_styles import STYLES, styled_tokenizer

TEXTS = ["You see a door.\n\nGo on.\n", "go left\n", " go right", "<think>\n", "\n\n\nuser\n", "model\n"] * 4
TURNS = 20
LITERAL = "<think></think>"


def observation(turn):
    return f"\nYou see door {turn}. It says <|im_end|> and [INST].\n"


def continued(request, response, turn):
    """The request of the next turn."""
    done = EarlierTurn(request.prompt, response.text, response.tokens, request.opening or request.prompt)
    prompt = observation(turn)
    return replace(request, prompt=prompt, opening=f"Find it.{prompt}", earlier=(*request.earlier, done), seed=(turn,))


def play(policy, turns=TURNS, answer=None, system=""):
    """The records of a conversation: generated, or of given answers."""
    request, records = Request("Find it." + observation(0), literal_text=LITERAL, system=system), []
    for turn in range(1, turns + 1):
        if answer is None:
            (response,) = policy.generate([request], Sampling(max_new_tokens=6))
        else:
            (tokens,) = policy.records([request], [answer(turn)])
            response = Response(answer(turn), tokens)
        records.append(response.tokens)
        request = continued(request, response, turn)
    return request, records


def make(style, **options):
    tokenizer = train_tokenizer(TEXTS, 300) if style == "none" else styled_tokenizer(style, TEXTS)
    model = make_tiny_model(tokenizer, hidden_size=16, layers=1, heads=2, seed=0, device="cpu")
    return LanguageModelPolicy(model, tokenizer, **{"constrain": "none", **options})


@pytest.mark.promise("A conversation is trained on the tokens that were generated, with five styles of chat templates.")
@pytest.mark.parametrize("style", [*STYLES, "none"])
def test_a_conversation_is_trained_on_as_it_was_generated(style):
    policy = make(style, max_prompt_tokens=8000)
    request, records = play(policy)
    # Qwen3's template removes what stands before a </think>, which a random model writes now and then.
    extends = [continues(later, record) for record, later in itertools.pairwise(records)]
    assert extends == [style != "qwen3" or "</think>" not in turn.response for turn in request.earlier[:-1]]
    assert sum(extends) > TURNS // 2
    # Sensitive to a single turn that is tokenised again: random responses are seldom what their text encodes to.
    again = [np.array_equal(policy.encode_response(turn.response), turn.tokens.token_ids) for turn in request.earlier]
    assert not all(again)
    first = again.index(False)
    retokenised = [turn._replace(tokens=None) if index == first else turn for index, turn in enumerate(request.earlier)]
    rebuilt = policy._turns.rebuilt(records[0].prompt_ids, retokenised, request.prompt, LITERAL)
    ((prompt, cut),) = policy.read_prompts([request])
    assert not cut
    assert not np.array_equal(rebuilt, prompt)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("thought", ["", "<think>\nWhere?\n</think>\n\n"])
def test_a_conversation_reads_as_the_chat_template_shows_it(style, thought):
    """Of responses that are what their text encodes to. A thought that the template removes ends the sequence."""
    policy = make(style, max_prompt_tokens=8000)
    request, records = play(policy, 4, lambda turn: f"{thought}go {turn}")
    ((prompt, _),) = policy.read_prompts([request])
    shown = policy.tokenizer.apply_chat_template(request.messages, tokenize=False, add_generation_prompt=True)
    # The template may trim what the model does not: compare without spaces.
    assert "".join(policy._decode(prompt.tolist()).split()) == "".join(shown.split())
    removed = style == "qwen3" and bool(thought)
    assert ("Where" in policy._decode(prompt.tolist())) == (bool(thought) and not removed)
    assert [continues(later, record) for record, later in itertools.pairwise(records)] == [not removed] * 3


def test_an_empty_thought_that_the_template_writes_before_responses_alone_is_not_shown_again():
    policy = make("qwen3", chat_template_kwargs={"enable_thinking": False})
    request, records = play(policy, 3, lambda turn: f"go {turn}")
    text = policy._decode(policy.read_prompts([request])[0][0].tolist())
    assert text.count("</think>") == 1
    assert text.endswith("</think>\n\n")
    assert not continues(records[1], records[0])


def test_text_that_spells_a_control_token_stays_text():
    for style in ("qwen2.5", "qwen3", "mistral"):
        policy = make(style)
        thought = "<think>x</think>" if style == "qwen3" else ""
        request, _records = play(policy, 3, lambda turn, thought=thought: f"{thought}go {turn}")
        ((prompt, _),) = policy.read_prompts([request])
        end = policy.end_of_text
        turns = 1 if style == "qwen2.5" else 0  # the template's system turn
        users = 0 if style == "mistral" else 4
        assert (prompt == end).sum() == turns + users + 3, style


def test_a_truncated_response_gets_the_end_that_the_template_writes():
    policy = make("llama3")
    (tokens,) = policy.records([Request("Go.")], ["go left"])
    whole, cut = tokens, replace(tokens, token_ids=tokens.token_ids[:-1])
    requests = [Request("Next.", earlier=(EarlierTurn("Go.", "go left", record, "Go."),)) for record in (whole, cut)]
    (ended, _), (completed, _) = policy.read_prompts(requests)
    np.testing.assert_array_equal(ended, completed)


def test_the_oldest_turns_are_left_out_and_the_task_stays():
    policy = make("qwen2.5", max_prompt_tokens=400)
    _request, records = play(policy)
    lengths = [len(record.prompt_ids) for record in records]
    assert max(lengths) <= 400
    cuts = [index for index in range(1, TURNS) if lengths[index] < lengths[index - 1]]
    assert 1 <= len(cuts) <= 5
    assert all(lengths[index] <= 200 for index in cuts)
    assert [record.prompt_cut for record in records] == [index >= cuts[0] for index in range(TURNS)]
    for index in range(1, TURNS):
        assert continues(records[index], records[index - 1]) == (index not in cuts)
    text = policy._decode(records[cuts[0]].prompt_ids.tolist())
    assert text.count("Find it.") == 1
    assert text.index("Find it.") < text.index("You see door") < text.index("You see door", text.index("door") + 5)
    assert "door 0." not in text


def test_a_turn_that_alone_is_too_long_is_cut_as_a_prompt_is():
    policy = make("qwen2.5", max_prompt_tokens=60)
    _, records = play(policy, 3)
    assert all(len(record.prompt_ids) <= 60 and record.prompt_cut for record in records)


def test_a_template_that_changes_earlier_turns_is_refused():
    tokenizer = styled_tokenizer("qwen2.5", TEXTS)
    tokenizer.chat_template = "{{ messages | length }} " + tokenizer.chat_template
    tokens = LanguageModelPolicy(
        make_tiny_model(tokenizer, hidden_size=16, layers=1, heads=2, seed=0, device="cpu"), tokenizer
    )
    assert isinstance(tokens._turns, ConversationTokens)
    turn = EarlierTurn("Go.", "go left", None, "Go.")
    with pytest.raises(ValueError, match=r"changes the first turn .* memory=window"):
        tokens.read_prompts([Request("Next.", earlier=(turn,))])


@pytest.mark.parametrize("style", ["qwen2.5", "llama3", "none"])
def test_the_systems_message_stands_before_the_conversation(style):
    policy = make(style)
    request, records = play(policy, 3, lambda turn: f"go {turn}", system="Be brief.\n")
    assert all(continues(later, record) for record, later in itertools.pairwise(records))
    text = policy._decode(policy.read_prompts([request])[0][0].tolist())
    assert text.count("Be brief.") == 1
    assert text.index("Be brief.") < text.index("Find it.")
    assert request.messages[0] == {"role": "system", "content": "Be brief.\n"}
    with pytest.raises(ValueError, match="refuses a prompt"):
        make("gemma").read_prompts([request])
