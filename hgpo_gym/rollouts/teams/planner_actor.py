"""Planner and actor: one says what to aim at, the other acts."""

from collections.abc import Mapping, Sequence
from typing import Any

from hgpo_gym.rollouts.teams.base import Message, Team, check_weights, with_outputs

PLANNER, ACTOR = "planner", "actor"


class PlannerActor(Team):
    """Every `every` steps the planner speaks, and its text stays in the actor's prompt until it speaks again.

    The form of what each reads is DrMAS's (arXiv 2602.08847; code: langfengQ/DrMAS); this team is this project's own.

    Args:
        every: steps of the environment from plan to plan.
        plans: the plans that the planner can choose among; none: it writes its own, which asks for a language model
            with engine.constrain=none.
        instruction: what the planner is told.
        weights: `shared`, or `adapter`: a LoRA adapter for each role.

    Raises:
        ValueError: unknown weights, every below 1.
    """

    roles = (PLANNER, ACTOR)

    def __init__(
        self,
        *,
        every: int = 5,
        plans: Sequence[str] = (),
        instruction: str = "You plan for the actor. Answer with a plan for the next steps.",
        weights: str = "shared",
    ):
        if every < 1:
            raise ValueError(f"every={every}: a plan has to last 1 step at least.")
        self._every, self._plans, self._instruction = every, tuple(plans), instruction
        self.weights = check_weights(weights)

    def next(self, said: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        if not said:
            return PLANNER
        return ACTOR if said[-1].role == PLANNER else None

    def prompt(self, role: str, prompt: str, said: Sequence[Message]) -> str:
        return with_outputs(prompt, said, self._instruction if role == PLANNER else "")

    def answers(self, role: str, admissible_actions: tuple[str, ...], said: Sequence[Message]) -> tuple[str, ...]:
        return self._plans if role == PLANNER else super().answers(role, admissible_actions, said)

    def keep(self, said: Sequence[Message], turn: int) -> Sequence[Message]:
        """The plan, until the next one is due."""
        return () if (turn + 1) % self._every == 0 else [one for one in said if one.role == PLANNER]
