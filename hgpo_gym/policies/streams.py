"""Streams of responses: a policy's own, or batches in the form of a stream."""

from collections.abc import Mapping, Sequence

from hgpo_gym.policies.base import Policy, Request, Response, Sampling, Stream, StreamingPolicy


def open_stream(policy: Policy, sampling: Sampling) -> Stream:
    """Return the policy's own stream, or one that answers in batches."""
    return policy.stream(sampling) if isinstance(policy, StreamingPolicy) else Batches(policy, sampling)


def respond(stream: Stream, requests: Sequence[Request]) -> list[Response]:
    """Return one response for each request, in order."""
    stream.ask(dict(enumerate(requests)))
    responses: dict[int, Response] = {}
    while stream.pending:
        responses |= stream.work()
    return [responses[number] for number in range(len(requests))]


class Batches:
    """The stream of a policy without one: all prompts form one batch, in the order of their numbers."""

    in_step = True

    def __init__(self, policy: Policy, sampling: Sampling):
        self._policy, self._sampling = policy, sampling
        self._requests: dict[int, Request] = {}

    @property
    def pending(self) -> int:
        return len(self._requests)

    def ask(self, requests: Mapping[int, Request]) -> None:
        self._requests |= requests

    def work(self) -> dict[int, Response]:
        """Answer all prompts, see `Stream`."""
        requests, self._requests = self._requests, {}
        request_ids = sorted(requests)
        return dict(
            zip(
                request_ids,
                self._policy.generate([requests[number] for number in request_ids], self._sampling),
                strict=True,
            )
        )
