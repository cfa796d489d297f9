"""Memory: the history of an episode, as text for the policy and as context keys for credit assignment.

`Memory` has what every form of memory shares; the forms are in `hgpo_gym.memory.forms`.
"""

from collections.abc import Sequence

from hgpo_gym.memory.context import NOTHING_WRITTEN, Context, PastStep, PastSteps, Written
from hgpo_gym.memory.keys import KeyChain, KeyFunction, hash_text, key_function
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.tools import MALFORMED_CALL


class Memory:
    """The memory of one episode: `reset`, then `observe` and `record` in turn.

    This form shows no history; other forms derive from it. A form has two sides:

    - Prompt side: override `show`, which fills in what the next prompt shows beside the observation. `past_steps` has
      all steps so far.
    - Key side: override `state`, the text that context keys compare; by default the observation as `key` sees it.

    A form with state of its own also extends `reset`, and `record`, which gets what the agent wrote. One that needs
    another form of response overrides `template`.

    Args:
        history_length: K, how many past observations the context keys look back; independent of what the prompt shows.
        key: what counts as the observation in the keys: a name in `KEY_FUNCTIONS`, or a `KeyFunction`.

    Attributes:
        notes: what the agent wrote to keep; empty in forms without notes.

    Raises:
        ValueError: a negative length, or a key function that is unknown or needs notes that this form has not.
    """

    writes_notes = False

    def __init__(self, *, history_length: int = 2, key: str | KeyFunction = "observation"):
        if history_length < 0:
            raise ValueError(f"history_length={history_length}: choose 0 or more observations.")
        self.history_length = history_length
        self.key = key_function(key)
        if self.key.with_notes and not self.writes_notes:
            raise ValueError(f"key={key}: this form of memory has no notes. Choose memory=notes, or another key.")
        self.reset()

    def reset(self) -> None:
        """Forget everything: a new episode begins."""
        self.notes = ""
        self._steps: list[PastStep] = []
        self._texts: dict[str, list[str]] = {}
        self._chain = KeyChain(self.history_length)
        self._observation: str | None = None
        self._action_hash: int | None = None
        self._reason = ""

    def observe(
        self, observation: str, admissible_actions: tuple[str, ...] = (), descriptions: tuple[str, ...] = ()
    ) -> Context:
        """Take in the next observation and return the context of its step.

        After a malformed tool call, the observation begins with the reason. Descriptions of the admissible actions are
        used only in prompts. Raises RuntimeError if `record` is missing after the last call.
        """
        if self._observation is not None:
            raise RuntimeError("observe() was called twice without record(action) between.")
        observation = self._reason + observation
        self._observation = observation
        state = self.state(observation, admissible_actions)
        keys = self._chain.advance(hash_text(state), self._action_hash)
        return self.show(
            Context(observation, admissible_actions, (), len(self._steps), keys, descriptions, state=state)
        )

    def record(self, action: str, written: Written = NOTHING_WRITTEN) -> None:  # noqa: ARG002 - for forms that read it
        """Take in the action of the current step, and what the agent wrote. Raises RuntimeError before `observe`."""
        if self._observation is None:
            raise RuntimeError("record() was called before observe().")
        self._steps.append(PastStep(self._observation, action))
        self._action_hash = hash_text(action) if self.key.with_action else None
        self._reason = f"{action}\n" if action.startswith(MALFORMED_CALL) else ""
        self._observation = None

    def past_steps(self, most: int | None = None) -> Sequence[PastStep]:
        """Return the last `most` steps, oldest first; None returns all. A step is formatted for prompts only once."""
        stop = len(self._steps)
        return PastSteps(self._steps, self._texts, 0 if most is None else max(0, stop - most), stop)

    def show(self, context: Context) -> Context:
        """Return the context with what the prompt shows beside the observation: by default nothing."""
        return context

    def template(self, prompt: PromptTemplate) -> PromptTemplate:
        """Return the template that asks for responses of this form and reads them: by default unchanged."""
        return prompt

    def state(self, observation: str, admissible_actions: tuple[str, ...]) -> str:
        """Return the text that the context keys of the current step compare."""
        return self.key.text(observation, admissible_actions, self.notes)
