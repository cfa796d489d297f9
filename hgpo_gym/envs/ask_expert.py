"""AskExpert: another text environment with one more action, which asks its expert.

Asking changes nothing in the world and costs a step. The answer is the present observation, followed by a line with the
expert's next action. With a price of asking (`shaping=cost`), a policy learns when to ask. The idea is from HILA (arXiv
2603.07972), whose agents defer to an expert at a price of 0.3.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hgpo_gym.envs.base import Snapshot, TextEnv, Turn
from hgpo_gym.envs.making import ENVIRONMENTS, make, option_defaults
from hgpo_gym.envs.text_sources import texts_key
from hgpo_gym.suggest import option, unknown_name

ADVICE = "The expert would do: "
NO_ADVICE = "The expert does not know what to do."
DESCRIPTION = "the expert says what it would do"
"""Description of the new action, if the inner environment describes its actions."""

SET_OUTSIDE = ("expert", "max_episode_steps", "render_mode")
"""Options that the outer environment sets, so that the inner one may not have them."""
NAMED = ("task_id", "task_type", "task", "admissible_actions", "won", "action_valid", "expert_action")
"""Keys of the inner `info` that are not extras."""
OF_AN_ACTION: Mapping[str, Any] = {"milestone": False, "tag": 0, "tag_reward": 0.0, "turn_reward": 0.0}
"""Extras of `info` about the last action, with their values for asking. They replace the inner environment's values."""


class _AskExpertState(NamedTuple):
    """State of the inner environment, its latest observation, and its latest `info`."""

    inner: Snapshot
    seen: str
    info: Mapping[str, Any]


