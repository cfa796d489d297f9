"""`memory=notes`: prompts show the notes that the agent wrote, and the current observation."""

from hgpo_gym.memory.context import NOTHING_WRITTEN, Context, Written
from hgpo_gym.memory.keys import KeyFunction
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.notes import latest_notes, whole_notes
from hgpo_gym.memory.prompts import PromptTemplate


class Notes(Memory):
    """Show the agent's notes, which it writes in `<memory>...</memory>` beside its action, and the current observation.

    A response without notes keeps them. The prompt's `notes_line` shows them. Such responses need
    engine.constrain=none.

    With `every` or `at_tokens`, notes are compaction: the role `memory` writes them in a response of its own, and
    actions have none beside them. Until then prompts show the notes and all steps since they were written.

    Args:
        every: write notes after this many steps; null leaves it to `at_tokens`.
        at_tokens: write notes when the last prompt and response had this many tokens together; null leaves it to
            `every`.
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, notes (what the agent believes),
            observation+notes, observation+admissible or observation+action.
    """

    writes_notes = True

    def __init__(
        self,
        *,
        every: int | None = None,
        at_tokens: int | None = None,
        history_length: int = 2,
        key: str | KeyFunction = "observation",
    ):
        for name, value in (("every", every), ("at_tokens", at_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: choose 1 or more, or null.")
        self._every, self._at_tokens = every, at_tokens
        super().__init__(history_length=history_length, key=key)

    @property
    def compacts(self) -> bool:
        """Return whether notes are responses of their own."""
        return self._every is not None or self._at_tokens is not None

    def reset(self) -> None:
        super().reset()
        self._first_shown, self._tokens, self._due = 0, 0, False

    def template(self, prompt: PromptTemplate) -> PromptTemplate:
        return prompt.with_notes("apart" if self.compacts else "beside")

    def show(self, context: Context) -> Context:
        if not self.compacts:
            return context
        history = self.past_steps(context.step - self._first_shown)
        many_steps = self._every is not None and len(history) >= self._every
        many_tokens = self._at_tokens is not None and len(history) > 0 and self._tokens >= self._at_tokens
        self._due = many_steps or many_tokens
        return context._replace(history=history, due=self._due)

    def record(self, action: str, written: Written = NOTHING_WRITTEN) -> None:
        super().record(action, written)
        self._tokens = written.tokens
        if not self.compacts:
            self.notes = latest_notes(written.texts, self.notes)
        elif self._due and len(written.texts) > 1:  # the role `memory` responds before all others
            self.notes = whole_notes(written.texts[0])
            self._first_shown = len(self._steps) - 1
