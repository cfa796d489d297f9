"""`memory=window`: prompts show the last steps of the episode."""

from hgpo_gym.memory.context import Context
from hgpo_gym.memory.keys import KeyFunction
from hgpo_gym.memory.memory import Memory


class Window(Memory):
    """Show the last steps of the episode, observations with their actions.

    Args:
        window: past steps that the prompt shows: a number, 0 for none, null for the whole episode.
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, observation+admissible or observation+action.
    """

    def __init__(self, *, window: int | None = 2, history_length: int = 2, key: str | KeyFunction = "observation"):
        if window is not None and window < 0:
            raise ValueError(f"window={window}: choose 0 or more steps, or null for the whole episode.")
        self.window = window
        super().__init__(history_length=history_length, key=key)

    def show(self, context: Context) -> Context:
        return context._replace(history=self.past_steps(self.window))
