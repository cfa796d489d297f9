"""Requests to this machine where the environment names a proxy, and media types with parameters."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hgpo_gym.client.connection import Connection
from hgpo_gym.client.replies import Reply
from hgpo_gym.config.compose import load_config
from hgpo_gym.network import goes_by_proxy, media_type
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.endpoint import EndpointPolicy
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.policies.response_cache import ResponseCache
from hgpo_gym.policies.vllm_requests import WORKER
from hgpo_gym.policies.vllm_server import VllmServer
from tests.support.chat_server import completion
from tests.support.threads import at_work

MODEL_CONFIG = {
    "logprobs_mode": "processed_logprobs",
    "max_model_len": 512,
    "dtype": "torch.float32",
    "hf_overrides": {"tie_word_embeddings": False},
    "logits_processors": [],
}
RESPONSES = {
    "/server_info?config_format=json": (
        200,
        "application/json",
        {"vllm_config": {"model_config": MODEL_CONFIG, "parallel_config": {"worker_extension_cls": WORKER}}},
    ),
    "/v1/chat/completions": (200, "application/json", completion("go on")),
    "/good": (200, "Application/JSON; charset=utf-8", {"a": 1}),
    "/refused": (
        422,
        "application/problem+json;charset=UTF-8",
        {"type": "malformed", "detail": "No such thing.", "remedy": "Ask for another."},
    ),
}


class _Good(Reply):
    a: int


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, kind, content = RESPONSES[self.path]
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that the library calls

    def log_message(self, *_):
        pass


@pytest.fixture
def url(monkeypatch):
    """A server of this machine. A request through the proxy that the environment names has no response."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with at_work(ThreadingHTTPServer(("127.0.0.1", 0), _Handler)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_requests_to_this_machine_go_through_no_proxy(url, tmp_path):
    assert VllmServer(url, None, 1, timeout=5, constrained=False).max_model_len == 512
    options = {**load_config("eval", [])["openai"], "base_url": f"{url}/v1", "model": "tiny", "retries": 0}
    with EndpointPolicy(EndpointSettings(**options), ResponseCache(tmp_path / "kept.jsonl")) as policy:
        assert [response.text for response in policy.generate([Request("Hall.")], Sampling())] == ["go on"]
    assert Connection(url, None, 5).request(_Good, "GET", "/good") == _Good(a=1)
    for here in ("http://localhost:8000/v1", "http://LOCALHOST", "http://127.8.0.1:1", "https://[::1]:8000"):
        assert not goes_by_proxy(here), here
    for elsewhere in ("http://10.0.0.2:8000", "https://api.openai.com/v1", "http://localhost.example.org"):
        assert goes_by_proxy(elsewhere), elsewhere


def test_a_media_type_is_compared_without_its_parameters(url):
    connection = Connection(url, None, 5)
    assert connection.request(_Good, "GET", "/good") == _Good(a=1)
    with pytest.raises(ValueError, match=r"No such thing\. Ask for another\."):
        connection.request(_Good, "GET", "/refused")
    assert media_type(None) == media_type("") == ""
