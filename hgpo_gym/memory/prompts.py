"""Prompt templates: from a context to the policy's prompt, and from its response to an action."""

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import yaml

from hgpo_gym.memory.context import Context, PastSteps, format_step
from hgpo_gym.memory.notes import NotesPrefix
from hgpo_gym.memory.plans import PlanPrefix
from hgpo_gym.memory.readings import READINGS, Reading
from hgpo_gym.memory.response_prefix import ResponsePrefix
from hgpo_gym.memory.tools import Functions, Tools
from hgpo_gym.suggest import unknown_name

ACTION_LISTS = ("admissible_actions", "described_actions", "numbered_actions")
PLACEHOLDERS = {
    "first": {"task", "observation", *ACTION_LISTS, "step"},
    "later": {"task", "observation", *ACTION_LISTS, "step", "history", "history_steps"},
    "past_step": {"observation", "action", "step"},
    "turn": {"task", "observation", *ACTION_LISTS, "step"},
    "response": {"action", "number", "call"},
    "subgoal_line": {"subgoal"},
    "notes_line": {"notes"},
}
NEEDED = {
    "first": ("observation",),
    "later": ("observation",),
    "turn": ("observation",),
    "response": ("action", "number", "call"),
}
"""For each text, placeholders of which it needs at least one."""

UNEXPLAINED = "This prompt does not say how to respond: prompt=instruct suits models that were not trained on it."


