"""A policy of a few thousand weights, answers that it gave, and updates of it."""

import copy

import numpy as np
import torch

from hgpo_gym.advantages import StepBatch
from hgpo_gym.config.compose import load_config
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.update.corrections import NO_CORRECTION
from hgpo_gym.trainers.update.policy_update import PPO_CLIP, PolicyUpdate
from hgpo_gym.trainers.update.settings import TrainerSettings

ACTIONS = ("go left", "go right", "stay here")


def make_policy(hidden_size=32, layers=1, constrain="admissible"):
    tokenizer = train_tokenizer(["go left", "go right"] * 3, 300)
    model = make_tiny_model(tokenizer, hidden_size=hidden_size, layers=layers, heads=2, seed=0, device="cpu")
    return LanguageModelPolicy(model, tokenizer, constrain=constrain)


def responses(policy, count=24, sampling=None, prompt="place {}"):
    """Token records of responses; the prompts repeat after seven."""
    requested = [Request(prompt.format("x" * (n % 7)), ACTIONS, seed=(n,)) for n in range(count)]
    return [response.tokens for response in policy.generate(requested, sampling or Sampling())]


def settings(**changes):
    """Return the settings of configs/trainer/default.yaml, with a few changes."""
    defaults = load_config("config", [])["trainer"]
    small = {"learning_rate": 0.01, "warmup_steps": 0, "mini_batch_size": 8, "update_epochs": 2, "loss_constant": 32}
    return TrainerSettings(**{**defaults, **small, **changes})


def one_step_episodes(count):
    """A batch of `count` episodes of one step, in groups of four."""
    numbers, zeros = np.arange(count), np.zeros(count)
    keys = np.ones((count, 1), dtype=np.int64)
    return StepBatch(numbers // 4, numbers, np.zeros(count, dtype=np.int64), zeros, keys, zeros)


def updated(policy, records, advantages, *, reference=None, objective=PPO_CLIP, correction=NO_CORRECTION, **changes):
    """A copy of the policy after an update, and the metrics."""
    chosen = settings(**changes)
    changed = copy.deepcopy(policy)
    if chosen.kl_coef and reference is None:
        reference = policy
    update = watched(PolicyUpdate(changed, reference, chosen, 1.0, objective=objective, correction=correction))
    return changed, update(records, one_step_episodes(len(records)), advantages, (0,))


def gradient(policy):
    """The gradient of a watched update's last mini-batch."""
    return torch.cat([values.flatten() for values in policy.gradients])


def watched(update):
    """The update, whose policy keeps the gradients of each optimiser step until the next."""

    def keep(optimizer, *_):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        update.policy.gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]

    update.optimizer.register_step_pre_hook(keep)
    return update


def weights(policy):
    """All of them, by name."""
    return {name: value.detach().clone() for name, value in policy.model.state_dict().items()}
