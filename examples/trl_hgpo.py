"""HGPO in TRL's GRPOTrainer, on the CPU, with a model made from scratch: `python examples/trl_hgpo.py`.

The model is tiny and has read nothing, so it first imitates a few dozen conversations of somebody who half knows the
way; then TRL plays and updates. With a pretrained model leave out `tiny_chat_model`, give its name to the trainer and
the rest stays. Needs the extras `trl` and `train`.
"""

import argparse
import os
from functools import partial

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # environment_factory says that it may change

import numpy as np
import torch
from datasets import Dataset
from transformers import PrinterCallback
from trl import GRPOConfig

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.adapters.trl import StepAdvantageTrainer, ToolEnvironment, task_rows
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer

ENV = "hgpo_gym/SignpostMaze-v0"
OPTIONS = {"sections": 2, "colours": 2, "split": "all", "max_episode_steps": 10}
MARKS = ["<|user|>", "<|assistant|>", "<|tool|>", "<call>", "</call>"]
CALL = ['{"name": "act", "arguments": {"action": "', '"}}']
"""What all calls have in common, two tokens of the tiny vocabulary."""
CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
<call>{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}</call>
{%- endfor -%}
{{ eos_token }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"""
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"content": "text"},
    },
}


def conversation(rng, task_id, mistakes):
    """The messages of an episode of somebody who errs with probability `mistakes`."""
    episode = SingleEpisode(ENV, expert=True, **OPTIONS)
    messages = [{"role": "user", "content": episode.begin(task_id)}]
    while not episode.over:
        action = episode.info["expert_action"]
        if rng.random() < mistakes:
            action = str(rng.choice(episode.admissible_actions))
        call = {"type": "function", "function": {"name": "act", "arguments": {"action": action}}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "act", "content": episode.act(action)},
        ]
    return [*messages, {"role": "assistant", "content": "Done."}]


def tiny_chat_model(task_ids, *, epochs=12, seed=0):
    """A model of 0.1 million weights that can hold such a conversation, and its tokenizer."""
    rng = np.random.default_rng(seed)
    talks = [conversation(rng, task_id, mistakes=0.3) for task_id in [*task_ids] * 12]
    tokenizer = train_tokenizer([message["content"] for talk in talks for message in talk], 400)
    tokenizer.add_tokens(CALL)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.chat_template, tokenizer.response_template = CHAT_TEMPLATE, RESPONSE_TEMPLATE
    model = make_tiny_model(tokenizer, hidden_size=64, layers=2, heads=4, seed=seed, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=epochs)
    rows = [tokenizer.apply_chat_template(talk, return_dict=False) for talk in talks]
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(rows)), len(rows) // 8):
            ids = [torch.tensor(rows[row]) for row in batch]
            inputs = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
            labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
            loss = model(inputs, attention_mask=(labels != -100).long(), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return model, tokenizer


def make_trainer(
    model,
    tokenizer,
    task_ids,
    out,
    *,
    trainer=StepAdvantageTrainer,
    advantage="hgpo",
    invalid_action_penalty=0.0,
    **changes,
):
    """TRL's trainer on the maze: groups of four episodes, four tasks an update."""
    settings = {
        "num_generations": 4,
        "per_device_train_batch_size": 16,
        "max_completion_length": 400,
        "temperature": 0.7,
        "learning_rate": 3e-4,
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return trainer(
        model=model,
        args=GRPOConfig(output_dir=out, **{**settings, **changes}),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(task_rows(task_ids)),
        environment_factory=partial(ToolEnvironment, ENV, **OPTIONS),
        advantage=advantage,
        invalid_action_penalty=invalid_action_penalty,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--advantage", default="hgpo", help="an estimator by name: grpo, gigpo, hgpo, hgpo_gae")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--out", default="runs/trl", help="folder for what TRL writes")
    arguments = parser.parse_args()
    task_ids = SingleEpisode(ENV, **OPTIONS).env.unwrapped.task_ids
    trainer = make_trainer(
        *tiny_chat_model(task_ids),
        task_ids,
        arguments.out,
        advantage=arguments.advantage,
        max_steps=arguments.updates,
        logging_steps=1,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(f"update {entry['step']}: mean reward {entry['reward']:.2f}, gradient norm {entry['grad_norm']:.3f}")


if __name__ == "__main__":
    main()
