"""LoRA and QLoRA: the adapter alone trains and is saved, the base stays and is the reference, export merges."""

import re
import shutil
import sys
from functools import partial

import numpy as np
import pytest
import torch
import yaml

from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_run
from hgpo_gym.extras import install_command
from hgpo_gym.policies.huggingface import load_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.lora import (
    LoraSettings,
    WithoutAdapter,
    add_adapters,
    load_adapters,
    merge,
    plain_weights,
    unpack,
)
from hgpo_gym.progress import Progress
from hgpo_gym.runs.checkpoints import Checkpoints, InvalidCheckpointError
from hgpo_gym.runs.directory import read_config, read_summary
from hgpo_gym.trainers.export import export
from hgpo_gym.trainers.learners.base import Saving
from hgpo_gym.trainers.run import Run, make_learner
from hgpo_gym.trainers.settings import RunSettings
from tests.support import small_runs
from tests.support.small_models import make_policy, responses, settings, updated, weights
from tests.support.small_runs import numbers, training_numbers

pytest.importorskip("peft")

LORA = LoraSettings(rank=4, alpha=8, dropout=0.0, target_modules="all-linear")
ADVANTAGES = np.linspace(-1, 1, 24)
SCORING = {"temperature": 1.0, "max_batch_tokens": 10_000}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a base model."""
    folder = tmp_path_factory.mktemp("base") / "model"
    make_policy(hidden_size=64, layers=2).save(folder)
    return folder


def with_adapter(base, quantization=None):
    model, tokenizer = load_model(str(base), device="cpu", quantization=quantization)
    return LanguageModelPolicy(add_adapters(model, LORA, seed=0), tokenizer, constrain="admissible")


def test_only_the_adapter_changes_and_the_base_is_the_reference(base):
    policy = with_adapter(base)
    plain, tokenizer = load_model(str(base), device="cpu")
    records = responses(policy)
    after, metrics = updated(policy, records, ADVANTAGES, kl_coef=0.1, reference=WithoutAdapter(policy))
    before, now = weights(policy), weights(after)
    changed = {name for name in before if not torch.equal(before[name], now[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert sum("lora_" in name for name in before) == len(changed) == 2 * 7 * 2  # A and B of seven layers, two blocks
    with_base = LanguageModelPolicy(plain, tokenizer, constrain="admissible")
    expected = score(with_base, records, **SCORING)
    for merged, reference, adapted in zip(
        expected, score(WithoutAdapter(after), records, **SCORING), score(after, records, **SCORING), strict=True
    ):
        np.testing.assert_allclose(merged, reference, atol=1e-6)
        assert np.abs(merged - adapted).max() > 1e-3
    assert metrics["kl_reference"] > 0
    assert metrics["mismatch_max"] < 1e-5


def test_plain_weights_are_the_merged_ones_and_leave_the_adapter_alone(base):
    policy = with_adapter(base)
    after, _ = updated(policy, responses(policy), ADVANTAGES)
    before = {name: value.clone() for name, value in weights(after).items()}
    found = dict(plain_weights(after.model))
    assert all(torch.equal(value, before[name]) for name, value in weights(after).items())
    merged = dict(merge(after.model).named_parameters(remove_duplicate=False))
    assert found.keys() == merged.keys()
    assert "lm_head.weight" in found  # tied
    for name, value in found.items():
        torch.testing.assert_close(value, merged[name], atol=1e-6, rtol=1e-6)


def test_a_young_adapter_is_not_rounded_away_where_the_base_is_in_bfloat16(base):
    model, _ = load_model(str(base), device="cpu", dtype="bfloat16")
    adapted = add_adapters(model, LORA, seed=0)
    before = {name: weight.detach().float() for name, weight in plain_weights(adapted)}
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 1e-5, generator=torch.Generator().manual_seed(0))
    learned = {name: weight - before[name] for name, weight in plain_weights(adapted)}
    name = "model.layers.0.mlp.up_proj.weight"
    layer = adapted.get_base_model().model.layers[0].mlp.up_proj
    torch.testing.assert_close(learned[name], layer.get_delta_weight("default"), atol=3e-8, rtol=0)
    assert learned[name].abs().max() > 0
    assert not learned["model.embed_tokens.weight"].any()


def test_the_optimiser_holds_the_adapter_alone(base):
    from hgpo_gym.trainers.update.optimizer import make_optimizer

    policy = with_adapter(base)
    held = [value for group in make_optimizer(policy.model, settings()).param_groups for value in group["params"]]
    assert sum(value.numel() for value in held) < 0.2 * sum(value.numel() for value in policy.model.parameters())
    assert {id(value) for value in held} == {
        id(value) for name, value in policy.model.named_parameters() if "lora_" in name
    }


def test_gradient_checkpointing_of_an_adapter_gives_the_same_gradient(base):
    policy = with_adapter(base)
    records = responses(policy)
    plain, _ = updated(policy, records, ADVANTAGES, update_epochs=1)
    frugal, _ = updated(policy, records, ADVANTAGES, update_epochs=1, gradient_checkpointing=True, precision="float32")
    for name, value in weights(plain).items():
        torch.testing.assert_close(value, weights(frugal)[name])


def test_the_adapters_first_weights_depend_on_the_seed_alone(base):
    torch.manual_seed(1)
    one = weights(with_adapter(base))
    torch.manual_seed(2)
    two = weights(with_adapter(base))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_four_bits_under_an_adapter_train_and_merge_to_the_same_outputs(base, tmp_path):
    pytest.importorskip("bitsandbytes")
    policy = with_adapter(base, quantization="nf4")
    plain, tokenizer = load_model(str(base), device="cpu")
    in_four_bits = "base_model.model.model.layers.0.mlp.up_proj.base_layer.weight"
    assert weights(policy)[in_four_bits].dtype == torch.uint8
    records = responses(LanguageModelPolicy(plain, tokenizer, constrain="admissible"))
    after, _ = updated(policy, records, ADVANTAGES)
    assert torch.equal(weights(policy)[in_four_bits], weights(after)[in_four_bits])
    after.save(tmp_path / "adapter")
    base_again, _ = load_model(str(base), device="cpu", quantization="nf4")
    unpack(base_again)
    merged = merge(load_adapters(base_again.dequantize(), {"default": tmp_path / "adapter"}))
    for name, value in plain_weights(after.model):
        torch.testing.assert_close(value, merged.get_parameter(name), atol=1e-6, rtol=1e-5)
    ids = torch.arange(40)[None]
    # In evaluation mode bitsandbytes multiplies in bfloat16 on a CPU.
    torch.testing.assert_close(merged(ids).logits, after.model.train()(ids).logits, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        assert (merged(ids).logits - plain(ids).logits).abs().max() > 0.01


RUN = [
    "env.sections=1", "env.max_episode_steps=8", "rollout.num_tasks=2", "rollout.group_size=4", "warmstart.episodes=20",
    "warmstart.epochs=1", "tiny.hidden_size=64", "tiny.heads=2", "evaluation.every=0", "evaluation.decoding_seeds=1",
    "checkpoint.every=1", "trainer.kl_coef=0.01", "trainer.mini_batch_size=16", "trainer.iterations=2",
    "trainer.learning_rate=0.01", "model.lora.rank=4",
]  # fmt: skip


train = partial(small_runs.train, base=RUN)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two iterations, stopped after one and resumed, and the whole one."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(folder / "cache"))
        train(folder / "whole")
        train(folder / "broken", "trainer.iterations=1")
        train(folder / "broken", "resume=must")
    return folder


def test_a_run_with_an_adapter_resumes_to_the_same_numbers_and_keeps_small_checkpoints(run):
    whole, broken = numbers(run / "whole"), numbers(run / "broken")
    assert whole[-1]["evaluation_success"] == broken[-1]["evaluation_success"]
    assert training_numbers(run / "whole") == training_numbers(run / "broken")
    model = Checkpoints(run / "whole" / "checkpoints", keep=1).newest() / "model"
    (base,) = (run / "cache" / "models").iterdir()
    assert not (model / "model.safetensors").exists()
    adapter, whole_model = model / "adapter_model.safetensors", base / "model.safetensors"
    assert adapter.stat().st_size < 0.3 * whole_model.stat().st_size


def test_the_reference_is_what_lies_under_the_adapter(run, tmp_path):
    """No second copy of the model is kept for the KL loss."""
    shutil.copytree(run / "whole", tmp_path / "run")
    with Run(small_runs.settings(tmp_path / "run", "resume=must", base=RUN), Progress()) as resumed:
        assert isinstance(resumed.learner.update.reference.policy, WithoutAdapter)


def test_export_merges_to_the_same_outputs(run, tmp_path, capsys):
    main(["export", str(run / "whole"), "--to", str(tmp_path / "plain")])
    assert "iteration_0002" in capsys.readouterr().out
    exported, tokenizer = load_model(str(tmp_path / "plain"), device="cpu")
    settings = RunSettings.parse(read_config(run / "whole"))
    trained = settings.model.load(settings, run / "whole" / "checkpoints" / "iteration_0002" / "model")
    ids = torch.from_numpy(trained.encode_prompts(["You are in a hall. Doors: red, blue."])[0])[None]
    with torch.inference_mode():
        outputs = exported(ids).logits
        torch.testing.assert_close(outputs, trained.model.eval()(ids).logits, atol=1e-5, rtol=1e-5)
        with trained.model.disable_adapter():
            assert (outputs - trained.model(ids).logits).abs().max() > 1e-3
    assert tokenizer.get_vocab() == trained.tokenizer.get_vocab()


def test_a_young_adapter_over_bfloat16_is_exported_whole(base, tmp_path):
    """In bfloat16, which can be asked for, most of it is rounded away."""
    model, tokenizer = load_model(str(base), device="cpu", dtype="bfloat16")
    policy = LanguageModelPolicy(add_adapters(model, LORA, seed=0), tokenizer, constrain="none")
    before = dict(plain_weights(policy.model))
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 1e-4, generator=torch.Generator().manual_seed(0))
    saving = Saving(lambda folder: policy.save(folder / "model"), 0)
    Checkpoints(tmp_path / "run" / "checkpoints").save(1, saving, {})
    settings = load_run([f"model.path={base}", "model.dtype=bfloat16"]).resolved
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(dict(settings)))
    learned = dict(plain_weights(policy.model))
    for dtype in (None, "bfloat16"):
        export(tmp_path / "run", tmp_path / f"to {dtype}", dtype=dtype)
        exported, _ = load_model(str(tmp_path / f"to {dtype}"), device="cpu")
        off = change = 0.0
        for name, weight in exported.state_dict().items():
            off += float((weight - learned[name]).square().sum())
            change += float((learned[name] - before[name].float()).square().sum())
        assert change > 0
        assert off < 1e-6 * change if dtype is None else off > 0.1 * change


def test_export_takes_the_iteration_that_is_asked_for_and_overwrites_nothing(run, tmp_path):
    export(run / "whole", tmp_path / "start", iteration=0)
    start, _ = load_model(str(tmp_path / "start"), device="cpu")
    card = (tmp_path / "start" / "README.md").read_text()
    assert "| `env.id` | hgpo_gym/SignpostMaze-v0 |" in card
    success = read_summary(run / "whole")["success_before"]
    assert f"for 0 iterations; success {success:.1%} on `test`." in card
    base, _ = load_model(str(next((run / "cache" / "models").iterdir())), device="cpu")
    for name, value in base.state_dict().items():
        torch.testing.assert_close(start.state_dict()[name], value)
    with pytest.raises(FileExistsError, match="export to a new folder"):
        export(run / "whole", tmp_path / "start")
    with pytest.raises(FileNotFoundError, match=r"No checkpoint of iteration 7 .* kept are 0, 1, 2"):
        export(run / "whole", tmp_path / "other", iteration=7)
    with pytest.raises(FileNotFoundError, match=r"No run in .*: expected .*config\.yaml"):
        export(tmp_path, tmp_path / "other")


def test_a_damaged_checkpoint_is_not_exported_be_it_the_newest(run, tmp_path):
    shutil.copytree(run / "whole", tmp_path / "run")
    adapter = tmp_path / "run" / "checkpoints" / "iteration_0002" / "model" / "adapter_model.safetensors"
    with adapter.open("r+b") as file:
        file.seek(-100, 2)
        file.write(bytes(100))
    for iteration in (None, 2):
        with pytest.raises(
            InvalidCheckpointError, match=r"iteration_0002 is damaged: model/adapter_model\.safetensors"
        ):
            export(tmp_path / "run", tmp_path / "plain", iteration=iteration)
    assert not (tmp_path / "plain").exists()


def test_an_adapter_whose_base_is_gone_names_it(base, tmp_path):
    moved = tmp_path / "base"
    base_model = make_policy()
    base_model.save(moved)
    with_adapter(moved).save(tmp_path / "adapter")
    moved.rename(tmp_path / "elsewhere")
    settings = load_run(["model.lora.rank=4"])
    with pytest.raises(FileNotFoundError, match=r"belongs to the model in .*base, which is gone\. .*adapter_config"):
        settings.model.load(settings, tmp_path / "adapter")
    with pytest.raises(FileNotFoundError, match="holds an adapter alone"):
        load_model(str(tmp_path / "adapter"))


@pytest.mark.parametrize(
    ("missing", "extra", "overrides"),
    [("peft", "lora", []), ("bitsandbytes", "bitsandbytes", ["model.quantization=nf4"])],
)
def test_a_missing_package_is_named(missing, extra, overrides, base, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        ModuleNotFoundError, match=f"needs (the package )?{missing}: {re.escape(install_command(extra))}"
    ):
        make_learner(load_run([f"model.path={base}", "model.lora.rank=4", *overrides]), Progress()).start()
