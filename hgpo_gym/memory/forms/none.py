"""`memory=none`: prompts show the current observation alone."""

from hgpo_gym.memory.memory import Memory


class NoHistory(Memory):
    """Show the current observation alone, as `memory=window memory.window=0` does.

    Args:
        history_length: K, how many past observations the context keys look back: HGPO's hierarchy has the levels 0
            to K.
        key: what counts as the observation in the keys: observation, observation+admissible or observation+action.
    """
