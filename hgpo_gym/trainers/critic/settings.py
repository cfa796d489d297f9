"""The settings of a critic."""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from hgpo_gym.section import SettingsSection


class CriticSettings(SettingsSection):
    """A critic reads the policy's last hidden state at the end of the prompt. Its gradient does not reach the policy.
    For model=tabular it is a table of contexts.

    Args:
        learning_rate: of Adam; null is 3e-3, and 0.1 for a table.
        epochs: passes over the steps of one rollout, after the policy's update.
        mini_batch_size: steps in an optimiser step.
        hidden_size: of the one hidden layer; 0 is a linear function of the state.
        clip: PPO's bound, in the unit of rewards, on how far a value may move in an iteration and still be rewarded for
            it; null has none.
        max_grad_norm: a longer gradient is shortened to this.
    """

    learning_rate: NonNegativeFloat | None = None
    epochs: NonNegativeInt = 4
    mini_batch_size: PositiveInt = 64
    hidden_size: Annotated[int, Field(ge=0, le=65_536)] = 64
    clip: PositiveFloat | None = None
    max_grad_norm: PositiveFloat = 1.0
