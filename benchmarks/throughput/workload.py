"""The workload of all engines: the prompts of recorded episodes, and a tiny model that responds at any length."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import ExpertPolicy, Request, Response, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import likelihood
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.trainers.settings import WarmStartSettings
from hgpo_gym.trainers.warm_start.imitation import imitate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TASKS, GROUP_SIZE, EPISODE_STEPS = 8, 8, 30
RANDOM_ACTIONS = 0.6
"""So that six in ten episodes are won, as in the middle of training."""
MEAN_WORDS = 25


class Step(NamedTuple):
    """One step of all environments.

    Attributes:
        requests: one a sub-environment; of an episode that has ended, the last.
        running: bool, whose episode goes on.
    """

    requests: list[Request]
    running: np.ndarray

    @property
    def asked(self) -> list[Request]:
        """The requests of the environments that still run."""
        return [request for request, runs in zip(self.requests, self.running, strict=True) if runs]

    def first(self, count: int | None) -> "Step":
        """Return the step of the first `count` environments; None is all."""
        return Step(self.requests[:count], self.running[:count])


class _Recorder:
    """Answers as the expert does, and keeps what it was asked, by sub-environment."""

    def __init__(self) -> None:
        self.calls: list[dict[int, Request]] = []
        self._expert = ExpertPolicy(RANDOM_ACTIONS)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        # The seed ends in (group, member, step).
        self.calls.append({request.seed[-3] * GROUP_SIZE + request.seed[-2]: request for request in requests})
        return self._expert.generate(requests, sampling)


def record_steps(tasks: int = TASKS, seed: int = 0) -> list[Step]:
    """The prompts of episodes of so many tasks in ALFWorld's generated games, which need no download."""
    vector = TextVectorEnv(
        "hgpo_gym/ALFWorld-v0",
        tasks,
        GROUP_SIZE,
        split="generated_test",
        max_episode_steps=EPISODE_STEPS,
        expert=True,
    )
    env, recorder = ContextWrapper(vector, "bare", window=2, history_length=2), _Recorder()
    task_ids = [vector.task_ids[index] for index in np.random.default_rng(seed).permutation(len(vector.task_ids))]
    seeds = [(seed, group) for group in range(tasks)]
    collect(env, recorder, Sampling(), task_ids=task_ids[:tasks], seeds=seeds)
    env.close()
    last: dict[int, Request] = {}
    steps = []
    for call in recorder.calls:
        last |= call
        rows = range(tasks * GROUP_SIZE)
        steps.append(Step([last[row] for row in rows], np.array([row in call for row in rows])))
    return steps


def make_model(steps: Sequence[Step], seed: int = 0) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model of 0.3 million parameters that has learnt to end its responses after any number of words."""
    requests = [request for step in steps for request in step.asked]
    tokenizer = train_tokenizer([request.prompt for request in requests], 1024)
    model = make_tiny_model(tokenizer, hidden_size=96, layers=2, heads=3, seed=seed, device="cpu")
    policy, generator = LanguageModelPolicy(model, tokenizer, constrain="none"), np.random.default_rng(seed)
    responses = []
    for request in requests:
        words = generator.choice(request.prompt.split(), generator.geometric(1 / MEAN_WORDS))
        responses.append(" ".join(words) + " " + generator.choice(request.allowed_responses))
    records = policy.records(requests, responses)
    settings = WarmStartSettings(
        source="random",
        new_model="none",
        episodes=len(records),
        random_actions=0.0,
        epochs=1,
        learning_rate=2e-3,
        batch_size=32,
        loss="tokens",
    )
    imitate(
        model,
        records,
        settings,
        likelihood=partial(likelihood, model),
        max_batch_tokens=2048,
        precision="float32",
        seed=seed,
    )
    return model, tokenizer
