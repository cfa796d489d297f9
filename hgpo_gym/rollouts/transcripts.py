"""Transcripts: episodes as text, collected once from a scripted policy and cached."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hgpo_gym.memory.context import Context, Written
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.notes import sample_notes, write_notes
from hgpo_gym.memory.prompts import PromptTemplate, ShorterPrompts
from hgpo_gym.policies.base import EarlierTurn, Request, StepContext
from hgpo_gym.rollouts.rollout import Rollout, StepText


@dataclass(frozen=True)
class Transcript:
    """One episode."""

    task_id: str
    won: bool
    steps: tuple[StepText, ...]

    def requests(self, memory: Memory, template: PromptTemplate) -> Iterator[tuple[Request, str]]:
        """Yield the (request, response) of every step, in the form of this memory and template.

        The response has the expert's action if one is recorded, else the executed action. A prefix of the response,
        such as a plan, is random: transcripts have none. Notes are the expert's, if it keeps any.
        """
        memory.reset()
        earlier: tuple[EarlierTurn, ...] = ()
        template = memory.template(template)
        carried, generator = "", np.random.default_rng(hash_text(self.task_id))
        for step in self.steps:
            context, texts = memory.observe(step.observation, step.admissible_actions, step.action_descriptions), []
            if context.due:
                request, notes = _notes_request(template, step, context, carried, generator)
                carried, context = notes, context._replace(history=())
                texts.append(write_notes(notes))
                yield request, texts[0]
            action = step.action if step.expert_action is None else step.expert_action
            responses = tuple(
                text
                for admissible in step.admissible_actions
                for text in template.write_responses(admissible, carried, step.admissible_actions)
            )
            wrap = partial(template.prefix.show, carried=carried)
            shorter = ShorterPrompts(template, step.task, context, wrap)
            prompt = wrap(template.render(step.task, context))
            opening = wrap(template.render(step.task, context, opening=True)) if context.conversation else ""
            before, actions = carried, step.admissible_actions
            response, carried = template.sample_response(
                action,
                carried,
                actions,
                generator,
                observation=step.observation,
                expert_notes=step.expert_notes,
            )
            yield (
                Request(
                    prompt,
                    responses,
                    task=step.task,
                    literal_text=template.literal_text,
                    tools=template.tools,
                    system=template.system,
                    shorter=shorter,
                    earlier=earlier,
                    opening=opening,
                ),
                response,
            )
            if context.conversation:
                shown = response if action == step.action else template.write_response(step.action, before, actions)
                earlier += (EarlierTurn(prompt, shown, None, opening),)
            # History follows the executed action, even if the response to learn is the expert's.
            memory.record(step.action, Written([*texts, response]))

    def step_contexts(self) -> Iterator[tuple[StepContext, str]]:
        """Yield the (step context, action) of every step, for policies that read no prompt."""
        step_context, action = None, ""
        for step in self.steps:
            step_context = StepContext(
                step.task, step.observation, step.admissible_actions, step.action_descriptions, step_context, action
            )
            action = step.action
            yield step_context, step.action if step.expert_action is None else step.expert_action


def _notes_request(
    template: PromptTemplate, step: StepText, context: Context, carried: str, generator: np.random.Generator
) -> tuple[Request, str]:
    """Return the request to the role `memory` at a step, and the notes to learn."""
    notes = step.expert_notes
    if notes is None:
        notes = sample_notes(carried, generator, step.observation)
    prompt = template.prefix.show(template.render(step.task, context), carried) + template.notes_request
    return Request(prompt, (), task=step.task, literal_text=template.literal_text), notes


def from_rollout(rollout: Rollout) -> list[Transcript]:
    """Return the episodes of a rollout, in order, without their prompts and raw responses."""
    rows: list[list[int]] = [[] for _ in rollout.episodes]
    for row, trajectory in enumerate(rollout.batch.trajectory):
        rows[trajectory].append(row)
    return [
        Transcript(
            episode.task_id,
            episode.won,
            tuple(rollout.steps[row]._replace(kept_prompt="", response="") for row in row_indices),
        )
        for episode, row_indices in zip(rollout.episodes, rows, strict=True)
    ]


def save(transcripts: list[Transcript], path: Path) -> None:
    """Write one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        for transcript in transcripts:
            file.write(json.dumps(asdict(transcript)) + "\n")


def load(path: Path) -> list[Transcript]:
    with path.open(encoding="utf-8") as file:
        return [_parse(json.loads(line)) for line in file]


def _parse(record: dict) -> Transcript:
    steps = [StepText(*step) for step in record["steps"]]
    return Transcript(record["task_id"], record["won"], tuple(map(_with_tuples, steps)))


def _with_tuples(step: StepText) -> StepText:
    """Convert the lists that JSON returns to tuples."""
    return step._replace(
        admissible_actions=tuple(step.admissible_actions), action_descriptions=tuple(step.action_descriptions)
    )
