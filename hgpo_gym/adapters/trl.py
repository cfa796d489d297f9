"""TRL: any registered environment as `environment_factory`, and the advantages of our estimators in its GRPOTrainer.

TRL plays an episode as one conversation and gives all its tokens one advantage. `StepAdvantageTrainer` gives each turn
of the model its own, from any estimator by name. Needs the extra `trl`; `GRPOTrainer`'s methods that it extends are
those of TRL 1.16.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hgpo_gym.adapters.single_episode import SingleEpisode, on_tokens, step_batch, turns_of_tokens
from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.policies.answer_ends import AnswerEnds, check_stops
from hgpo_gym.policies.control_tokens import ControlTokens

try:
    from accelerate.utils import gather_object
    from trl import GRPOTrainer
except ModuleNotFoundError as error:
    if error.name not in ("accelerate", "trl"):
        raise
    raise ModuleNotFoundError("hgpo_gym.adapters.trl needs TRL: pip install 'hgpo_gym[trl]'") from error


class ToolEnvironment:
    """What TRL takes for an environment: `environment_factory=partial(ToolEnvironment, "hgpo_gym/SignpostMaze-v0")`.

    TRL calls `reset` with the columns of the dataset's row, shows `act` to the model as a tool, and takes the reward
    from `get_reward`. The arguments are those of `SingleEpisode`.

    Attributes:
        acted: for each call of `act` that was understood, its turn.
    """

    def __init__(self, env_id: str, **options: Any):
        self.episode = SingleEpisode(env_id, **options)
        self.acted: list[int] = []

    def reset(self, task_id: str | None = None, seed: int = 0, **_row: Any) -> str:
        if task_id is None:
            raise ValueError(
                "The members of a group need the same task: give train_dataset a column `task_id` (and `seed`, where "
                "tasks start in different ways), see `task_rows`."
            )
        # The start is the group's; chance after it is the member's own, from the generator that GRPOConfig(seed=) sets.
        opening = self.episode.begin(task_id, seed=int(seed), chance=int(torch.randint(2**31, ())))
        self.episode.turn, self.acted = -1, []
        return opening

    def act(self, action: str) -> str:
        """Act in the world.

        Args:
            action: what to do, in words.

        Returns:
            What you see then, and what you can do.
        """
        seen = self.episode.act(action)
        self.acted.append(self.episode.turn)
        return seen

    def get_reward(self) -> float:
        return self.episode.total_reward()


def task_rows(task_ids: Sequence[str], *, instruction: str = "", seeds: Sequence[int] = (0,)) -> list[dict[str, Any]]:
    """Rows for `datasets.Dataset.from_list`: every task with every seed.

    `instruction` is a line before the task's own and the first observation, which `ToolEnvironment.reset` adds.
    """
    prompt = [{"role": "user", "content": f"{instruction}\n" if instruction else ""}]
    return [{"prompt": prompt, "task_id": task_id, "seed": seed} for seed in seeds for task_id in task_ids]


class StepAdvantageTrainer(GRPOTrainer):
    """`GRPOTrainer` whose loss has, on the tokens of each turn, the advantage of that step.

    Rewards are the environment's, step by step; `reward_funcs` would reach the log alone and are refused. TRL's table
    of completions still shows the advantages that TRL would have used. A turn whose calls TRL does not run, because
    `max_tool_calling_iterations` is reached, is no step, and its tokens have the advantage 0.

    Args:
        advantage: an estimator of `hgpo_gym.advantages`, by name.
        advantage_options: its options.
        invalid_action_penalty: comes off the return of a step whose action was not valid.
        stop: an answer ends where it comes to hold one of these texts, which it keeps. What TRL's generation by
            transformers writes after it is left out; vLLM writes nothing after it.
        stop_token_ids: tokens that end an answer, beside those that TRL knows, of tokenizer and generation config, and
            the one that the chat template puts after an answer.

    Raises:
        ValueError: an unknown estimator or option, reward functions, environments that are no `ToolEnvironment`, no
            calls at all; an empty text or no token to stop at.
    """

    eos_token_ids: list[int]  # of GRPOTrainer

    def __init__(
        self,
        *args: Any,
        advantage: str = "hgpo",
        advantage_options: Mapping[str, Any] | None = None,
        invalid_action_penalty: float = 0.0,
        stop: Sequence[str] = (),
        stop_token_ids: Sequence[int] = (),
        **kwargs: Any,
    ):
        self.advantage, self.advantage_options = advantage, dict(advantage_options or {})
        self.invalid_action_penalty = invalid_action_penalty
        ESTIMATORS.check_options(advantage, self.advantage_options)
        super().__init__(*args, **kwargs)
        self._end_answers_by(stop, stop_token_ids)
        pools = (self._environment_pool if self.environment_factories else {None: [None]}).values()
        if not all(isinstance(environment, ToolEnvironment) for pool in pools for environment in pool):
            raise ValueError(
                "environment_factory: use partial(ToolEnvironment, <id>), whose episodes know their steps."
            )
        if self.max_tool_calling_iterations < 1:
            raise ValueError(
                f"max_tool_calling_iterations={self.max_tool_calling_iterations}: TRL would run no call. Give it the "
                "step limit of the environment, or leave it out."
            )
        if len(self.reward_funcs) > 1:
            raise ValueError(
                f"reward_funcs={self.reward_func_names[:-1]}: leave them out, the environment rewards the steps."
            )

    def _end_answers_by(self, stop: Sequence[str], stop_token_ids: Sequence[int]) -> None:
        """Let answers end as those of `LanguageModelPolicy` do."""
        check_stops(stop, stop_token_ids, len(self._tokenizer))
        end_of_turn = ControlTokens(self._tokenizer, self.chat_template_kwargs).end_of_turn
        ends = {*self.eos_token_ids, *stop_token_ids, *([] if end_of_turn is None else [end_of_turn])}
        self.eos_token_ids = sorted(ends)
        self._ends = AnswerEnds(frozenset(ends), tuple(stop), self._decode)
        if self.use_vllm:
            own = self.vllm_generation.generation_kwargs
            own["stop_token_ids"] = sorted(ends.union(own.get("stop_token_ids") or ()))
            own["stop"] = [*(own.get("stop") or ()), *stop]
        else:
            self.generation_kwargs["eos_token_id"] = self.generation_config.eos_token_id = self.eos_token_ids

    def _decode(self, token_ids: list[int]) -> str:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(token_ids, **options))

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        for environment in self.environments:
            environment.episode.turn += 1
        completions, logprobs = super()._generate_single_turn(*args, **kwargs)
        lengths = [self._ends.length(ids) for ids in completions]
        cut = [ids[:length] for ids, length in zip(completions, lengths, strict=True)]
        return cut, logprobs and [one[:length] for one, length in zip(logprobs, lengths, strict=True)]

    def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
        results = super()._tool_call_loop(*args, **kwargs)
        limit, self._token_turns = self.max_tool_calling_iterations, []
        for environment, mask, talk in zip(self.environments, *results[:2], strict=True):
            turns = turns_of_tokens(np.array(mask))
            calls = [len(message.get("tool_calls") or ()) for message in talk if message["role"] == "assistant"]
            if any(calls[limit:]):  # which were not run
                turns[turns >= limit] = -1
            for turn, called in enumerate(calls):
                if called > environment.acted.count(turn):  # TRL tells the model alone what it could not run
                    environment.episode.misread(turn)
            self._token_turns.append(turns)
        return results

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        advantages = np.zeros(output["completion_ids"].shape)
        for row, (values, turns) in enumerate(zip(self._step_advantages(), self._token_turns, strict=True)):
            advantages[row, : len(turns)] = on_tokens(values, turns)
        output["advantages"] = torch.as_tensor(advantages, dtype=torch.float32, device=output["completion_ids"].device)
        return output

    def _step_advantages(self) -> list[np.ndarray]:
        """The advantages of the steps of each episode of this process; the groups are those of all processes."""
        own = [
            environment.episode.steps(int(turns.max(initial=-1)) + 1)
            for environment, turns in zip(self.environments, self._token_turns, strict=True)
        ]
        episodes = gather_object(own)
        members = self.num_generations if self.model.training else self.num_generations_eval
        batch = step_batch(
            [number // members for number in range(len(episodes))],
            episodes,
            invalid_action_penalty=self.invalid_action_penalty,
        )
        values = estimate(self.advantage, batch, **self.advantage_options)
        by_episode = np.split(values, np.cumsum([len(steps) for steps in episodes])[:-1])
        first = self.accelerator.process_index * len(own)
        return by_episode[first : first + len(own)]
