"""engine=vllm with a real pretrained model: the responses, tokens and probabilities of engine=transformers."""

import numpy as np
import pytest

from hgpo_gym.policies import Sampling
from hgpo_gym.policies.huggingface import load_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.vllm_policy import VllmPolicy
from tests.support.smollm2 import ACTIONS, requests


@pytest.fixture(scope="module", params=["none", "admissible"])
def policies(smollm2, request):
    """vLLM's and ours, of the same weights."""
    model, constrain = load_model(str(smollm2), device="cpu"), request.param
    options = {"enforce_eager": True, "kv_cache_gib": 0.2, "max_model_len": 1024, "max_prompt_tokens": 512}
    ours = LanguageModelPolicy(*model, constrain=constrain, max_prompt_tokens=512)
    return VllmPolicy(*model, constrain=constrain, **options), ours


def test_greedy_responses_are_the_same(policies):
    theirs, ours = (policy.generate(requests(), Sampling(temperature=0, max_new_tokens=24)) for policy in policies)
    for response, expected in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(response.tokens.prompt_ids, expected.tokens.prompt_ids)
        np.testing.assert_array_equal(response.tokens.token_ids, expected.tokens.token_ids)
        np.testing.assert_allclose(response.tokens.logprobs, expected.tokens.logprobs, atol=1e-3)


def test_drawn_responses_have_the_log_probabilities_that_the_update_will_find(policies):
    policy, ours = policies
    responses = policy.generate(requests(12), Sampling(max_new_tokens=12))
    if ours.constrain == "admissible":
        assert {response.text for response in responses} <= set(ACTIONS)
    records = [response.tokens for response in responses]
    for record, scored in zip(records, score(policy, records, temperature=1.0, max_batch_tokens=512), strict=True):
        np.testing.assert_allclose(record.logprobs[record.choices], scored, atol=1e-3)
