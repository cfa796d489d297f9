"""Keys and values of conversations are kept: the next prompt reads its last turn, and computes the same."""

import numpy as np
import pytest

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.language_model import LanguageModelPolicy
from tests.support.conversations import play
from tests.support.small_models import make_policy


def policies(constrain, **options):
    """Without and with kept prefixes, by the same weights."""
    small = make_policy(layers=2)
    return [
        LanguageModelPolicy(small.model, small.tokenizer, constrain=constrain, prefix_cache_tokens=most, **options)
        for most in (0, 10_000)
    ]


@pytest.mark.parametrize("constrain", ["none", "admissible"])
@pytest.mark.parametrize("cache", [65536, 200])
def test_kept_prefixes_change_nothing(constrain, cache):
    plain, keeping = map(play, policies(constrain, max_cache_tokens=cache))
    for theirs, ours in zip(plain, keeping, strict=True):
        for expected, record in zip(theirs, ours, strict=True):
            np.testing.assert_array_equal(record.prompt_ids, expected.prompt_ids)
            np.testing.assert_array_equal(record.token_ids, expected.token_ids)
            np.testing.assert_allclose(record.logprobs, expected.logprobs, atol=1e-5)
    assert all(record.prompt_cached == 0 for records in plain for record in records)
    # All but the last token: the model has not read it when a response ends.
    if constrain == "none":
        assert [record.prompt_cached for record in keeping[1]] == [len(record) - 1 for record in keeping[0]]
    assert all(record.prompt_cached > 0 for record in keeping[3])


def test_a_prompt_with_a_kept_prefix_reads_its_last_turn_alone():
    counts = []
    for policy in policies("none"):
        read = []
        policy.model.get_decoder().register_forward_pre_hook(
            lambda _, args, kwargs, read=read: read.__setitem__(-1, max(read[-1], kwargs["input_ids"].shape[1])),
            with_kwargs=True,
        )
        records = play(policy, read)
        counts.append(read)
    plain, keeping = counts
    assert plain[-1] == max(len(record.prompt_ids) for record in records[-1])
    assert keeping[-1] < plain[-1] / 2


def test_other_weights_and_new_episodes_forget():
    _, policy = policies("none")
    prefixes = policy._generator.prefixes
    play(policy)
    assert prefixes._tokens > 0
    policy.updated()
    assert prefixes._tokens == 0
    play(policy)
    policy.generate([Request("Door 9.")], Sampling(max_new_tokens=1))
    assert prefixes._tokens == 0


def test_the_oldest_prefixes_make_room():
    small = make_policy()
    policy = LanguageModelPolicy(small.model, small.tokenizer, prefix_cache_tokens=250, constrain="none")
    records = play(policy)
    assert 0 < policy._generator.prefixes._tokens <= 250
    assert any(record.prompt_cached == 0 for record in records[-1])
    assert any(record.prompt_cached > 0 for record in records[-1])
