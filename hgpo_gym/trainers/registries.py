"""The registry of each settings group whose choices have a name and options."""

from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.memory.forms import MEMORIES
from hgpo_gym.registry import Registry
from hgpo_gym.rollouts.samplers import SAMPLERS
from hgpo_gym.rollouts.shaping import SHAPERS
from hgpo_gym.rollouts.teams import TEAMS
from hgpo_gym.trainers.learners import LEARNERS
from hgpo_gym.trainers.update.corrections import CORRECTIONS
from hgpo_gym.trainers.update.objectives import OBJECTIVES

REGISTRIES: dict[str, Registry] = {
    "algo": ESTIMATORS,
    "correction": CORRECTIONS,
    "learner": LEARNERS,
    "memory": MEMORIES,
    "objective": OBJECTIVES,
    "sampler": SAMPLERS,
    "shaping": SHAPERS,
    "team": TEAMS,
}
