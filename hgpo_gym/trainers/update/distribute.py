"""Decide which process of a run holds which weights."""

from hgpo_gym.policies.base import LikelihoodModel
from hgpo_gym.processes import Processes, SeveralProcesses
from hgpo_gym.trainers.update.weights import Weights


def distribute(policy: LikelihoodModel, processes: Processes) -> Weights:
    """Return the weights of a policy's model as the processes of its run hold them. Make optimizers after this call."""
    if not isinstance(processes, SeveralProcesses):
        return Weights(policy)
    from hgpo_gym.trainers.update.distributed_weights import ReplicatedWeights, ShardedWeights  # a second of imports

    if processes.strategy == "fsdp2":
        return ShardedWeights(policy, processes.accelerator)
    # DDP refuses a module without trainable parameters, such as a reference policy.
    trains = any(weight.requires_grad for weight in policy.model.parameters())
    return ReplicatedWeights(policy, processes.accelerator) if trains else Weights(policy)
