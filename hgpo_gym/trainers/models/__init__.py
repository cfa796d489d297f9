"""The kinds of models that answer, see `hgpo_gym.trainers.model_kinds`."""
