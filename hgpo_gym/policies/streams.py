"""Streams of answers: those of policies that have them, and batches in the form of a stream for all others."""

from collections.abc import Mapping

from hgpo_gym.policies.base import Policy, Request, Response, Sampling, Stream, StreamingPolicy


def open_stream(policy: Policy, sampling: Sampling) -> Stream:
    """The policy's own stream, or one that answers in batches."""
    return policy.stream(sampling) if isinstance(policy, StreamingPolicy) else Batches(policy, sampling)


class Batches:
    """The stream of a policy that answers batches: everything that it was asked is one batch, in the order of the
    numbers."""

    in_step = True

    def __init__(self, policy: Policy, sampling: Sampling):
        self._policy, self._sampling = policy, sampling
        self._asked: dict[int, Request] = {}

    @property
    def unanswered(self) -> int:
        return len(self._asked)

    def ask(self, requests: Mapping[int, Request]) -> None:
        """See `Stream`."""
        self._asked |= requests

    def work(self) -> dict[int, Response]:
        """See `Stream`; answers everything."""
        asked, self._asked = self._asked, {}
        numbers = sorted(asked)
        return dict(
            zip(numbers, self._policy.generate([asked[number] for number in numbers], self._sampling), strict=True)
        )
