"""PPO and DQN of Stable-Baselines3 (Raffin et al., JMLR 2021) in the runs of this package."""

from hgpo_gym.extras import install_command

try:
    import stable_baselines3  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"algo=sb3_ppo and algo=sb3_dqn need the package {error.name}: {install_command('sb3')}", name=error.name
    ) from error
