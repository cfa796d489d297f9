"""`memory=none`: prompts show the current observation alone."""

from hgpo_gym.memory.forms.window import Window
from hgpo_gym.memory.keys import KeyFunction


class NoHistory(Window):
    """Show the current observation alone, as `memory=window memory.window=0` does.

    Args:
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, observation+admissible or observation+action.
    """

    def __init__(self, *, history_length: int = 2, key: str | KeyFunction = "observation"):
        super().__init__(window=0, history_length=history_length, key=key)