class AskExpertEnv(TextEnv):
    """`hgpo_gym/AskExpert-v0`: another environment, with one more action that its expert answers. The inner environment
    gives all else: tasks, texts, rewards, `info`, and snapshots if it supports them.

    Asking is valid, earns nothing, and changes only the number of steps. For an asking step, `info` reports no
    milestone, no tag, and rewards of 0. If the inner environment lists no actions, this one lists none either, but
    asking still works.

    Args:
        of: the id of the inner environment; it has to have an expert.
        of_options: its options by name, except those that are set here; None: its defaults.
        split: of the inner environment; None: what `of_options` says, or its default.
        action: name of the asking action.
        expert: put the inner expert's next action into `info["expert_action"]`. It never asks.
        render_mode: `ansi` or None.

    Raises:
        ValueError: no such environment, one without an expert, options that it refuses or that have their place here,
            an `action` that is no name; at its turn, an `action` that the inner environment admits itself.
    """

    def __init__(
        self,
        *,
        of: str = "hgpo_gym/SignpostMaze-v0",
        of_options: Mapping[str, Any] | None = None,
        split: str | Sequence[str] | None = None,
        action: str = "ask",
        expert: bool = False,
        render_mode: str | None = None,
    ):
        if not action or action != action.strip():
            raise ValueError(f"action={action!r}: give a name without white space at its ends, such as 'ask'.")
        self._of, self._options = of, _inner_options(of, {} if of_options is None else of_options, split)
        inner = make(of, **self._options, max_episode_steps=-1).unwrapped  # the step limit is outside
        assert isinstance(inner, TextEnv)
        self.max_text_length = 2 * inner.max_text_length + len(ADVICE) + 1
        self.split, self.task_ids, self.reset_options = inner.split, inner.task_ids, inner.reset_options
        super().__init__(render_mode=render_mode)
        self._inner, self._ask, self._expert = inner, action, expert
        self._seen, self._inner_info = "", dict[str, Any]()

    @property
    def texts_key(self) -> str:  # type: ignore[override]
        """Key that changes with the inner environment's source, id, options and texts key."""
        return texts_key(type(self._inner), self._of, self._options, self._inner.texts_key)

    def task_type(self, task_id: str) -> str:
        """Return the inner environment's task type."""
        return self._inner.task_type(task_id)

    def choose_task(self, options: Mapping[str, Any]) -> str:
        """Begin an inner episode: the inner environment interprets the options."""
        self._inner.np_random = self.np_random
        self._seen, self._inner_info = self._inner.reset(options=options)
        return self._inner_info["task_id"]

    def begin_episode(self, task_id: str) -> Turn:  # noqa: ARG002 - choose_task has begun it
        return self._turn(self._seen, task=self._inner_info["task"])

    def take_action(self, action: str) -> Turn:
        if action == self._ask:
            self._inner_info = {**self._inner_info, **OF_AN_ACTION}
            advice = self._inner_info.get("expert_action")
            return self._turn(f"{self._seen}\n{ADVICE + advice if advice else NO_ADVICE}")
        self._inner.np_random = self.np_random
        observation, reward, terminated, _, self._inner_info = self._inner.step(action)
        valid = self._inner_info["action_valid"]
        if valid:  # what is said of another one is no observation of the world
            self._seen = observation
        return self._turn(observation, reward=reward, terminated=terminated, action_valid=valid)

    def save_state(self) -> _AskExpertState:
        return _AskExpertState(self._inner.snapshot(), self._seen, self._inner_info)

    def load_state(self, state: _AskExpertState) -> None:
        self._inner.restore(state.inner)
        self._seen, self._inner_info = state.seen, dict(state.info)

    @property
    def can_snapshot(self) -> bool:
        """True if the inner environment supports snapshots."""
        return self._inner.can_snapshot

    def redraw_expert(self) -> str | None:
        """Redraw the inner environment's `expert_action`; the next answer gives the same action."""
        self._inner.np_random = self.np_random
        drawn = self._inner.redraw_expert()
        if drawn is not None:
            self._inner_info = {**self._inner_info, "expert_action": drawn}
        return drawn if self._expert else None

    def close(self) -> None:
        self._inner.close()

    def _turn(self, observation: str, *, terminated: bool = False, **turn_fields: Any) -> Turn:
        info = self._inner_info
        admissible = info["admissible_actions"]
        extras = {name: value for name, value in info.items() if name not in NAMED}
        if self._expert and "expert_action" in info:
            extras["expert_action"] = info["expert_action"]
        if self._ask in admissible:
            raise ValueError(
                f"action={self._ask!r} is an action of {self._of} itself, in task {info['task_id']!r}: call asking "
                f"something else, {option('action')}."
            )
        if admissible and not terminated:
            admissible = (*admissible, self._ask)
            if "action_descriptions" in extras:
                extras["action_descriptions"] = (*extras["action_descriptions"], DESCRIPTION)
        return Turn(
            observation,
            admissible_actions=admissible,
            terminated=terminated,
            won=info["won"],
            extras=extras,
            **turn_fields,
        )


def _inner_options(of: str, options: Mapping[str, Any], split: str | Sequence[str] | None) -> dict[str, Any]:
    """Return the options of the inner environment, without its step limit. Raises ValueError, as the class."""
    if of not in ENVIRONMENTS:
        suggestion = next((record.id for record in ENVIRONMENTS.values() if record.name == of), None)
        raise ValueError(unknown_name("environment of", of, sorted(ENVIRONMENTS), meant=suggestion))
    if not all(isinstance(name, str) for name in options):
        raise ValueError(f"of_options={options!r}: give options of {of} by name, such as {{'split': 'test'}}.")
    if "expert" not in option_defaults(of):
        raise ValueError(f"of={of!r} has no expert (no option `expert`): choose another environment.")
    for name in SET_OUTSIDE:
        if name in options:
            raise ValueError(
                f"of_options has {name}={options[name]!r}: leave it out, and set {option(name)} beside it."
            )
    if split is None:
        return {**options, "expert": True}
    if "split" in options:
        raise ValueError(f"split={split!r} and of_options with split={options['split']!r}: give one of them.")
    return {**options, "expert": True, "split": split}
