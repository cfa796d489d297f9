"""Train agents: the run loop, learners, updates, critics and warm starts."""
