"""Published objectives besides PPO's clip.

Each file is an objective of the file's name, and is registered by being here: see `OBJECTIVES` in
`hgpo_gym.trainers.update.objectives`.
"""
