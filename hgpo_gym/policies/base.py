"""A policy answers prompts. What it was asked, how it should answer, what it answered, and how likely that was."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class StepContext:
    """What is seen at a step of an episode, in parts, and all that came before: for policies that read no prompt.

    Attributes:
        task: the instruction.
        observation: what the environment says now.
        actions: its admissible actions; empty where they are open-ended.
        descriptions: what each of them stands for, see `info["action_descriptions"]`; or empty.
        before: the moment before, None at the first.
        action: the one that was taken then.
    """

    task: str
    observation: str
    actions: tuple[str, ...]
    descriptions: tuple[str, ...] = ()
    before: "StepContext | None" = None
    action: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to answer.

    Attributes:
        prompt: the text.
        answers: the answers that act admissibly, in the form the prompt asks for; empty where actions are open-ended.
        expert_answer: the answer of the environment's expert, where the environment was asked for one.
        seed: what the answer's randomness is drawn from, whatever other requests it is batched with.
        task: the instruction.
        context_keys: what the prompt is about as numbers, see `hgpo_gym.memory.keys`; for policies that read no text.
        role: who is asked, in a team; empty without one.
        choices: what the answers mean, one each: admissible actions, or what a role can say.
        step_context: what the prompt is about in parts, whatever of it the prompt shows.
        said: what was said in the turn so far, in a team.
        literal_text: what the prompt template says by itself. Control tokens that it names, such as tags of the
            answer's form, are control tokens in prompt and answers; all others are plain text there.
        shorter: the prompt without its oldest past step, without its two oldest, and so on, for a policy that cannot
            read all of it. They are made when they are asked for.
    """

    prompt: str
    answers: tuple[str, ...] = ()
    expert_answer: str | None = None
    seed: tuple[int, ...] = (0,)
    task: str = ""
    context_keys: tuple[int, ...] = ()
    role: str = ""
    choices: tuple[str, ...] = ()
    step_context: StepContext | None = None
    said: tuple[str, ...] = ()
    literal_text: str = ""
    shorter: Sequence[str] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: divides the logits; 0 takes the likeliest token.
        top_p: draw from the likeliest tokens that together have this probability; 1 is all.
        max_new_tokens: the longest answer.
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
            raise ValueError(f"max_new_tokens={self.max_new_tokens}: an answer needs at least one token.")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The tokens of one prompt and its answer, as they were generated.

    Attributes:
        prompt_ids: int64[P].
        token_ids: int64[R], end-of-text token included where there was one.
        logprobs: float32[R], of the drawn tokens, under the temperature and the constraint they were drawn with.
        allowed: for a constrained answer, the admissible token ids at each of the R positions; else None.
        adapter: the one that it was drawn with, where the roles of a team have adapters of their own; else None.
        prompt_cut: whether the prompt had to be cut to be read.
    """

    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logprobs: np.ndarray
    allowed: tuple[np.ndarray, ...] | None = None
    adapter: str | None = None
    prompt_cut: bool = False

    @property
    def choices(self) -> np.ndarray:
        """int64[C]: the positions at which more than one token was allowed. The others have probability 1."""
        if self.allowed is None:
            return np.arange(len(self.token_ids))
        return np.array([index for index, ids in enumerate(self.allowed) if len(ids) > 1], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; `tokens` where a policy gave it that can be trained.

    Attributes:
        cut_off: it ended at the longest length and not by itself.
        opened: what the policy's chat template had begun it with, a thought: `<think>`, or `<think></think>`.
    """

    text: str
    tokens: TokenRecord | None = None
    cut_off: bool = False
    opened: str = ""


