"""Which process of a run holds which weights."""

from hgpo_gym.policies.base import Scorer
from hgpo_gym.processes import Processes, SeveralProcesses
from hgpo_gym.trainers.update.weights import Weights


def distribute(scorer: Scorer, processes: Processes) -> Weights:
    """The weights of a scorer's model as the processes of its run are to hold them. An optimizer is made after this."""
    if not isinstance(processes, SeveralProcesses):
        return Weights(scorer)
    from hgpo_gym.trainers.update.distributed_weights import ReplicatedWeights, ShardedWeights  # a second of imports

    if processes.strategy == "fsdp2":
        return ShardedWeights(scorer, processes.accelerator)
    trains = any(weight.requires_grad for weight in scorer.model.parameters())
    return ReplicatedWeights(scorer, processes.accelerator) if trains else Weights(scorer)
