"""Generation by transformers: what is read, what is kept, and that neither changes a response."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.cache_utils import DynamicCache

from hgpo_gym.policies import Request, Sampling, generation
from hgpo_gym.policies.base import CannotRespondError
from hgpo_gym.policies.huggingface import load_model, make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.kv_cache import ROOM, GrowingLayer, Rows, join
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.sampling import draw

ACTIONS = ("walk on", "walk off", "open red door", "open blue door", "go back")
PROMPTS = ["You are in a hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n", "Hall."]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([*PROMPTS, *ACTIONS] * 3, 400)


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_tiny_model(tokenizer, hidden_size=32, layers=2, heads=2, seed=0, device="cpu")


def requests(count=24):
    """Prompts of different lengths, some of them several times."""
    prompts = [PROMPTS[n % 3] * (1 + n % 4) for n in range(count)]
    return [Request(prompt, ACTIONS, seed=(7, n)) for n, prompt in enumerate(prompts)]


def tokens_read(model, policy, asked, sampling):
    """Each batch of token ids that the model was given."""
    seen = []

    def note(_module, _args, inputs):
        seen.append(inputs["input_ids"].clone())

    hook = model.get_decoder().register_forward_pre_hook(note, with_kwargs=True)
    policy.generate(asked, sampling)
    hook.remove()
    return seen


def test_a_prompt_is_read_once_however_many_responses_it_gets(model, tokenizer):
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    seen = tokens_read(model, policy, [Request(PROMPTS[n % 2], seed=(n,)) for n in range(40)], Sampling(1.0, 1.0, 1))
    assert [len(ids) for ids in seen] == [2]
    assert seen[0].ne(0).sum() == sum(len(ids) for ids in policy.encode_prompts(PROMPTS[:2]))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_keys_and_values_are_kept_in_the_format_that_generation_computes_in(model, tokenizer, precision, monkeypatch):
    saved = []

    def note(parts, columns):
        joined = join(parts, columns)
        saved.extend(state.dtype for layer in joined.layers for state in (layer.keys, layer.values))
        return joined

    monkeypatch.setattr(generation, "join", note)
    policy = LanguageModelPolicy(model, tokenizer, precision=precision, constrain="none")
    policy.generate(requests(6), Sampling(max_new_tokens=4))
    assert set(saved) == {getattr(torch, precision)}


def test_responses_that_have_ended_are_not_read_on(model, tokenizer):
    """Steps after the first token: rows stay at most a tenth more than the responses that go on."""
    policy = LanguageModelPolicy(model, tokenizer, constrain="none")
    asked, sampling = requests(60), Sampling(max_new_tokens=400)
    lengths = np.array([len(response.tokens.token_ids) for response in policy.generate(asked, sampling)])
    assert len(set(lengths.tolist())) > 20
    steps = [len(ids) for ids in tokens_read(model, policy, asked, sampling) if ids.shape[1] == 1]
    assert len(steps) == lengths.max() - 1
    going = [int((lengths > step).sum()) for step in range(1, lengths.max())]
    assert all(alive <= rows <= alive / 0.9 for alive, rows in zip(going, steps, strict=True))


@pytest.mark.parametrize("constrain", ["none", "admissible"])
def test_budgets_change_no_response(model, tokenizer, constrain):
    sampling = Sampling(max_new_tokens=60)
    budgets = [(100_000, 100_000), (64, 100_000), (100, 400), (1, 1)]
    responses = [
        LanguageModelPolicy(
            model, tokenizer, constrain=constrain, max_batch_tokens=batch, max_cache_tokens=cache
        ).generate(requests(), sampling)
        for batch, cache in budgets
    ]
    for others in responses[1:]:
        for one, other in zip(responses[0], others, strict=True):
            np.testing.assert_array_equal(one.tokens.token_ids, other.tokens.token_ids)
            np.testing.assert_allclose(one.tokens.logprobs, other.tokens.logprobs, atol=1e-5)


def test_the_cache_budget_bounds_the_rows_and_is_used(model, tokenizer):
    policy = LanguageModelPolicy(model, tokenizer, max_batch_tokens=64, max_cache_tokens=600, constrain="none")
    seen = tokens_read(model, policy, requests(), Sampling(max_new_tokens=30))
    longest = max(len(ids) for ids in policy.encode_prompts([request.prompt for request in requests()]))
    rows = [len(ids) for ids in seen if ids.shape[1] == 1]
    assert 3 < max(rows) < len(requests())
    assert max(rows) * 30 <= 600 < 24 * (longest + 30)
    # Prompts are read between steps, when others' answers are under way.
    kinds = [ids.shape[1] > 1 for ids in seen]
    assert True in kinds[kinds.index(False) :]


def test_a_model_in_bfloat16_responses_with_log_probabilities_in_float32(model, tokenizer):
    half = make_tiny_model(tokenizer, hidden_size=32, layers=2, heads=2, seed=0, device="cpu").to(torch.bfloat16)
    policy = LanguageModelPolicy(half, tokenizer, max_batch_tokens=64, constrain="none")
    exact = LanguageModelPolicy(model, tokenizer, constrain="none")
    records = [response.tokens for response in policy.generate(requests(), Sampling(max_new_tokens=8))]
    assert {record.logprobs.dtype for record in records} == {np.dtype("float32")}
    for scorer in (policy, exact):
        scored = score(scorer, records, temperature=1.0, max_batch_tokens=10_000)
        for record, logprobs in zip(records, scored, strict=True):
            np.testing.assert_allclose(record.logprobs, logprobs, atol=0.15)


def test_sliding_windows_cover_the_tokens_of_their_row_alone(tokenizer):
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_sliding_window=True, sliding_window=6, max_window_layers=1, initializer_range=0.2,
    )  # fmt: skip
    assert config.layer_types == ["full_attention", "sliding_attention"]
    policy = LanguageModelPolicy(
        transformers.Qwen2ForCausalLM(config), tokenizer, max_batch_tokens=64, constrain="none"
    )
    records = [response.tokens for response in policy.generate(requests(), Sampling(max_new_tokens=20))]
    for record, logprobs in zip(records, score(policy, records, temperature=1.0, max_batch_tokens=1), strict=True):
        np.testing.assert_allclose(record.logprobs, logprobs, atol=2e-5)


def test_layers_that_are_no_attention_layers_are_refused(model, tokenizer):
    config = transformers.Qwen3NextConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=2, moe_intermediate_size=16, num_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    policy = LanguageModelPolicy(transformers.Qwen3NextForCausalLM(config), tokenizer, constrain="none")
    with pytest.raises(ValueError, match=r"Qwen3NextForCausalLM has layers of type linear_attention"):
        policy.generate(requests(), Sampling())

    recurrent = transformers.RwkvConfig(
        vocab_size=len(tokenizer), hidden_size=32, attention_hidden_size=32, num_hidden_layers=2
    )
    policy = LanguageModelPolicy(
        transformers.RwkvForCausalLM(recurrent), tokenizer, max_prompt_tokens=512, constrain="none"
    )
    with pytest.raises(ValueError, match=r"RwkvForCausalLM has recurrent layers"):
        policy.generate(requests(), Sampling())


SHAPE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "bos_token_id": None,
}  # fmt: skip
ARCHITECTURES = {
    "a scale": transformers.GraniteConfig(logits_scaling=8.0, **SHAPE),
    "a scale the other way": transformers.CohereConfig(logit_scale=0.0625, **SHAPE),
    "a cap": transformers.Gemma2Config(final_logit_softcapping=3.0, head_dim=8, **SHAPE),
    "none": transformers.LlamaConfig(**SHAPE),
    "dropout": transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, initializer_range=0.3, embd_pdrop=0.5),
    "dropout of layers": transformers.OPTConfig(
        hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32, init_std=0.3,
        dropout=0.5, layerdrop=0.5,
    ),
    "dropout that is looked up": transformers.PersimmonConfig(attention_dropout=0.5, **SHAPE),
    "a router with noise": transformers.MixtralConfig(num_local_experts=4, router_jitter_noise=0.3, **SHAPE),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_responses_are_drawn_and_scored_as_the_model_itself_says_also_while_it_is_trained(name, tokenizer, tmp_path):
    """Whatever it does with what its output embeddings say."""
    config = copy.deepcopy(ARCHITECTURES[name])
    config.update({"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0})
    save_model(transformers.AutoModelForCausalLM.from_config(config), tokenizer, tmp_path)
    model, _ = load_model(str(tmp_path), device="cpu")
    policy = LanguageModelPolicy(model, tokenizer, max_prompt_tokens=512, constrain="none")
    records = [one.tokens for one in policy.generate(requests(6), Sampling(temperature=0.7, max_new_tokens=12))]
    model.train()
    scored = policy.likelihood(records, temperature=0.7).logprobs.detach().numpy()
    model.eval()
    expected = []
    for record in records:
        ids = torch.from_numpy(np.concatenate((record.prompt_ids, record.token_ids)))[None]
        logits = model(input_ids=ids, use_cache=False).logits[0, len(record.prompt_ids) - 1 : -1] / 0.7
        expected.append(logits.log_softmax(-1).gather(1, torch.from_numpy(record.token_ids)[:, None])[:, 0])
    expected = torch.cat(expected).detach().numpy()
    np.testing.assert_allclose(np.concatenate([record.logprobs for record in records]), expected, atol=1e-4)
    np.testing.assert_allclose(scored, expected, atol=1e-4)


def test_a_model_with_more_than_output_embeddings_at_its_end_is_refused(tokenizer, tmp_path):
    config = transformers.FalconH1Config(
        vocab_size=len(tokenizer), mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
        lm_head_multiplier=0.2, pad_token_id=0, eos_token_id=tokenizer.eos_token_id, **SHAPE,
    )  # fmt: skip
    save_model(transformers.FalconH1ForCausalLM(config), tokenizer, tmp_path)
    with pytest.raises(ValueError, match=r"model\.path: FalconH1ForCausalLM does something else"):
        load_model(str(tmp_path), device="cpu")


def states(rows, columns):
    """Keys or values [rows, 2 heads, columns, 3] that are all different."""
    return torch.arange(rows * 2 * columns * 3, dtype=torch.float32).view(rows, 2, columns, 3)


def test_a_layer_with_room_holds_what_a_layer_without_holds():
    grown, plain = GrowingLayer(states(2, 4), -states(2, 4), 4), DynamicCache()
    plain.update(states(2, 4), -states(2, 4), 0)
    for step in range(2 * ROOM):
        new = torch.full((2, 2, 1, 3), float(step))
        for mine, theirs in zip(grown.update(new, -new), plain.update(new, -new, 0), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert grown.get_seq_length() == plain.get_seq_length() == 4 + 2 * ROOM


def test_joined_rows_end_together():
    first, second = DynamicCache(), DynamicCache()
    first.update(states(3, 5), -states(3, 5), 0)
    second.update(states(2, 2), -states(2, 2), 0)
    parts = [
        Rows(first, torch.tensor([2, 0, 2]), torch.tensor([4, 3, 5])),
        Rows(second, torch.tensor([1]), torch.tensor([2])),
    ]
    (layer,) = join(parts, columns=3).layers
    expected = [states(3, 5)[2, :, 1:4], states(3, 5)[0, :, 0:3], states(3, 5)[2, :, 2:5]]
    torch.testing.assert_close(layer.keys[:3], torch.stack(expected))
    torch.testing.assert_close(layer.values[:3], -torch.stack(expected))
    torch.testing.assert_close(layer.keys[3, :, 1:], states(2, 2)[1])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_an_error(temperature):
    """A run whose weights have diverged, finite as they are, met an index error."""
    logits = torch.tensor([[0.0, 1.0], [0.0, float("nan")]])
    with pytest.raises(CannotRespondError, match="probabilities are not numbers: its weights have diverged"):
        draw(logits, Sampling(temperature=temperature), np.array([0.5, 0.5]))