class Policy(Protocol):
    """Anything that answers prompts."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """One response a request, in order."""


class Answer(NamedTuple):
    """What a metered policy was answered, and the tokens that it charges for; None where it does not say.
    `cut_off`: see `Response`."""

    text: str
    input_tokens: int | None
    output_tokens: int | None
    cut_off: bool = False


class CannotAnswerError(ValueError):
    """What is asked is not for this kind of policy, or its weights give no probabilities."""


def check_has_choices(
    choices: Sequence[str], role: str, kind: str, remedy: str = "set model=tiny or model=pretrained"
) -> None:
    """Raise CannotAnswerError where there is nothing to choose among, for a kind of policy that writes nothing; the
    remedy is for an environment that lists nothing."""
    if choices:
        return
    if role:
        raise CannotAnswerError(
            f"A {kind} chooses among answers, and the role {role!r} lists none: give it some, as team.plans or "
            "team.hints, or set model=tiny engine.constrain=none."
        )
    raise CannotAnswerError(f"A {kind} chooses among admissible actions, and this environment names none: {remedy}.")


class NoAnswerError(RuntimeError):
    """A policy got no answer, and cannot go on without."""


@runtime_checkable
class MeteredPolicy(Policy, AbstractContextManager[Any], Protocol):
    """A policy whose answers are paid for. It keeps them, to go on from, until `forget`."""

    def forget(self) -> None:
        """Let go of the answers: what they were asked for is done."""

    def usage(self) -> dict[str, Any]:
        """What the answers took, as JSON."""

    def describe_usage(self) -> str:
        """The same in a line for a person."""


class Stream(Protocol):
    """Prompts that a policy is answering: new ones can be asked while others are still being answered.

    Attributes:
        in_step: it answers all at once what it was asked, so that it should first be asked all that there is to ask.
    """

    in_step: bool

    @property
    def unanswered(self) -> int:
        """How many prompts it was asked and has not answered yet."""

    def ask(self, requests: Mapping[int, Request]) -> None:
        """Ask more prompts, each under a number of the asker's."""

    def work(self) -> dict[int, Response]:
        """Go on writing; returns the answers that are complete now, perhaps none. An answer depends on its request
        alone, not on when it is asked or what else is."""


@runtime_checkable
class StreamingPolicy(Protocol):
    """A policy whose answers come one by one."""

    def stream(self, sampling: Sampling) -> Stream:
        """A new stream; what an earlier one has left unanswered is forgotten."""


class Likelihood(NamedTuple):
    """One entry for each token that was free to differ (`TokenRecord.choices`), records one after the other.

    Attributes:
        logprobs: float32[T], differentiable.
        entropy: float32[T], nats, of the distribution that the token was drawn from; differentiable.
        sequence_index: int64[T], which record the token belongs to.
        norm_squared: float32[T], |x|^2 of what the logits are linear in, the last hidden state divided by the
            temperature; None where not asked.
        sum_squared: float32[T], the sum of p^2 over the tokens that it was drawn from; likewise.
        sum_cubed: float32[T], of p^3; likewise.
    """

    logprobs: "torch.Tensor"
    entropy: "torch.Tensor"
    sequence_index: "torch.Tensor"
    norm_squared: "torch.Tensor | None" = None
    sum_squared: "torch.Tensor | None" = None
    sum_cubed: "torch.Tensor | None" = None


class LikelihoodModel(Protocol):
    """A model that gives the likelihood of responses."""

    @property
    def model(self) -> "torch.nn.Module":
        """What the optimiser changes. In evaluation mode it keeps no trace of what it is asked."""

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float, sums: bool = False) -> Likelihood:
        """The likelihood of answers that were drawn at that temperature, all with the same adapter; each record must
        have a choice. `sums` asks for what else `Likelihood` can hold."""


class TrainablePolicy(Policy, LikelihoodModel, Protocol):
    """A policy that training can change: all that the trainer, the update and the checkpoints know of it."""

    def updated(self) -> None:
        """To be called, in all processes, before training and when the weights have changed: what generates with a copy
        of them needs the new ones."""

    def save(self, folder: Path, weights: "dict[str, torch.Tensor] | None" = None) -> None:
        """Write all that is needed to load it again into `folder`, which is made. `weights` replace those of the model,
        where it holds only a part of them."""


@runtime_checkable
class CopyingPolicy(TrainablePolicy, Protocol):
    """A policy that generates with a copy of the weights, and needs all of these only while it copies them."""

    def rollout_weights(self, gathered: Callable[[], AbstractContextManager[Any]]) -> AbstractContextManager[Any]:
        """Inside, it can answer by the weights as they were on entering; outside, what generates may be asleep.

        Args:
            gathered: inside of what it makes, the model has all of its weights.
        """
