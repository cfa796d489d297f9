"""Published estimators, and `best_plan`, this project's own after a published idea.

Each file is an estimator of the file's name, and is registered by being here: see `hgpo_gym.advantages.estimators`.
"""
