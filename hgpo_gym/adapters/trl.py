"""TRL: any registered environment as `environment_factory`, and this package's advantages in its GRPOTrainer.

TRL plays an episode as one conversation, and all its tokens get one advantage. `StepAdvantageTrainer` gives each turn
of the model the advantage of any estimator by name. Needs the extra `trl`. It extends methods of `GRPOTrainer` as of
TRL 1.16.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hgpo_gym.adapters.single_episode import SingleEpisode, on_tokens, step_batch, turns_of_tokens
from hgpo_gym.advantages import ESTIMATORS, estimate
from hgpo_gym.extras import install_command
from hgpo_gym.policies.control_tokens import ControlTokens
from hgpo_gym.policies.response_ends import ResponseEnds, check_stops

try:
    from accelerate.utils import gather_object
    from trl import GRPOTrainer
except ModuleNotFoundError as error:
    if error.name not in ("accelerate", "trl"):
        raise
    raise ModuleNotFoundError(f"hgpo_gym.adapters.trl needs TRL: {install_command('trl')}") from error


class ToolEnvironment:
    """An environment for TRL: `environment_factory=partial(ToolEnvironment, "hgpo_gym/SignpostMaze-v0")`.

    TRL calls `reset` with the columns of the dataset's row, offers `act` to the model as a tool, and reads the reward
    from `get_reward`. The arguments are those of `SingleEpisode`.

    Attributes:
        acted: the turn of each call of `act` that was understood.
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
        # TRL generates before the first call: `_generate_single_turn` counts the turn up to 0.
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
    """Return rows for `datasets.Dataset.from_list`: every task with every seed.

    `instruction` is the first line of the prompt. `ToolEnvironment.reset` adds the task's instruction and the first
    observation after it.
    """
    prompt = [{"role": "user", "content": f"{instruction}\n" if instruction else ""}]
    return [{"prompt": prompt, "task_id": task_id, "seed": seed} for seed in seeds for task_id in task_ids]


class StepAdvantageTrainer(GRPOTrainer):
    """A `GRPOTrainer` whose tokens of each turn have the advantage of that step.

    Rewards are the environment's, per step. `reward_funcs` would affect only the log, so they raise an error. TRL's
    table of completions still shows TRL's own advantages. If `max_tool_calling_iterations` is reached, TRL does not run
    the calls of a turn. Such a turn is not a step, and its tokens have the advantage 0.

    Args:
        advantage: an estimator of `hgpo_gym.advantages`, by name.
        advantage_options: its options.
        invalid_action_penalty: subtracted from the return of a step whose action was not valid.
        stop: texts that end a response, which includes them. TRL's generation by transformers may write tokens after
            such a text, and they are removed; vLLM stops there.
        stop_token_ids: further tokens that end a response. TRL's tokens of tokenizer and generation config, and the
            chat template's token after a response, always end it.

    Raises:
        ValueError: an unknown estimator or option, reward functions, environments that are no `ToolEnvironment`, a
            limit of 0 tool calls, an empty stop text, or a stop token that does not exist.
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
        self._end_responses_by(stop, stop_token_ids)
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

    def _end_responses_by(self, stop: Sequence[str], stop_token_ids: Sequence[int]) -> None:
        """Make responses end as those of `LanguageModelPolicy` do."""
        check_stops(stop, stop_token_ids, len(self._tokenizer))
        end_of_turn = ControlTokens(self._tokenizer, self.chat_template_kwargs).end_of_turn
        ends = {*self.eos_token_ids, *stop_token_ids, *([] if end_of_turn is None else [end_of_turn])}
        self.eos_token_ids = sorted(ends)
        self._ends = ResponseEnds(frozenset(ends), tuple(stop), self._decode)
        if self.use_vllm:
            generation_kwargs = self.vllm_generation.generation_kwargs
            generation_kwargs["stop_token_ids"] = sorted(ends.union(generation_kwargs.get("stop_token_ids") or ()))
            generation_kwargs["stop"] = [*(generation_kwargs.get("stop") or ()), *stop]
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
        truncated = [ids[:length] for ids, length in zip(completions, lengths, strict=True)]
        return truncated, logprobs and [
            token_logprobs[:length] for token_logprobs, length in zip(logprobs, lengths, strict=True)
        ]

    def _tool_call_loop(self, *args: Any, **kwargs: Any) -> Any:
        results = super()._tool_call_loop(*args, **kwargs)
        limit, self._token_turns = self.max_tool_calling_iterations, []
        for environment, mask, conversation in zip(self.environments, *results[:2], strict=True):
            turns = turns_of_tokens(np.array(mask))
            calls = [len(message.get("tool_calls") or ()) for message in conversation if message["role"] == "assistant"]
            if any(calls[limit:]):  # TRL 1.16 does not run calls beyond the limit
                turns[turns >= limit] = -1
            for turn, num_calls in enumerate(calls):
                if num_calls > environment.acted.count(turn):  # TRL reports a failed call only to the model
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
        """Return the step advantages of this process's episodes, compared with the groups of all processes."""
        local_episodes = [
            environment.episode.steps(int(turns.max(initial=-1)) + 1)
            for environment, turns in zip(self.environments, self._token_turns, strict=True)
        ]
        episodes = gather_object(local_episodes)
        members = self.num_generations if self.model.training else self.num_generations_eval
        batch = step_batch(
            [number // members for number in range(len(episodes))],
            episodes,
            invalid_action_penalty=self.invalid_action_penalty,
        )
        values = estimate(self.advantage, batch, **self.advantage_options)
        by_episode = np.split(values, np.cumsum([len(steps) for steps in episodes])[:-1])
        first = self.accelerator.process_index * len(local_episodes)
        return by_episode[first : first + len(local_episodes)]
