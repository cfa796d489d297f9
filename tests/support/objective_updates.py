"""An update of a small model by every objective; as a program, in the processes of a launcher.

torchrun --nproc_per_node=2 -m tests.support.objective_updates OUT.pt
"""

import sys

import numpy as np
import torch

from hgpo_gym.advantages import Advantages
from hgpo_gym.policies import Sampling
from hgpo_gym.processes import ALONE, SeveralProcesses
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.corrections import NO_CORRECTION
from hgpo_gym.trainers.update.objectives import OBJECTIVES
from hgpo_gym.trainers.update.policy_update import PolicyUpdate
from tests.support.small_models import gradient, make_policy, one_step_episodes, responses, settings, watched
from tests.support.token_cases import NEEDED

COUNT = 24
ONE_LEFT = np.eye(COUNT)[0]
"""Advantages of which one response's alone is not 0."""
ADVANTAGES = Advantages(np.linspace(-1, 1, COUNT), {"target": np.linspace(0.1, 0.9, COUNT)})


def drawn():
    """Answers at a temperature that is not the trainer's, so that ratios are not 1."""
    return responses(make_policy(), COUNT, Sampling(temperature=0.4))


def update_by(
    name, records, processes=ALONE, *, seed=(0, 0, 0), advantages=ADVANTAGES, correction=NO_CORRECTION, **changes
):
    """The last mini-batch's gradient and the metrics of an update of the small policy."""
    policy = make_policy()
    chosen = settings(**{"mini_batch_size": COUNT, "update_epochs": 1, "max_grad_norm": 1e9, **changes})
    objective = Choice(name, NEEDED.get(name, {}))
    update = watched(PolicyUpdate(policy, None, chosen, 1.0, processes, objective, correction))
    metrics = update(records, one_step_episodes(COUNT), advantages, seed)
    return gradient(policy), metrics


def update_without_advantages(processes):
    """The metrics of an update in which there is nothing to learn, with what comes before one."""
    policy = make_policy()
    update = PolicyUpdate(policy, None, settings(recompute_logprobs=True), 1.0, processes, Choice("hapo", {}))
    return update(drawn(), one_step_episodes(COUNT), np.zeros(COUNT), (0, 0, 0))


def gradients_are_buckets(processes):
    """Return True if the gradients of replicas are views of DDP's buckets, so that they exist once."""
    policy = make_policy()
    update = PolicyUpdate(policy, None, settings(), 1.0, processes)
    views = []
    update.optimizer.register_step_pre_hook(
        lambda *_: views.extend(weight.grad._is_view() for weight in policy.model.parameters())
    )
    update(drawn(), one_step_episodes(COUNT), ADVANTAGES, (0, 0, 0))
    return all(views) and len(views) > 0


def main(out):
    processes = SeveralProcesses("ddp", on_cpu=True)
    results = {name: update_by(name, drawn(), processes, max_batch_tokens=60) for name in OBJECTIVES}
    one_left = update_by("clip_cov", drawn(), processes, advantages=ONE_LEFT)
    none_left = update_without_advantages(processes)
    in_buckets = gradients_are_buckets(processes)
    if processes.main:
        outcome = {"results": results, "in_buckets": in_buckets, "one_left": one_left, "none_left": none_left}
        torch.save(outcome, out)
    processes.close()


if __name__ == "__main__":
    main(sys.argv[1])
