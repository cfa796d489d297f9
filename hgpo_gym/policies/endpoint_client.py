"""A client of endpoints with OpenAI's protocol: it returns a response, or raises an error with a remedy."""

import json
import os
from typing import Any

import numpy as np

from hgpo_gym.extras import requires_extra

with requires_extra("openai", "policy=openai"):
    import openai

from hgpo_gym.memory.tools import write_call
from hgpo_gym.network import goes_by_proxy
from hgpo_gym.policies.base import MeteredResponse, Request, Sampling
from hgpo_gym.policies.endpoint_settings import EndpointSettings

UNREACHABLE, TIMED_OUT = 0, 408
"""Replace the status if there was no HTTP response."""
_REFUSED = "It refuses the request itself: openai.extra, token_limit and send_seed change what is sent."
REMEDIES = {
    400: _REFUSED,
    404: "Check openai.base_url, which ends in /v1 at most endpoints, and openai.model.",
    422: _REFUSED,
    429: "Lower openai.concurrency, or raise openai.retries.",
}
"""Remedies by status."""
_SHOWN = 300


class FailedError(Exception):
    """A request that failed for good. The message names the endpoint, its error, and a possible remedy."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class EndpointClient:
    """Sends requests, with retries as in openai's client: after a time-out, a lost connection or a status of 408, 409,
    429 or 500 and above. The delay grows, or follows the endpoint's Retry-After.

    Args:
        settings: the endpoint, and how it is asked. The key is read from the environment; without one, requests carry
            no valid key, which local servers allow.

    Attributes:
        retries: the number of repeated requests.
    """

    def __init__(self, settings: EndpointSettings):
        self.settings, self.retries = settings, 0
        self._key = os.environ.get(settings.key_variable, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=self._key or "none",
            max_retries=settings.retries,
            timeout=settings.timeout,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=goes_by_proxy(settings.base_url)),
        )

    async def ask(self, request: Request, sampling: Sampling) -> MeteredResponse:
        """Return the response to a request. Raises FailedError."""
        try:
            response = await self._send(request, sampling)
        except openai.APIError as error:
            # The client numbers its attempts in this header.
            self.retries += int(error.request.headers.get("x-stainless-retry-count", 0))
            raise self._explained(error) from error
        self.retries += response.retries_taken
        try:
            return self._read(json.loads(response.text))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            remedy = "Check openai.base_url and openai.chat."
            raise self._failed(response.status_code, "not a response", response.text, remedy) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, request: Request, sampling: Sampling) -> Any:
        settings = self.settings
        options: dict[str, Any] = {
            "model": settings.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "extra_body": {settings.token_limit: sampling.max_new_tokens, **settings.extra},
        }
        if settings.send_seed:
            # 31 bits: some endpoints reject larger integers.
            options["seed"] = int(np.random.SeedSequence(request.seed).generate_state(1)[0] >> 1)
        if settings.chat:
            options["messages"] = request.messages
            if request.tools is not None:
                options["tools"] = json.loads(request.tools.schemas)
            return await self._client.chat.completions.with_raw_response.create(**options)
        return await self._client.completions.with_raw_response.create(prompt=request.whole_text, **options)

    def _read(self, body: dict[str, Any]) -> MeteredResponse:
        choice, usage = body["choices"][0], body.get("usage") or {}
        text = choice["message"]["content"] if self.settings.chat else choice["text"]
        truncated = choice.get("finish_reason") == "length"
        if isinstance(text, list):  # some endpoints return a list of parts
            text = "".join(part["text"] for part in text if part.get("type") == "text")
        if self.settings.chat:
            # The endpoint has parsed the calls; as text they are read like those of any other policy.
            calls = [call["function"] for call in choice["message"].get("tool_calls") or []]
            text = (text or "") + "".join(write_call(call["name"], call["arguments"]) for call in calls)
        # JSON can hold lone surrogates, which cannot be written to a file.
        text = (text or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return MeteredResponse(text, usage.get("prompt_tokens"), usage.get("completion_tokens"), truncated)

    def _explained(self, error: openai.APIError) -> FailedError:
        if isinstance(error, openai.APITimeoutError):
            seconds = f"{self.settings.timeout:g} s"
            return self._failed(TIMED_OUT, "no response", seconds, "Raise openai.timeout, or lower openai.concurrency.")
        if not isinstance(error, openai.APIStatusError):
            remedy = "See whether the server is up, and openai.base_url right."
            return self._failed(UNREACHABLE, "no connection", error.__cause__, remedy)
        body = error.body.get("message", error.body) if isinstance(error.body, dict) else error.body
        return self._failed(error.status_code, f"status {error.status_code}", body, self._remedy(error.status_code))

    def _remedy(self, status: int) -> str:
        if status in (401, 403):
            where = f"the environment variable {self.settings.key_variable}"
            return f"Check the key in {where}." if self._key else f"Put a key in {where}: there is none."
        return REMEDIES.get(status, "The endpoint is in trouble: try later, or raise openai.retries.")

    def _failed(self, status: int, what: str, words: object, remedy: str) -> FailedError:
        """Return the error. Some endpoints repeat the key in their message, so that it is masked."""
        detail = str(words).replace(self._key, "***") if self._key else str(words)
        where = f"{self.settings.base_url} (model {self.settings.model})"
        return FailedError(f"{where}: {what}: {detail[:_SHOWN].rstrip('.')}. {remedy}", status)
