"""A model behind any endpoint that speaks OpenAI's protocol, as a policy to evaluate."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np

try:
    import openai
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'policy=openai needs the package {error.name} ({error}): pip install "hgpo_gym[openai]"', name=error.name
    ) from error

from hgpo_gym.trainers.policies.base import NoAnswerError, Request, Response, Sampling
from hgpo_gym.trainers.policies.kept_answers import Answer, KeptAnswers
from hgpo_gym.trainers.settings import EndpointSettings

UNREACHABLE, TIMED_OUT = 0, 408
"""Stand for the status where there was no response."""
ALWAYS_STOP = (UNREACHABLE, 401, 403, 404)
"""No later request would fare better."""
_REFUSED = "It refuses the request itself: openai.extra, token_limit and send_seed change what is sent."
REMEDIES = {
    400: _REFUSED,
    404: "Check openai.base_url, which ends in /v1 at most endpoints, and openai.model.",
    422: _REFUSED,
    429: "Lower openai.concurrency, or raise openai.retries.",
}
"""What may help, by status."""
_SHOWN = 300


class _FailedError(Exception):
    """A request that failed for good."""

    def __init__(self, status: int, said: str, remedy: str):
        super().__init__(said)
        self.status, self.said, self.remedy = status, said, remedy


@dataclass
class Counts:
    """What answers took.

    Attributes:
        requests: answers that were given, earlier ones that were recalled among them.
        recalled: of these, answers kept from before.
        retries: how often a request was tried again.
        failures: requests that failed for good.
        input_tokens, output_tokens: of all answers.
        unmetered: answers whose tokens the endpoint did not tell.
    """

    requests: int = 0
    recalled: int = 0
    retries: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unmetered: int = 0

    def add(self, answer: Answer) -> None:
        self.requests += 1
        if answer.input_tokens is None or answer.output_tokens is None:
            self.unmetered += 1
        else:
            self.input_tokens += answer.input_tokens
            self.output_tokens += answer.output_tokens


class EndpointPolicy:
    """Asks an endpoint, several requests at a time; a `MeteredPolicy`.

    Args:
        settings: the endpoint, and how it is asked. The key is read from the environment; without one the endpoint is
            asked without, which servers on one's own machine allow.
        kept: where answers are kept while it is at work.
    """

    def __init__(self, settings: EndpointSettings, kept: KeptAnswers):
        self.settings = settings
        self._kept = kept
        self._counts = Counts()
        self._broken: _FailedError | None = None
        self._key = os.environ.get(settings.key_variable, "")
        self._client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=self._key or "none",
            max_retries=settings.retries,
            timeout=settings.timeout,
        )
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._runner.run(self._client.close())
        self._runner.close()
        if kind is None:
            self._kept.forget()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """One response a request, in order.

        Raises:
            NoAnswerError: a request failed for good. Those under way have been waited for, and their answers are kept.
        """
        return self._runner.run(self._answer(requests, sampling))

    def usage(self) -> dict[str, Any]:
        """The counts, and `cost` in the currency of the prices: None without prices, or where tokens are not known."""
        return {**asdict(self._counts), "cost": self._cost()}

    def describe_usage(self) -> str:
        counts, cost = self._counts, self._cost()
        words = [
            f"{counts.requests:,} answers ({counts.recalled:,} kept from before)",
            f"{counts.retries:,} retries, {counts.failures:,} failures",
            f"{counts.input_tokens:,} tokens in, {counts.output_tokens:,} out",
        ]
        if counts.unmetered:
            words.append(f"tokens of {counts.unmetered:,} answers unknown")
        if cost is not None:
            words.append(f"cost {cost:.4f}")
        return f"{self.settings.model}: {'; '.join(words)}."

    def _cost(self) -> float | None:
        prices = self.settings.price_input, self.settings.price_output
        if prices[0] is None or prices[1] is None or self._counts.unmetered:
            return None
        return (prices[0] * self._counts.input_tokens + prices[1] * self._counts.output_tokens) / 1e6

    async def _answer(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        slots = asyncio.Semaphore(self.settings.concurrency)
        texts = await asyncio.gather(*(self._text(request, sampling, slots) for request in requests))
        if self._broken is not None:
            kept = f" {len(self._kept):,} answers are kept: the same command goes on from there." if self._kept else ""
            raise NoAnswerError(self._explain(self._broken) + kept)
        return [Response(text) for text in texts]

    async def _text(self, request: Request, sampling: Sampling, slots: asyncio.Semaphore) -> str:
        """The text of the answer, kept or new; empty where there is none."""
        answer = self._kept.recall(request, sampling)
        if answer is not None:
            self._counts.recalled += 1
        else:
            async with slots:
                if self._broken is not None:
                    return ""
                try:
                    answer = await self._ask(request, sampling)
                except _FailedError as failed:
                    self._counts.failures += 1
                    if self.settings.on_failure == "stop" or failed.status in ALWAYS_STOP:
                        self._broken = self._broken or failed
                    return ""
            self._kept.keep(request, sampling, answer)
        self._counts.add(answer)
        return answer.text

    async def _ask(self, request: Request, sampling: Sampling) -> Answer:
        try:
            response = await self._send(request, sampling)
        except openai.APIError as error:
            # The client numbers its attempts in this header.
            self._counts.retries += int(error.request.headers.get("x-stainless-retry-count", 0))
            raise self._failed(error) from error
        self._counts.retries += response.retries_taken
        try:
            return self._read(json.loads(response.text))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            said = f"not an answer: {response.text[:_SHOWN]!r}"
            raise _FailedError(response.status_code, said, "Check openai.base_url and openai.chat.") from error

    async def _send(self, request: Request, sampling: Sampling) -> Any:
        settings = self.settings
        options: dict[str, Any] = {
            "model": settings.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "extra_body": {settings.token_limit: sampling.max_new_tokens, **settings.extra},
        }
        if settings.send_seed:
            # 31 bits: some endpoints take no larger integer.
            options["seed"] = int(np.random.SeedSequence(request.seed).generate_state(1)[0] >> 1)
        if settings.chat:
            options["messages"] = [{"role": "user", "content": request.prompt}]
            return await self._client.chat.completions.with_raw_response.create(**options)
        return await self._client.completions.with_raw_response.create(prompt=request.prompt, **options)

    def _read(self, body: dict[str, Any]) -> Answer:
        choice, usage = body["choices"][0], body.get("usage") or {}
        text = choice["message"]["content"] if self.settings.chat else choice["text"]
        return Answer(text or "", usage.get("prompt_tokens"), usage.get("completion_tokens"))

    def _failed(self, error: openai.APIError) -> _FailedError:
        if isinstance(error, openai.APITimeoutError):
            said = f"no answer within {self.settings.timeout:g} s"
            return _FailedError(TIMED_OUT, said, "Raise openai.timeout, or lower openai.concurrency.")
        if not isinstance(error, openai.APIStatusError):
            remedy = "See whether the server is up, and openai.base_url right."
            return _FailedError(UNREACHABLE, f"no connection: {error.__cause__}", remedy)
        body = error.body.get("message", error.body) if isinstance(error.body, dict) else error.body
        said = f"status {error.status_code}, {str(body)[:_SHOWN]}"
        return _FailedError(error.status_code, said, self._remedy(error.status_code))

    def _remedy(self, status: int) -> str:
        if status in (401, 403):
            where = f"the environment variable {self.settings.key_variable}"
            return f"Check the key in {where}." if self._key else f"Put a key in {where}: there is none."
        return REMEDIES.get(status, "The endpoint is in trouble: try later, or raise openai.retries.")

    def _explain(self, failed: _FailedError) -> str:
        said = f"{self.settings.base_url} (model {self.settings.model}): {failed.said.rstrip('.')}. {failed.remedy}"
        return said.replace(self._key, "***") if self._key else said
