"""Actor and checker: an action is looked at before it is taken."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hgpo_gym.rollouts.teams.base import Message, Team, check_weights, with_outputs

ACTOR, CHECKER = "actor", "checker"
YES, NO = "yes", "no"
_VERDICT = re.compile(rf"\s*{NO}\b[\s:,.]*(.*)", re.IGNORECASE | re.DOTALL)


class ActorChecker(Team):
    """The actor proposes an action; the checker answers `yes`, and it is taken, or `no: HINT`, and the actor proposes
    again. A verdict that is neither approves. The last proposal is taken unchecked.

    The form, loops and what each reads, is DrMAS's (arXiv 2602.08847; code: langfengQ/DrMAS, its teams for
    mathematics); this team, for environments that act, is this project's own.

    Args:
        loops: proposals at most; 1 has no checker.
        hints: the hints that the checker can choose among; none: it writes one of its own, which asks for a language
            model with engine.constrain=none.
        instruction: what the checker is told.
        weights: `shared`, or `adapter`: a LoRA adapter for each role.

    Raises:
        ValueError: unknown weights, loops below 1.
    """

    roles = (ACTOR, CHECKER)
    acting_role = ACTOR

    def __init__(
        self,
        *,
        loops: int = 2,
        hints: Sequence[str] = (),
        instruction: str = 'Check the last action. Answer "yes", or "no: " and a hint.',
        weights: str = "shared",
    ):
        if loops < 1:
            raise ValueError(f"loops={loops}: the actor has to propose once at least.")
        self._loops, self._instruction = loops, instruction
        self._verdicts = (YES, *(f"{NO}: {hint}" for hint in hints)) if hints else ()
        self.weights = check_weights(weights)

    def next(self, said: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        if not said:
            return ACTOR
        if said[-1].role == CHECKER:
            return ACTOR if _VERDICT.fullmatch(said[-1].text) else None
        proposals = sum(role == ACTOR for role, _ in said)
        return CHECKER if proposals < self._loops else None

    def prompt(self, role: str, prompt: str, said: Sequence[Message]) -> str:
        return with_outputs(prompt, said, self._instruction if role == CHECKER else "")

    def answers(self, role: str, admissible_actions: tuple[str, ...], said: Sequence[Message]) -> tuple[str, ...]:
        return self._verdicts if role == CHECKER else super().answers(role, admissible_actions, said)
