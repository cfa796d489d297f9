"""Actor and checker: a second role checks an action before it is executed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hgpo_gym.rollouts.teams.base import Message, Team, check_weights, with_outputs

ACTOR, CHECKER = "actor", "checker"
YES, NO = "yes", "no"
_VERDICT = re.compile(rf"\s*{NO}\b[\s:,.]*(.*)", re.IGNORECASE | re.DOTALL)


class ActorChecker(Team):
    """A team whose checker approves or rejects each action that the actor proposes.

    The checker responds `yes`, which executes the action, or `no: HINT`, after which the actor proposes again. Any
    other response approves. The last proposal is executed without a check.

    Loops and prompts follow DrMAS's teams for mathematics (arXiv 2602.08847; code: langfengQ/DrMAS). The use for
    environments with actions is new here.

    Args:
        loops: the maximum number of proposals; 1 has no checker.
        hints: the hints that the checker chooses among. Without any it writes a free text, which needs a language
            model with engine.constrain=none.
        instruction: the checker's instruction in its prompt.
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

    def next(self, messages: Sequence[Message], info: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - of Team
        if not messages:
            return ACTOR
        if messages[-1].role == CHECKER:
            return ACTOR if _VERDICT.fullmatch(messages[-1].text) else None
        proposals = sum(role == ACTOR for role, _ in messages)
        return CHECKER if proposals < self._loops else None

    def prompt(self, role: str, prompt: str, messages: Sequence[Message]) -> str:
        return with_outputs(prompt, messages, self._instruction if role == CHECKER else "")

    def allowed_responses(
        self, role: str, admissible_actions: tuple[str, ...], messages: Sequence[Message]
    ) -> tuple[str, ...]:
        return self._verdicts if role == CHECKER else super().allowed_responses(role, admissible_actions, messages)
