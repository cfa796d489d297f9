"""HGPO by verl's advantage registry, on the CPU, with a model made from scratch: `python examples/verl_advantages.py`.

The tiny model plays groups of episodes, one prompt and response a step, as verl's agent loops hand them over; verl's
`compute_advantage` finds our estimator by name, and verl's policy loss makes an update of it. In a run of verl's
trainer it is `algorithm.adv_estimator=hgpo trainer.v1.trainer_mode=steps_sync`. Needs the extras `verl` and `train`.
"""

import argparse

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.workers.config import ActorConfig

import hgpo_gym as hg
from hgpo_gym.adapters.verl import FIELDS, row_steps
from hgpo_gym.policies import Sampling
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.rollouts.collect import collect


def play(num_tasks=2, group_size=6):
    """Episodes of a tiny model that answers with admissible actions, and the model."""
    vector = hg.TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, sections=1, colours=2, split="all")
    env = hg.ContextWrapper(vector, window=2, history_length=2)
    prompts, _ = env.reset(seed=0)
    tokenizer = train_tokenizer(prompts, 300)
    model = make_tiny_model(tokenizer, hidden_size=32, layers=2, heads=2, seed=0, device="cpu")
    policy = LanguageModelPolicy(model, tokenizer, constrain="admissible")
    seeds = [(0, task) for task in range(num_tasks)]
    return policy, collect(env, policy, Sampling(), task_ids=vector.task_ids[:num_tasks], seeds=seeds)


def as_verl_batch(rollout):
    """A row a step: what verl's trainer holds when it computes advantages, and which step each row is."""
    batch = rollout.batch
    responses = [torch.as_tensor(record.token_ids) for record in rollout.tokens]
    logprobs = [torch.as_tensor(record.logprobs) for record in rollout.tokens]
    mask = pad_sequence([torch.ones(len(response)) for response in responses], batch_first=True)
    data = DataProto.from_dict(
        tensors={
            "responses": pad_sequence(responses, batch_first=True),
            "response_mask": mask,
            "old_log_probs": pad_sequence(logprobs, batch_first=True),
            "token_level_rewards": torch.zeros_like(mask),
        },
        non_tensors={"uid": np.array([f"task {group}" for group in batch.group], dtype=object)},
    )
    columns = zip(batch.trajectory, batch.step, batch.reward, batch.context_keys, strict=True)
    return data, [[dict(zip(FIELDS, values, strict=True))] for values in columns]


def log_probs(policy, rollout, like):
    """Return the model's current log-probabilities, in the shape of `like`; 0 where only one token was admissible."""
    values = torch.zeros_like(like)
    chosen = [row for row, record in enumerate(rollout.tokens) if len(record.choices)]
    of_choices = policy.likelihood([rollout.tokens[row] for row in chosen], temperature=1.0).logprobs
    rows = np.repeat(chosen, [len(rollout.tokens[row].choices) for row in chosen])
    columns = np.concatenate([rollout.tokens[row].choices for row in chosen])
    return values.index_put((torch.as_tensor(rows), torch.as_tensor(columns)), of_choices)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--advantage", default="hgpo", help="a name in verl's registry: gigpo, hgpo, hgpo_gym.grpo, ..."
    )
    name = parser.parse_args().advantage
    policy, rollout = play()
    data, steps = as_verl_batch(rollout)
    with row_steps(steps):
        data = compute_advantage(data, name, config=AlgoConfig(adv_estimator=name, gamma=0.95))
    advantages, mask, old = (data.batch[key] for key in ("advantages", "response_mask", "old_log_probs"))

    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    actor = ActorConfig(strategy="fsdp", rollout_n=6, ppo_micro_batch_size_per_gpu=len(data))
    for update in range(3):
        loss, metrics = get_policy_loss_fn("vanilla")(
            old, log_probs(policy, rollout, old), advantages, mask, "token-mean", actor
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"update {update + 1}: loss {loss:.4f}, KL to before {metrics['actor/ppo_kl']:.4f}")

    ours = hg.estimate(name.removeprefix("hgpo_gym."), rollout.batch)
    apart = np.abs(advantages[:, 0].numpy() - ours).max()
    print(f"{len(rollout.episodes)} episodes, {len(data)} steps; verl's {name} and ours are {apart:.1e} apart.")


if __name__ == "__main__":
    main()
