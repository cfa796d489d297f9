"""Architectures of language models: what generates agrees with what trains, weights leave as a checkpoint has them, and
of a model that reads images too the language model alone is trained."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hgpo_gym.policies import Sampling
from hgpo_gym.policies.engine_check import check_engine
from hgpo_gym.policies.engine_weights import engine_weights, tied_head
from hgpo_gym.policies.huggingface import load_model, save_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.language_part import towers
from hgpo_gym.policies.lora import LoraSettings, add_adapters, merge
from tests.checks.architectures import ARCHITECTURES, OPTIONS, gap, make_model, make_tokenizer, update
from tests.support.conversations import play
from tests.support.small_models import responses, updated, weights

VISION = "Gemma 3 with vision"


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def test_generation_and_likelihood_agree_before_and_after_an_update(tokenizer):
    for name in ARCHITECTURES:
        policy = LanguageModelPolicy(make_model(name), tokenizer, constrain="none", **OPTIONS)
        before = weights(policy)
        assert gap(policy) < 1e-5, name
        update(policy)
        assert gap(policy) < 1e-5, name
        assert any(not torch.equal(weight, before[key]) for key, weight in weights(policy).items()), name


def test_an_engine_gets_what_a_checkpoint_holds(tmp_path):
    """By the names there, where experts are apart. Of a model that reads images it gets what stands in a checkpoint of
    its language model."""
    heads = {}
    for name in ARCHITECTURES:
        model = make_model(name)
        model.save_pretrained(tmp_path / name)
        saved = load_file(tmp_path / name / "model.safetensors")
        if name == VISION:
            saved = {key.removeprefix("language_model."): weight for key, weight in saved.items()}
            saved = {key: weight for key, weight in saved.items() if key.startswith("model.")}
        sent, heads[name] = dict(engine_weights(model)), tied_head(model)
        assert sent.keys() - {heads[name]} == saved.keys(), name
        assert all(torch.equal(sent[key], weight) for key, weight in saved.items()), name
        if heads[name]:
            assert torch.equal(sent[heads[name]], sent["model.embed_tokens.weight"]), name
    assert {name for name, head in heads.items() if head == "lm_head.weight"} == {
        "Qwen2", "Gemma 2", "Gemma 3", VISION, "SmolLM3"
    }  # fmt: skip
    assert sum(".experts." in key for key in dict(engine_weights(make_model("Qwen3-MoE")))) == 2 * 4 * 3


def with_adapters(name):
    """A model whose adapters change something."""
    pytest.importorskip("peft")
    settings = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
    model = add_adapters(make_model(name), settings, seed=0)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "lora_B" in key:
                weight += 0.1
    return model


def test_adapters_of_experts_are_merged_into_what_an_engine_gets():
    adapted = with_adapters("Qwen3-MoE")
    sent, base = dict(engine_weights(adapted)), dict(engine_weights(make_model("Qwen3-MoE")))
    merged = dict(engine_weights(merge(adapted)))
    assert sent.keys() == merged.keys() == base.keys()
    changed = {key for key in base if not torch.equal(sent[key], base[key])}
    assert changed == {key for key in base if "proj" in key or "gate.weight" in key}
    for key, weight in merged.items():
        torch.testing.assert_close(sent[key], weight)
    assert dict(engine_weights(adapted, with_adapter=False)).keys() == base.keys()


def test_a_vision_tower_neither_trains_nor_gets_an_adapter_and_is_saved(tmp_path, tokenizer):
    save_model(make_model(VISION), tokenizer, tmp_path / "before")
    policy = LanguageModelPolicy(*load_model(str(tmp_path / "before"), device="cpu"), constrain="admissible", **OPTIONS)
    beside = tuple(towers(policy.model))
    assert beside == ("model.vision_tower", "model.multi_modal_projector")
    records = responses(policy, sampling=Sampling(max_new_tokens=16))
    after, metrics = updated(policy, records, np.linspace(-1, 1, len(records)), weight_decay=0.1)
    assert metrics["mismatch_max"] < 1e-5
    after.save(tmp_path / "after")
    again, _ = load_model(str(tmp_path / "after"), device="cpu")
    before = weights(policy)
    changed = {key for key, weight in again.state_dict().items() if not torch.equal(weight, before[key])}
    language = {key for key, _ in policy.model.named_parameters(remove_duplicate=False) if not key.startswith(beside)}
    assert changed == language
    adapters = [key for key, weight in with_adapters(VISION).named_parameters() if weight.requires_grad]
    assert len(adapters) == 2 * 7 * 2  # A and B of seven layers, two blocks
    assert all(".language_model." in key for key in adapters)


def test_an_engine_that_computes_something_else_is_refused():
    found, trainers = [-1.0, -2.0, -3.0], np.array([-1.0, -2.0, -3.2])
    about = {"architecture": "Qwen3MoeForCausalLM", "missing": [f"experts.{number}" for number in range(10)]}
    check_engine(found, trainers, exact=True, **about)
    check_engine(found, trainers + 0.3, exact=False, **about)
    message = (
        r"differ from the trainer's by 0.233 nats on average, 0.1 are allowed in float32.*: experts.0.* and 2 more"
    )
    with pytest.raises(ValueError, match=message):
        check_engine(found, trainers + 0.3, exact=True, **about)
    with pytest.raises(ValueError, match="by nan nats"):
        check_engine([-1.0, float("nan"), 0.0], trainers, exact=True, **about)
    with pytest.raises(ValueError, match="weights were loaded, but"):
        check_engine(found, trainers + 1, exact=False, architecture="A", missing=[])


@pytest.mark.slow
def test_kept_prefixes_change_nothing_in_any_architecture(tokenizer):
    for name in ARCHITECTURES:
        model = make_model(name)
        plain, keeping = (
            play(LanguageModelPolicy(model, tokenizer, prefix_cache_tokens=most, constrain="none", **OPTIONS))
            for most in (0, 10_000)
        )
        for theirs, ours in zip(plain, keeping, strict=True):
            for expected, record in zip(theirs, ours, strict=True):
                np.testing.assert_array_equal(record.token_ids, expected.token_ids, err_msg=name)
                np.testing.assert_allclose(record.logprobs, expected.logprobs, atol=1e-5, err_msg=name)
        assert all(record.prompt_cached > 0 for record in keeping[3]), name
