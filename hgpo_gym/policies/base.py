"""The interface of policies: requests, sampling settings, responses, and their likelihood."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hgpo_gym.memory.tools import Tools

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class StepContext:
    """A step of an episode in parts, with all steps before it: for policies that read no prompt.

    Attributes:
        task: the instruction.
        observation: the present observation.
        actions: the admissible actions; empty if actions are open-ended.
        descriptions: the meaning of each action, see `info["action_descriptions"]`; or empty.
        before: the step before, None at the first.
        action: the action of the step before.
    """

    task: str
    observation: str
    actions: tuple[str, ...]
    descriptions: tuple[str, ...] = ()
    before: "StepContext | None" = None
    action: str = ""


class EarlierTurn(NamedTuple):
    """An earlier turn of a conversation.

    Attributes:
        prompt: the user's message.
        response: the answer to it.
        tokens: of the response, with the whole conversation before it as the prompt; None if they are not known.
        opening: the message with which the conversation would begin here: the prompt, with the task.
    """

    prompt: str
    response: str
    tokens: "TokenRecord | None"
    opening: str


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to answer.

    Attributes:
        prompt: the text.
        allowed_responses: the admissible responses, in the form the prompt asks for; empty if actions are open-ended.
        expert_response: the response of the environment's expert, if the environment was made with one.
        seed: the seed of the response's randomness, independent of the batch.
        task: the instruction.
        context_keys: the context as numbers, see `hgpo_gym.memory.keys`; for policies that read no text.
        role: the role in a team; empty without one.
        choices: the meaning of each of `allowed_responses`: admissible actions, or the messages that a role can choose.
        step_context: the step in parts, independent of what the prompt shows.
        team_messages: the messages of the turn so far, in a team.
        literal_text: the text of the prompt template itself. Control tokens in it, such as tags of the response's
            form, are control tokens in prompt and response; all others are plain text there.
        tools: the functions that the response may call; None where it names the action itself.
        shorter: the prompt without its oldest past step, without its two oldest, and so on, for a policy that cannot
            read all of it. Each is made at its first use.
        system: the system's message, before all others; empty without one.
        earlier: the conversation before the prompt, oldest turn first; empty if the prompt stands alone.
        opening: the prompt with which the conversation would begin here, see `EarlierTurn`.
    """

    prompt: str
    allowed_responses: tuple[str, ...] = ()
    expert_response: str | None = None
    seed: tuple[int, ...] = (0,)
    task: str = ""
    context_keys: tuple[int, ...] = ()
    role: str = ""
    choices: tuple[str, ...] = ()
    step_context: StepContext | None = None
    team_messages: tuple[str, ...] = ()
    literal_text: str = ""
    tools: Tools | None = None
    shorter: Sequence[str] = field(default=(), compare=False, repr=False)
    system: str = ""
    earlier: tuple[EarlierTurn, ...] = field(default=(), compare=False, repr=False)
    opening: str = field(default="", compare=False, repr=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the conversation as messages of a chat, the prompt last."""
        texts = [text for turn in self.earlier for text in (turn.prompt, turn.response)]
        roles = ("user", "assistant") * (len(self.earlier) + 1)
        system = [{"role": "system", "content": self.system}] if self.system else []
        return system + [
            {"role": role, "content": text} for role, text in zip(roles, (*texts, self.prompt), strict=False)
        ]

    @property
    def whole_text(self) -> str:
        """Return the tools and all messages as one text."""
        texts = [message["content"] for message in self.messages]
        return "".join([self.tools.instructions, *texts] if self.tools else texts)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The settings by which tokens are drawn.

    Attributes:
        temperature: divides the logits; 0 chooses the likeliest token.
        top_p: draws from the likeliest tokens that together have this probability; 1 is all.
        max_new_tokens: the most tokens of a response.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 512

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature={self.temperature}: choose 0 (greedy) or more.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: choose a probability in (0, 1].")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens={self.max_new_tokens}: a response needs at least one token.")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The tokens of one prompt and its response, as they were generated.

    Attributes:
        prompt_ids: int64[P].
        token_ids: int64[R], with the end-of-text token, if there was one.
        logprobs: float32[R], of the drawn tokens, under the temperature and the constraint they were drawn with.
        allowed: the admissible token ids at each of the R positions, None where all are; None if all are everywhere.
        adapter: the adapter that drew it, if each role of a team has one; else None.
        prompt_cut: the prompt had to be cut to fit.
        prompt_cached: the number of first prompt tokens that the engine had read before, in an earlier turn.
    """

    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logprobs: np.ndarray
    allowed: tuple[np.ndarray | None, ...] | None = None
    adapter: str | None = None
    prompt_cut: bool = False
    prompt_cached: int = 0

    @property
    def choices(self) -> np.ndarray:
        """int64[C]: the positions at which more than one token was allowed. All others have probability 1."""
        if self.allowed is None:
            return np.arange(len(self.token_ids))
        chosen = [index for index, ids in enumerate(self.allowed) if ids is None or len(ids) > 1]
        return np.array(chosen, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Response:
    """A response; `tokens` if the policy can be trained on it.

    Attributes:
        truncated: it was truncated at the longest length.
        opened: the thought with which the chat template began it: `<think>`, or `<think></think>`.
    """

    text: str
    tokens: TokenRecord | None = None
    truncated: bool = False
    opened: str = ""


class Policy(Protocol):
    """Any object that answers prompts."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order."""


class MeteredResponse(NamedTuple):
    """The response of a metered policy, and the tokens that it charges for, None if it does not report them.
    `truncated`: see `Response`."""

    text: str
    input_tokens: int | None
    output_tokens: int | None
    truncated: bool = False


class CannotRespondError(ValueError):
    """This kind of policy cannot answer the request, or its weights give no probabilities."""


def check_has_choices(
    choices: Sequence[str], role: str, kind: str, remedy: str = "set model=tiny or model=pretrained"
) -> None:
    """Raise CannotRespondError if a policy that only chooses has no choices.

    The remedy is for an environment that lists no admissible actions.
    """
    if choices:
        return
    if role:
        raise CannotRespondError(
            f"A {kind} chooses among responses, and the role {role!r} lists none: give it some, as team.plans or "
            "team.hints, or set model=tiny engine.constrain=none."
        )
    raise CannotRespondError(f"A {kind} chooses among admissible actions, and this environment names none: {remedy}.")


class NoResponseError(RuntimeError):
    """A policy got no response, and cannot continue without one."""


@runtime_checkable
class MeteredPolicy(Policy, AbstractContextManager[Any], Protocol):
    """A policy whose responses cost money. It keeps them until `forget`, so that an interrupted run can continue."""

    def forget(self) -> None:
        """Delete the kept responses: the work that they were for is done."""

    def usage(self) -> dict[str, Any]:
        """Return the resources that the responses used, as JSON."""

    def describe_usage(self) -> str:
        """Return the usage as a line for a person."""


class Stream(Protocol):
    """Prompts that a policy is answering. More can be added while others are still unanswered.

    Attributes:
        in_step: it answers all prompts at once, so that the caller should add all of them first.
    """

    in_step: bool

    @property
    def pending(self) -> int:
        """The number of prompts without a response."""

    def ask(self, requests: Mapping[int, Request]) -> None:
        """Add prompts, each under a number that the caller chooses."""

    def work(self) -> dict[int, Response]:
        """Continue to write. Returns the responses that are now complete, perhaps none. A response depends on its
        request alone, not on its time or on other requests."""


@runtime_checkable
class StreamingPolicy(Protocol):
    """A policy whose responses come one by one."""

    def stream(self, sampling: Sampling) -> Stream:
        """Return a new stream. Unanswered prompts of an earlier stream are dropped."""


class Likelihood(NamedTuple):
    """The likelihood of tokens: one entry for each token with a choice (`TokenRecord.choices`), records one after
    another.

    Attributes:
        logprobs: float32[T], differentiable.
        entropy: float32[T], nats, of the distribution that the token was drawn from; differentiable.
        sequence_index: int64[T], which record the token belongs to.
    """

    logprobs: "torch.Tensor"
    entropy: "torch.Tensor"
    sequence_index: "torch.Tensor"


class Distributions(NamedTuple):
    """The distributions that tokens with a choice were drawn from.

    Attributes:
        logits: float32[T, A], divided by the temperature; -inf for tokens that were not allowed.
        drawn: int64[T], the column of the drawn token.
        states: float[T, D], the output layer's input: logits are linear in states / temperature.
        temperature: of the sampling.
    """

    logits: "torch.Tensor"
    drawn: "torch.Tensor"
    states: "torch.Tensor"
    temperature: float


TokenReading = Callable[[Distributions], "torch.Tensor"]
"""Computes float32[T], a number for each token. Its name is the name of the column."""


def column_of(reader: "str | TokenReading") -> str:
    """Return the name of the column that `reader` names or computes."""
    return reader if isinstance(reader, str) else reader.__name__


class LikelihoodModel(Protocol):
    """A model that computes the likelihood of responses."""

    @property
    def model(self) -> "torch.nn.Module":
        """The module that the optimiser changes. In evaluation mode, requests leave no trace in it."""

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """Return the likelihood of responses that were drawn at this temperature, all with the same adapter. Each
        record must have a choice."""


@runtime_checkable
class DistributionReader(Protocol):
    """A model that lets an objective compute its own numbers from the distributions of the tokens."""

    def read_distributions(
        self,
        records: Sequence[TokenRecord],
        reader: "Callable[[Distributions], tuple[torch.Tensor, ...]]",
        *,
        temperature: float,
    ) -> "Sequence[torch.Tensor]":
        """Return the results of `reader`, float32[T] each, for the records that `likelihood` would get. `reader` may be
        called for some of the tokens at a time."""


class TrainablePolicy(Policy, LikelihoodModel, Protocol):
    """A policy that can be trained: the interface that the trainer, the update and the checkpoints use."""

    def updated(self) -> None:
        """Announce that the weights have changed, so that copies for generation are renewed. Call it in all processes
        before training and after each change."""

    def save(self, folder: Path, weights: "dict[str, torch.Tensor] | None" = None) -> None:
        """Write all that is needed to load the policy into the new folder `folder`. `weights` replace the model's, if
        it holds only a part of them."""


@runtime_checkable
class CopyingPolicy(TrainablePolicy, Protocol):
    """A policy that generates with a copy of the weights. It needs all weights only while it copies them."""

    def rollout_weights(self, gathered: Callable[[], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
        """Generate with the weights as they were on entering the block. Outside the block the engine may be asleep.

        Args:
            gathered: returns a context in which the model has all of its weights.
        """
