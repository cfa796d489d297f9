"""BabyAI in text: minigrid's levels, described in the words of two papers."""

from hgpo_gym.extras import requires_extra

with requires_extra("babyai", "BabyAI"):
    import minigrid.envs.babyai  # noqa: F401 - imports pygame too, which is then named if it is missing
