"""Planner and actor: one role plans, the other acts."""

from collections.abc import Mapping, Sequence
from typing import Any

from hgpo_gym.rollouts.teams.base import Message, Team, check_weights, with_outputs

PLANNER, ACTOR = "planner", "actor"


class PlannerActor(Team):
    """A team whose planner writes a plan every `every` steps; the actor's prompt shows it until the next plan.

    The prompts follow DrMAS (arXiv 2602.08847; code: langfengQ/DrMAS); the team itself is new here.

    Args:
        every: environment steps from plan to plan.
        plans: the plans that the planner chooses among. Without any it writes a free text, which needs a language
            model with engine.constrain=none.
        instruction: the planner's instruction in its prompt.
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

    def next(self, messages: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        if not messages:
            return PLANNER
        return ACTOR if messages[-1].role == PLANNER else None

    def prompt(self, role: str, prompt: str, messages: Sequence[Message]) -> str:
        return with_outputs(prompt, messages, self._instruction if role == PLANNER else "")

    def allowed_responses(
        self, role: str, admissible_actions: tuple[str, ...], messages: Sequence[Message]
    ) -> tuple[str, ...]:
        return self._plans if role == PLANNER else super().allowed_responses(role, admissible_actions, messages)

    def keep(self, messages: Sequence[Message], turn: int) -> Sequence[Message]:
        """Return the plan, until the next one is due."""
        return () if (turn + 1) % self._every == 0 else [message for message in messages if message.role == PLANNER]
