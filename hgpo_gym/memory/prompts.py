"""Prompt templates: from a context to the text that a policy reads, and from its answer to an action."""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.resources import files
from typing import Any

import yaml

from hgpo_gym.memory.memory import Context
from hgpo_gym.memory.plans import write_plan
from hgpo_gym.memory.readings import READINGS, Reading
from hgpo_gym.suggest import unknown_name

ACTION_LISTS = ("admissible_actions", "described_actions", "numbered_actions")
PLACEHOLDERS = {
    "first": {"task", "observation", *ACTION_LISTS, "step"},
    "later": {"task", "observation", *ACTION_LISTS, "step", "history", "history_steps"},
    "past_step": {"observation", "action", "step"},
    "answer": {"action", "number"},
    "subgoal_line": {"subgoal"},
}
NEEDED = {"first": ("observation",), "later": ("observation",), "answer": ("action", "number")}
"""The placeholders of which a text cannot do without one."""

UNEXPLAINED = "This prompt does not tell how to answer: prompt=instruct suits models that were not trained on it."


@dataclass(frozen=True)
class PromptTemplate:
    """How a step is put to the policy.

    Attributes:
        first: the prompt where there is no history to show; may use {task}, {observation}, {admissible_actions},
            {described_actions} (the same, each with what it stands for where the environment says so),
            {numbered_actions} (those, each after its number, from 1) and {step} (steps taken before).
        later: the prompt with history; also {history} and {history_steps} (past steps shown).
        past_step: one past step of {history}; may use {observation}, {action} and {step} (1 is the first).
        admissible_separator: what joins the actions in these lists.
        answer: the shortest answer that means {action}, or the action with that {number}; what scripted policies, warm
            starts and constrained generation give.
        action_pattern: regular expression whose first group is the action, or its number, in the policy's answer (dot
            matches line ends). An answer that does not match acts as the empty action, which no environment admits.
            None where answers have the form `<think>...</think><action>...</action>`.
        answer_reading: how answers of that form are read, see `readings`: `strict` or `published`.
        subgoals: None where answers have no plan. Otherwise each begins with one, see `plans`; these are the subgoals
            that scripted policies, warm starts and constrained generation choose among, none where only a free text
            will do: then the action names its own.
        subgoal_line: what stands above the prompt of an answer with a plan; may use {subgoal}, the one in force.

    Raises:
        ValueError: a placeholder that does not exist, a pattern without a group, an unknown way to read, or one that
            no pattern needs.
    """

    first: str
    later: str
    past_step: str
    admissible_separator: str
    answer: str
    action_pattern: str | None
    answer_reading: str = "strict"
    subgoals: list[str] | None = None
    subgoal_line: str = ""

    def __post_init__(self) -> None:
        for name, known in PLACEHOLDERS.items():
            for placeholder in self._placeholders(name):
                if placeholder is not None and placeholder not in known:
                    raise ValueError(unknown_name(f"placeholder in prompt.{name}", placeholder, sorted(known)))
        if self.answer_reading not in READINGS:
            raise ValueError(unknown_name("prompt.answer_reading", self.answer_reading, READINGS))
        if self.action_pattern is None:
            return
        if self.answer_reading != "strict":
            raise ValueError(
                f"prompt.answer_reading={self.answer_reading} reads <think> and <action>, and this prompt has a form "
                "of its own, prompt.action_pattern: leave one of them out. prompt=instruct has none."
            )
        try:
            groups = re.compile(self.action_pattern).groups
        except re.error as error:
            raise ValueError(
                f"prompt.action_pattern={self.action_pattern!r} is no regular expression: {error}."
            ) from None
        if groups != 1:
            raise ValueError(f"prompt.action_pattern={self.action_pattern!r} must have exactly one group, the action.")

    def check_complete(self) -> None:
        """Raise ValueError where a prompt leaves out the observation, or an answer its action: nobody can act so."""
        for name, needed in NEEDED.items():
            if not self._placeholders(name) & set(needed):
                one = " or ".join(f"{{{placeholder}}}" for placeholder in needed)
                raise ValueError(f"prompt.{name}={getattr(self, name)!r} leaves out {one}: put it in.")

    def _placeholders(self, name: str) -> set[str | None]:
        text = getattr(self, name)
        try:
            return {field for _, field, _, _ in string.Formatter().parse(text)}
        except ValueError as error:
            raise ValueError(
                f"prompt.{name}={text!r}: {error}. A brace that is part of the text is written twice, {{{{ or }}}}."
            ) from None

    @classmethod
    def named(cls, name: str) -> "PromptTemplate":
        """A template of the package, `configs/prompt/<name>.yaml`.

        Raises:
            ValueError: no such template.
        """
        folder = files("hgpo_gym") / "configs" / "prompt"
        names = sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))
        if name not in names:
            raise ValueError(unknown_name("prompt template", name, names))
        settings: dict[str, Any] = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    @property
    def unexplained(self) -> bool:
        """Whether it is one of the package's that do not say how to answer, for models that were trained on them."""
        return self in map(PromptTemplate.named, ("bare", "brief", "described", "numbered"))

    def render(self, task: str, context: Context) -> str:
        """The prompt of one step."""
        described = _described(context)
        known = {
            "task": task,
            "observation": context.observation,
            "admissible_actions": self.admissible_separator.join(context.admissible_actions),
            "described_actions": self.admissible_separator.join(described),
            "numbered_actions": self.admissible_separator.join(
                f"{number}: {action}" for number, action in enumerate(described, 1)
            ),
            "step": context.step,
        }
        if not context.history:
            return self.first.format(**known)
        oldest = context.step - len(context.history) + 1
        history = "".join(
            self.past_step.format(observation=past.observation, action=past.action, step=oldest + index)
            for index, past in enumerate(context.history)
        )
        return self.later.format(**known, history=history, history_steps=len(context.history))

    def show_subgoal(self, prompt: str, subgoal: str) -> str:
        """The prompt of an answer with a plan, below the subgoal in force; any other prompt as it is."""
        return prompt if self.subgoals is None else self.subgoal_line.format(subgoal=subgoal or "none") + prompt

    @cached_property
    def literal_text(self) -> str:
        """All that it says itself, whatever the placeholders stand for."""
        texts = [text for name in PLACEHOLDERS for text, *_ in string.Formatter().parse(getattr(self, name))]
        return "\n".join([*texts, *([] if self.subgoals is None else [write_plan("", switches=True)])])

    @cached_property
    def numbered(self) -> bool:
        """Whether answers say the number of an action."""
        return "number" in self._placeholders("answer")

    def write_answer(self, action: str, subgoal: str = "", actions: Sequence[str] = ()) -> str:
        """The shortest answer that means this action; with a plan the first of `write_answers`."""
        return self.write_answers(action, subgoal, actions)[0]

    def write_answers(self, action: str, subgoal: str = "", actions: Sequence[str] = ()) -> list[str]:
        """The shortest answers that mean this action: with a plan, those that keep the subgoal in force, if there is
        one, and that switch to each of `subgoals`.

        Args:
            action: what is done.
            subgoal: the one in force.
            actions: all that there are, in order, where answers say numbers.

        Raises:
            ValueError: answers say numbers, and this action has none.
        """
        if self.numbered and action not in actions:
            raise ValueError(f"prompt.answer={self.answer!r}: {action!r} is not among the actions that have a number.")
        written = self.answer.format(action=action, number=actions.index(action) + 1 if self.numbered else 0)
        if self.subgoals is None:
            return [written]
        kept = [write_plan(subgoal, switches=False)] if subgoal else []
        taken = [write_plan(other, switches=True) for other in self.subgoals or [action]]
        return [plan + written for plan in kept + taken]

    def read(self, answer: str, actions: Sequence[str] = (), opened: str = "") -> Reading:
        """The action in the policy's answer, and whether that has the form.

        Args:
            answer: the text.
            actions: all that there are, in order, where answers say numbers.
            opened: the thought that a chat template had begun the answer with, see `Response`; for answers of the form
                `<think>...</think><action>...</action>`.
        """
        if self.action_pattern is None:
            reading = READINGS[self.answer_reading](opened + answer)
        else:
            match = re.search(self.action_pattern, answer, flags=re.DOTALL)
            reading = Reading(match.group(1).strip(), in_form=True) if match else Reading("", in_form=False)
        if not self.numbered:
            return reading
        number = int(reading.action) if re.fullmatch("[0-9]{1,9}", reading.action) else 0
        return reading._replace(action=actions[number - 1]) if 1 <= number <= len(actions) else Reading("", False)

    def parse_action(self, answer: str, actions: Sequence[str] = ()) -> str:
        """The action in the policy's answer, stripped; empty if there is none. See `read`."""
        return self.read(answer, actions).action


class ShorterPrompts(Sequence[str]):
    """The prompt of a step without its oldest past step, without its two oldest, and so on; made when it is asked for.

    Args:
        template: what prompts look like.
        task: the instruction.
        context: of the step.
        put: what is done to each prompt before it is asked.
    """

    def __init__(self, template: PromptTemplate, task: str, context: Context, put: Callable[[str], str]):
        self._template, self._task, self._context, self._put = template, task, context, put

    def __len__(self) -> int:
        return len(self._context.history)

    def __getitem__(self, index: Any) -> Any:
        count = range(1, len(self) + 1)[index]
        return self._without_oldest(count) if isinstance(count, int) else [self._without_oldest(one) for one in count]

    def _without_oldest(self, count: int) -> str:
        context = self._context._replace(history=self._context.history[count:])
        return self._put(self._template.render(self._task, context))


def _described(context: Context) -> list[str]:
    """The admissible actions, each with what it stands for."""
    descriptions = context.descriptions or ("",) * len(context.admissible_actions)
    return [
        f"{action} ({description})" if description else action
        for action, description in zip(context.admissible_actions, descriptions, strict=True)
    ]
