"""PPO and DQN of Stable-Baselines3 (Raffin et al., JMLR 2021) in the runs of this package."""

from hgpo_gym.extras import requires_extra

with requires_extra("sb3", "algo=sb3_*"):
    import stable_baselines3  # noqa: F401
