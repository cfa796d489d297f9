"""`actor_rollout_ref.rollout.agent.default_agent_loop=hgpo_gym`: verl's agent loop for environments of this package.

Settings are in `data.hgpo_gym`, see `loop_settings`. Environments run in the processes of verl's agent loop workers.
Written for verl 0.9.1.
"""

import json
import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from omegaconf import OmegaConf
from transformers import GenerationConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from hgpo_gym.adapters.verl.episode import (
    Ask,
    EpisodeFailedError,
    EpisodePlan,
    LocalEpisodes,
    describe_episode,
    describe_rows,
)
from hgpo_gym.adapters.verl.loop_settings import LoopSettings, Source
from hgpo_gym.policies.base import Request, Response, TokenRecord
from hgpo_gym.policies.text_tokens import TextTokens
from hgpo_gym.randomness import RandomStream
from hgpo_gym.rollouts.player import Player, StepRecord
from hgpo_gym.trainers.update.conversations import by_conversation, drawn, joined

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    """A response of the episode, and the extra fields of its output."""

    tokens: TokenRecord
    fields: dict[str, Any]
    trajectory: int = 0


class _Shared(NamedTuple):
    """Objects that all episodes of a worker share: verl makes a loop for each."""

    episodes: LocalEpisodes
    tokens: TextTokens


@register("hgpo_gym")
class EpisodeLoop(AgentLoopBase):
    """Plays one episode, and returns an output for every response, in order, or for every sequence of responses.

    Prompts have the tokens that this package's own trainer gives them. Responses are trained on as the server drew
    them. All requests of an episode have one id, so that they reach the server that has their common prefix.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        settings, chat_template_kwargs = (
            json.dumps(OmegaConf.to_container(OmegaConf.create(values), resolve=True))
            for values in (self.data_config.hgpo_gym, self.apply_chat_template_kwargs)
        )
        model, longest = self.config.actor_rollout_ref.model.path, self.rollout_config.prompt_length
        self._episodes, self._tokens = _shared(self.tokenizer, model, settings, chat_template_kwargs, longest)
        self._settings = self._episodes.settings

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[AgentLoopOutput]:
        """Play an episode of the row's task.

        Episodes of a group begin alike, and each has its own chance afterwards. A validation plays the same tasks with
        the same chance every time; its `session_id` is the decoding seed.

        Raises:
            EpisodeFailedError: in training, the environment failed at every attempt. verl then leaves the episode out.
                In a validation it counts as not won, and the trainer raises if there are too many.
        """
        plan, session = plan_of_row(row, self._settings.seed), uuid4().hex
        sampling = {**sampling_params, **self._ends()}
        fields: list[dict[str, Any]] = []

        def ask_of(attempt: int) -> Ask:
            fields.clear()
            return self._ask(f"{session}{attempt}", sampling, fields)

        try:
            player = await self._episodes.play(plan, ask_of)
        except EpisodeFailedError as error:
            logger.warning("%s", error)
            if not row["validates"]:
                raise
            return [self._failed(plan, error)]
        return self._outputs(f"{row['uid']}_{row['session_id']}", plan, player, fields)

    def _ends(self) -> dict[str, Any]:
        """Return the sampling parameters by which a response ends as in this package."""
        ends: dict[str, Any] = {"stop_token_ids": sorted(self._tokens.end_token_ids)}
        if self._settings.stop:
            # The text that ends a response is kept; vLLM and SGLang have different names for that.
            keep = "no_stop_trim" if self.rollout_config.name == "sglang" else "include_stop_str_in_output"
            ends |= {"stop": self._settings.stop, keep: True}
        return ends

    def _ask(self, session: str, sampling: dict[str, Any], fields: list[dict[str, Any]]) -> Ask:
        """Return a function that asks verl's server, and appends the extra fields of each answer to `fields`."""

        async def ask(request: Request) -> Response:
            ((prompt_ids, cut),) = self._tokens.read_prompts([request])
            answer = await self.server_manager.generate(
                session, prompt_ids=prompt_ids.tolist(), sampling_params=dict(sampling)
            )
            ids = answer.token_ids[: self.rollout_config.response_length]
            if not ids:
                raise RuntimeError(f"{self.rollout_config.name} gave no token to a prompt of {len(prompt_ids)}.")
            fields.append({**answer.extra_fields, "prompt_cut": cut})
            logprobs = np.array(answer.log_probs[: len(ids)] if answer.log_probs else [np.nan] * len(ids), np.float32)
            record = TokenRecord(prompt_ids, np.array(ids, dtype=np.int64), logprobs, prompt_cut=cut)
            ends = self._tokens.response_ends
            return Response(ends.text(ids), record, not ends.reached(ids), self._tokens.opened)

        return ask

    def _outputs(
        self, name: str, plan: EpisodePlan, player: Player, fields: list[dict[str, Any]]
    ) -> list[AgentLoopOutput]:
        episode, steps = describe_episode(plan, player), describe_rows(name, plan, player, self._settings)
        answers = [
            _Answer(row.tokens, {**of_answer, "steps": [step], **self._text(row)})
            for row, of_answer, step in zip(player.rows, fields, steps, strict=True)
            if row.tokens is not None
        ]
        sequences = by_conversation(answers) if self._settings.rows == "episode" else [[answer] for answer in answers]
        return [_output([answer.tokens for answer in of_row], _joined_fields(of_row), episode) for of_row in sequences]

    def _text(self, row: StepRecord) -> dict[str, Any]:
        """Return the texts that a run directory or a shaping needs; prompt and response are there as tokens."""
        if self._settings.run_dir is None and self._settings.shaping.name == "none":
            return {}
        names = ("task", "observation", "admissible_actions", "action", "expert_action", "truncated")
        return {"text": [{name: getattr(row.text, name) for name in names}]}

    def _failed(self, plan: EpisodePlan, error: EpisodeFailedError) -> AgentLoopOutput:
        """Return an output without a token of the model, which stands for a failed episode of a validation."""
        end = np.array([self._tokens.end_of_text])
        output = _output([TokenRecord(end, end, np.zeros(1, dtype=np.float32))], {}, describe_episode(plan, error))
        output.response_mask = [0]
        return output


