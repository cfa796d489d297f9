"""`memory=full`: prompts show the whole episode."""

from hgpo_gym.memory.forms.window import Window
from hgpo_gym.memory.keys import KeyFunction


class Full(Window):
    """Show the whole episode, as `memory=window memory.window=null` does.

    Args:
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, observation+admissible or observation+action.
    """

    def __init__(self, *, history_length: int = 2, key: str | KeyFunction = "observation"):
        super().__init__(window=None, history_length=history_length, key=key)