@dataclass(frozen=True)
class PromptTemplate:
    """The form of prompts and responses.

    Attributes:
        first: the prompt without history; may use {task}, {observation}, {admissible_actions}, {described_actions}
            (with the meaning of each action, where the environment gives it), {numbered_actions} (the described
            actions with numbers from 1) and {step} (the number of earlier steps).
        later: the prompt with history; also {history} and {history_steps} (past steps shown).
        past_step: one past step of {history}; may use {observation}, {action} and {step} (1 is the first).
        admissible_separator: joins the actions in these lists.
        response: the shortest response that means {action}, or the action with this {number}, or the tool {call} that
            means it. Scripted policies, warm starts and constrained generation write it.
        action_pattern: a regular expression whose only group is the action, or its number, in the response (dot
            matches line ends). A response that does not match is the empty action, which is never admissible. None for
            responses of the form `<think>...</think><action>...</action>`.
        response_reading: the parser of that form, `strict` or `published`, see `readings`.
        subgoals: None if responses have no plan. Otherwise each response begins with one, see `plans`. Scripted
            policies, warm starts and constrained generation choose among these subgoals. An empty list allows any
            text; they then use the action as the subgoal.
        subgoal_line: the text above the prompt if responses have a plan; may use {subgoal}, the current one.
        functions: the functions that a response with a {call} may call, see `tools.Functions`.
        tool_format: how such a call is written: `hermes` (Qwen too), `llama3_json` or `mistral`. Each is read.
        system: the message of the system before the first prompt; empty for none.
        turn: a later turn of a conversation; may use the placeholders of `first`.
        notes_line: the text above the prompt if responses have notes; may use {notes}.
        notes_request: the text below the prompt where notes are a response of their own.
        notes: where notes are, see `with_notes`; no setting of a run.

    Raises:
        ValueError: an unknown placeholder, a pattern that does not have exactly one group, an unknown
            `response_reading`, or one set beside an `action_pattern`; wrong `functions`, or a {call} without them.
    """

    first: str
    later: str
    past_step: str
    admissible_separator: str
    response: str
    action_pattern: str | None
    response_reading: str = "strict"
    subgoals: list[str] | None = None
    subgoal_line: str = ""
    functions: list[dict[str, Any]] | None = None
    tool_format: str = "hermes"
    system: str = ""
    turn: str = "{observation}\n({admissible_actions})"
    notes_line: str = "Notes: {notes}\n"
    notes_request: str = "\nNotes:"
    notes: Literal["", "beside", "apart"] = ""

    def __post_init__(self) -> None:
        for name, known in PLACEHOLDERS.items():
            for placeholder in self._placeholders(name):
                if placeholder is not None and placeholder not in known:
                    raise ValueError(unknown_name(f"placeholder in prompt.{name}", placeholder, sorted(known)))
        if self.response_reading not in READINGS:
            raise ValueError(unknown_name("prompt.response_reading", self.response_reading, READINGS))
        if ("call" in self._placeholders("response")) != (self.functions is not None):
            raise ValueError(
                f"prompt.response={self.response!r} and prompt.functions={self.functions}: set both, with a {{call}} "
                "in the response, or neither. prompt=tools has both."
            )
        _ = self.calls  # checks the functions
        if self.action_pattern is None:
            return
        if self.response_reading != "strict":
            raise ValueError(
                f"prompt.response_reading={self.response_reading} reads <think> and <action>, and this prompt has a "
                "form of its own, prompt.action_pattern: leave one of them out. prompt=instruct has none."
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
        """Raise ValueError if a prompt lacks the observation, or `answer` the action: no policy could act."""
        for name, needed in NEEDED.items():
            if not self._placeholders(name) & set(needed):
                choices = " or ".join(f"{{{placeholder}}}" for placeholder in needed)
                raise ValueError(f"prompt.{name}={getattr(self, name)!r} leaves out {choices}: put it in.")

    def _placeholders(self, name: str) -> set[str | None]:
        text = getattr(self, name)
        try:
            return {field for _, field, _, _ in string.Formatter().parse(text)}
        except ValueError as error:
            raise ValueError(
                f"prompt.{name}={text!r}: {error}. A brace that is part of the text is written twice, {{{{ or }}}}."
            ) from None

    @classmethod
    def named(cls, name: "str | PromptTemplate") -> "PromptTemplate":
        """Load a template of the package, `configs/prompt/<name>.yaml`. A template is returned unchanged.

        Raises:
            ValueError: no such template.
        """
        if isinstance(name, PromptTemplate):
            return name
        folder = files("hgpo_gym") / "configs" / "prompt"
        names = sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))
        if name not in names:
            raise ValueError(unknown_name("prompt template", name, names))
        settings: dict[str, Any] = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
        return cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})

    @property
    def unexplained(self) -> bool:
        """Return whether it is a template of the package without instructions, for models trained on it."""
        return self in map(PromptTemplate.named, ("bare", "brief", "described", "numbered"))

    def render(self, task: str, context: Context, *, opening: bool = False) -> str:
        """Return the prompt of one step.

        Args:
            task: the instruction.
            context: of the step.
            opening: begin a conversation at this step, whatever was before it.
        """
        described = _described(context)
        values = {
            "task": task,
            "observation": context.observation,
            "admissible_actions": self.admissible_separator.join(context.admissible_actions),
            "described_actions": self.admissible_separator.join(described),
            "numbered_actions": self.admissible_separator.join(
                f"{number}: {action}" for number, action in enumerate(described, 1)
            ),
            "step": context.step,
        }
        if context.conversation and context.step and not opening:
            return self.turn.format(**values)
        if not context.history:
            return self.first.format(**values)
        history = "".join(self._past_steps(context))
        return self.later.format(**values, history=history, history_steps=len(context.history))

    def _past_steps(self, context: Context) -> Sequence[str]:
        if isinstance(context.history, PastSteps):
            return context.history.formatted(self.past_step)
        oldest = context.step - len(context.history) + 1
        return [format_step(self.past_step, past, number) for number, past in enumerate(context.history, oldest)]

    @cached_property
    def prefix(self) -> ResponsePrefix:
        """Return the form of the part of a response before its action: a plan, notes, or nothing."""
        if self.notes:
            return NotesPrefix(self.notes_line, beside=self.notes == "beside")
        return ResponsePrefix() if self.subgoals is None else PlanPrefix(self.subgoals, self.subgoal_line)

    def with_notes(self, notes: Literal["beside", "apart"]) -> "PromptTemplate":
        """Return the template for responses that hold notes beside the action, or for notes in responses of their own.

        Raises:
            ValueError: responses hold plans.
        """
        if self.subgoals is not None:
            raise ValueError(
                "memory=notes: responses with plans (prompt.subgoals) have no notes. Choose another prompt."
            )
        return replace(self, notes=notes)

    @cached_property
    def literal_text(self) -> str:
        """Return the fixed text of the template, without placeholders."""
        names = PLACEHOLDERS.keys() - {"notes_line"}  # the prefix has it
        texts = [text for name in sorted(names) for text, *_ in string.Formatter().parse(getattr(self, name))]
        around_calls = "" if self.calls is None else self.calls.tags
        return "\n".join([*texts, *self.prefix.literal_text, around_calls])

    @cached_property
    def calls(self) -> Functions | None:
        """Return the functions by which responses act; None if they name the action itself."""
        return None if self.functions is None else Functions(self.functions, self.tool_format)

    @property
    def tools(self) -> Tools | None:
        """Return the functions as a request offers them; None without any."""
        return None if self.calls is None else self.calls.offered

    @cached_property
    def numbered(self) -> bool:
        """Return whether responses name the number of an action."""
        return "number" in self._placeholders("response")

    def write_response(self, action: str, carried: str = "", actions: Sequence[str] = ()) -> str:
        """Return the first of `write_responses`."""
        return self.write_responses(action, carried, actions)[0]

    def write_responses(self, action: str, carried: str = "", actions: Sequence[str] = ()) -> list[str]:
        """Return the shortest responses that mean this action, one per prefix.

        Args:
            action: the action to write.
            carried: the text that the prefix of the response before carries, see `ResponsePrefix`.
            actions: all actions in order, for responses with numbers.

        Raises:
            ValueError: responses name numbers, and this action has none.
        """
        written = self._write_action(action, actions)
        return [prefix + written for prefix in self.prefix.write(action, carried)]

    def sample_response(
        self, action: str, carried: str, actions: Sequence[str], generator: np.random.Generator, **seen: Any
    ) -> tuple[str, str]:
        """Return a response with a random prefix, for a warm start, and the text that its prefix carries.

        `seen` are the last arguments of `ResponsePrefix.sample`.
        """
        prefix, carried = self.prefix.sample(action, carried, generator, **seen)
        return prefix + self._write_action(action, actions), carried

    def _write_action(self, action: str, actions: Sequence[str]) -> str:
        if self.numbered and action not in actions:
            raise ValueError(
                f"prompt.response={self.response!r}: {action!r} is not among the actions that have a number."
            )
        return self.response.format(
            action=action,
            number=actions.index(action) + 1 if self.numbered else 0,
            call="" if self.calls is None else self.calls.write(action),
        )

    def list_responses(self, actions: Sequence[str], carried: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the responses of `write_responses` for all actions, and the action that each means."""
        if self.response == "{action}" and not self.prefix.columns:
            return tuple(actions), tuple(actions)
        pairs = [(text, action) for action in actions for text in self.write_responses(action, carried, actions)]
        return tuple(text for text, _ in pairs), tuple(action for _, action in pairs)

    def read(self, response: str, actions: Sequence[str] = (), opened: str = "") -> Reading:
        """Parse the action in the policy's response, and check the response's form.

        Args:
            response: it.
            actions: all actions in order, for responses with numbers.
            opened: the start of a thought that the chat template wrote, see `Response`; for responses of the form
                `<think>...</think><action>...</action>`.
        """
        response = self.prefix.rest(response)
        if self.calls is not None:
            return self.calls.read(opened + response)
        if self.action_pattern is None:
            reading = READINGS[self.response_reading](opened + response)
        else:
            match = re.search(self.action_pattern, response, flags=re.DOTALL)
            reading = Reading(match.group(1).strip(), in_form=True) if match else Reading("", in_form=False)
        if not self.numbered:
            return reading
        # At most 9 digits: Python refuses to convert very long numbers, and 0 is no action.
        number = int(reading.action) if re.fullmatch("[0-9]{1,9}", reading.action) else 0
        return reading._replace(action=actions[number - 1]) if 1 <= number <= len(actions) else Reading("", False)

    def parse_action(self, response: str, actions: Sequence[str] = ()) -> str:
        """Return the action in the policy's response, stripped; empty if there is none. See `read`."""
        return self.read(response, actions).action


class ShorterPrompts(Sequence[str]):
    """The prompts of a step with 1, 2, ... of its oldest past steps left out; each is rendered on access.

    Args:
        template: the form of prompts.
        task: the instruction.
        context: of the step.
        put: a function that completes each prompt.
    """

    def __init__(self, template: PromptTemplate, task: str, context: Context, put: Callable[[str], str]):
        self._template, self._task, self._context, self._put = template, task, context, put

    def __len__(self) -> int:
        return len(self._context.history)

    def __getitem__(self, index: Any) -> Any:
        count = range(1, len(self) + 1)[index]
        return (
            self._without_oldest(count)
            if isinstance(count, int)
            else [self._without_oldest(number) for number in count]
        )

    def _without_oldest(self, count: int) -> str:
        context = self._context._replace(history=self._context.history[count:])
        return self._put(self._template.render(self._task, context))


def _described(context: Context) -> list[str]:
    """Return the admissible actions, each with its description."""
    descriptions = context.descriptions or ("",) * len(context.admissible_actions)
    return [
        f"{action} ({description})" if description else action
        for action, description in zip(context.admissible_actions, descriptions, strict=True)
    ]
