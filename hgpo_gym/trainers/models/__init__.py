"""The kinds of models, see `hgpo_gym.trainers.model_kinds`."""
