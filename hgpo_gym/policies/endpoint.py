"""A model behind an endpoint with OpenAI's protocol, as a policy to evaluate."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from hgpo_gym.policies.base import MeteredResponse, NoResponseError, Request, Response, Sampling
from hgpo_gym.policies.endpoint_client import UNREACHABLE, EndpointClient, FailedError
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.policies.response_cache import ResponseCache
from hgpo_gym.policies.streams import respond

ALWAYS_STOP = (UNREACHABLE, 401, 403, 404)
"""The status of failures that every later request would meet too."""


@dataclass
class Counts:
    """The resources that responses used.

    Attributes:
        requests: all responses, including those kept from before.
        recalled: the responses kept from before.
        failures: requests that failed for good.
        input_tokens, output_tokens: of all responses.
        unmetered: responses without token counts from the endpoint.
    """

    requests: int = 0
    recalled: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unmetered: int = 0

    def add(self, response: MeteredResponse) -> None:
        self.requests += 1
        if response.input_tokens is None or response.output_tokens is None:
            self.unmetered += 1
        else:
            self.input_tokens += response.input_tokens
            self.output_tokens += response.output_tokens


class EndpointPolicy:
    """Sends requests to an endpoint, several at a time; a `MeteredPolicy`.

    Args:
        settings: the endpoint, and how it is asked.
        saved_responses: a file of responses, for an evaluation that is interrupted.
    """

    def __init__(self, settings: EndpointSettings, saved_responses: ResponseCache):
        self.settings = settings
        self._saved = saved_responses
        self._client = EndpointClient(settings)
        self._counts = Counts()
        self._broken: FailedError | None = None
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._runner.run(self._close())
        self._runner.close()

    def forget(self) -> None:
        self._saved.forget()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order. Raises NoResponseError as `EndpointStream.work` does."""
        return respond(self.stream(sampling), requests)

    def stream(self, sampling: Sampling) -> "EndpointStream":
        """Return a stream: requests can be added while others are in progress."""
        return EndpointStream(self, sampling)

    def usage(self) -> dict[str, Any]:
        """Return the counts, and `cost` in the currency of the prices: None without prices, or if token counts are
        missing."""
        return {**asdict(self._counts), "retries": self._client.retries, "cost": self._cost()}

    def describe_usage(self) -> str:
        counts, cost = self._counts, self._cost()
        words = [
            f"{counts.requests:,} responses ({counts.recalled:,} kept from before)",
            f"{self._client.retries:,} retries, {counts.failures:,} failures",
            f"{counts.input_tokens:,} tokens in, {counts.output_tokens:,} out",
        ]
        if counts.unmetered:
            words.append(f"tokens of {counts.unmetered:,} responses unknown")
        if cost is not None:
            words.append(f"cost {cost:.4f}")
        return f"{self.settings.model}: {'; '.join(words)}."

    def _cost(self) -> float | None:
        prices = self.settings.price_input, self.settings.price_output
        if prices[0] is None or prices[1] is None or self._counts.unmetered:
            return None
        return (prices[0] * self._counts.input_tokens + prices[1] * self._counts.output_tokens) / 1e6

    def start(self, request: Request, sampling: Sampling) -> "asyncio.Task[Response]":
        """Create the task of a request. It does not run before `wait`."""
        return self._runner.get_loop().create_task(self._response(request, sampling))

    def wait(self, tasks: "Sequence[asyncio.Task[Response]]") -> "set[asyncio.Task[Response]]":
        """Return the finished tasks, as soon as there is one. Raises NoResponseError as `EndpointStream.work` does."""
        done, pending = self._runner.run(_wait(tasks, asyncio.FIRST_COMPLETED))
        if self._broken is None:
            return done
        # The requests in progress are paid for: complete them and keep their responses before raising.
        if pending:
            self._runner.run(_wait(pending, asyncio.ALL_COMPLETED))
        saved = f"{len(self._saved):,} responses are kept"
        note = f" {saved}: the same command continues from there." if self._saved else ""
        raise NoResponseError(f"{self._broken}{note}")

    async def _response(self, request: Request, sampling: Sampling) -> Response:
        """Return the response, kept or new; empty after a failure."""
        response = self._saved.recall(request, sampling)
        if response is not None:
            self._counts.recalled += 1
        else:
            # The check follows the wait for a slot, since another request may have failed meanwhile.
            async with self._slots:
                if self._broken is not None:
                    return Response("")
                try:
                    response = await self._client.ask(request, sampling)
                except FailedError as failed:
                    self._counts.failures += 1
                    if self.settings.on_failure == "stop" or failed.status in ALWAYS_STOP:
                        self._broken = self._broken or failed
                    return Response("")
            self._saved.keep(request, sampling, response)
        self._counts.add(response)
        return Response(response.text, truncated=response.truncated)

    async def _close(self) -> None:
        # A task that waits for itself would never end.
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        # A cancelled task ends at its next await: until then the client stays open.
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._client.close()


class EndpointStream:
    """Requests to an endpoint, in progress at the same time, at most `openai.concurrency` of them.

    Attributes:
        in_step: False: requests may come one by one.
    """

    in_step = False

    def __init__(self, policy: EndpointPolicy, sampling: Sampling):
        self._policy, self._sampling = policy, sampling
        self._tasks: dict[asyncio.Task[Response], int] = {}

    @property
    def pending(self) -> int:
        """The number of requests without a response."""
        return len(self._tasks)

    def ask(self, requests: Mapping[int, Request]) -> None:
        """Add requests, each under a number that the caller chooses."""
        for number, request in requests.items():
            self._tasks[self._policy.start(request, self._sampling)] = number

    def work(self) -> dict[int, Response]:
        """Wait for responses, and return them by number.

        Raises:
            NoResponseError: a request failed for good. Requests in progress end first, and their responses are kept.
        """
        return {self._tasks.pop(task): task.result() for task in self._policy.wait(list(self._tasks))}


async def _wait(
    tasks: "Sequence[asyncio.Task[Response]] | set[asyncio.Task[Response]]", until: str
) -> "tuple[set[asyncio.Task[Response]], set[asyncio.Task[Response]]]":
    return await asyncio.wait(tasks, return_when=until)