def _joined_fields(answers: Sequence[_Answer]) -> dict[str, Any]:
    """Return the extra fields of answers that continue one another: those of the last, with the steps of all."""
    first, of_all = answers[0].fields, [answer.fields for answer in answers]
    names = [name for name in ("steps", "text") if name in first]
    lists: dict[str, Any] = {name: [item for fields in of_all for item in fields[name]] for name in names}
    return {**of_all[-1], "min_global_steps": first["min_global_steps"], **lists}


def _output(records: Sequence[TokenRecord], fields: dict[str, Any], episode: dict[str, Any]) -> AgentLoopOutput:
    """Return an output with the tokens of records that continue one another."""
    tokens, mask = joined(records), drawn(records)
    return AgentLoopOutput(
        prompt_ids=tokens.prompt_ids.tolist(),
        response_ids=tokens.token_ids.tolist(),
        response_mask=mask.astype(int).tolist(),
        response_logprobs=None if np.isnan(tokens.logprobs).any() else tokens.logprobs.tolist(),
        reward_score=episode["episode_return"],
        num_turns=episode["steps"],
        metrics=AgentLoopMetrics(),
        # verl's validation reads reward_extra_info, the trainers of `trainer` the steps and the episode.
        extra_fields={**fields, "episode": episode, "reward_extra_info": {"acc": float(episode["won"]), **episode}},
    )


def plan_of_row(row: dict[str, Any], seed: int) -> EpisodePlan:
    """Return the start of the episode of a row of `TaskDataset`, with the seeds of this package's own trainer."""
    source, group, session = Source(row["env"], row["split"] or None, None), row["group"], row["session_id"]
    if row["validates"]:
        return EpisodePlan(source, row["task_id"], (RandomStream.EVALUATION, session, group), 0)
    iteration = row["iteration"] if row["iteration"] >= 0 else row["global_steps"] - 1
    return EpisodePlan(source, row["task_id"], (RandomStream.ROLLOUT, seed, iteration, group), session)


@lru_cache(maxsize=8)
def _shared(tokenizer: Any, model: str, settings: str, chat_template_kwargs: str, max_prompt_tokens: int) -> _Shared:
    loop_settings = LoopSettings.parse(json.loads(settings))
    try:
        ends = GenerationConfig.from_pretrained(model).eos_token_id or []
    except OSError:  # a model may come without one
        ends = []
    tokens = TextTokens(
        tokenizer,
        max_prompt_tokens=max_prompt_tokens,
        chat_template_kwargs=json.loads(chat_template_kwargs),
        template_date=loop_settings.template_date,
        stop=loop_settings.stop,
        stop_token_ids=loop_settings.stop_token_ids,
        generation_ends=[ends] if isinstance(ends, int) else ends,
    )
    return _Shared(LocalEpisodes(loop_settings), tokens)
