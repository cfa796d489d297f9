"""engine=vllm with the real vLLM on a CPU: the same weights, tokens and probabilities as the trainer's model."""

import numpy as np
import pytest
import torch

from hgpo_gym.trainers.likelihood import score
from hgpo_gym.trainers.policies import Request, Sampling
from hgpo_gym.trainers.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.policies.models import load_model, make_tiny_model, train_tokenizer
from hgpo_gym.trainers.policies.vllm_policy import VllmPolicy, engine_seed

ACTIONS = ("walk on", "walk off", "open red door", "open blue door", "go back", "go back again")
PROMPTS = ["You are in a hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n", "Hall."]
OPTIONS = {"enforce_eager": True, "kv_cache_gib": 0.05}


@pytest.fixture(scope="module")
def tiny():
    tokenizer = train_tokenizer([*PROMPTS, *ACTIONS] * 3, 400)
    return make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=2, seed=0, device="cpu"), tokenizer


@pytest.fixture(scope="module")
def free(tiny):
    return VllmPolicy(*tiny, **OPTIONS)


@pytest.fixture(scope="module")
def constrained(tiny):
    return VllmPolicy(*tiny, constrain="admissible", **OPTIONS)


def requests(count=12, answers=(), first_seed=0):
    return [Request(PROMPTS[n % 3], answers, seed=(7, first_seed + n)) for n in range(count)]


def gap(policy, responses, temperature=1.0):
    """The largest difference between a recorded log-probability and the trainer's."""
    records = [response.tokens for response in responses if len(response.tokens.choices)]
    scored = score(policy, records, temperature=temperature, max_batch_tokens=4096)
    assert sum(map(len, scored)) > 0
    return max(np.abs(record.logprobs[record.choices] - own).max() for record, own in zip(records, scored, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_recorded_log_probabilities_are_the_trainers(free, temperature):
    responses = free.generate(requests(), Sampling(temperature=temperature, max_new_tokens=8))
    assert gap(free, responses, temperature) < 1e-4
    for response, request in zip(responses, requests(), strict=True):
        np.testing.assert_array_equal(
            response.tokens.prompt_ids, LanguageModelPolicy(free.model, free._language_model.tokenizer).encode_prompt(request.prompt)
        )
        assert len(response.tokens.token_ids) <= 8


def test_constrained(constrained):
    responses = constrained.generate(requests(60, ACTIONS), Sampling(max_new_tokens=8))
    assert {r.text for r in responses} <= set(ACTIONS)
    print({r.text for r in responses}, gap(constrained, responses))
    assert gap(constrained, responses) < 1e-4
