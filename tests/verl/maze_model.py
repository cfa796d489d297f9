"""A Qwen2-style model of 150,000 weights for SignpostMaze and ALFWorld: `python -m tests.verl.maze_model FOLDER`.

It imitates a player who takes the right action half of the time and any other otherwise, so that some episodes of a
group succeed and some do not. In ALFWorld it looks around, or says what is no action there.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from hgpo_gym.envs.registration import make
from hgpo_gym.memory import PromptTemplate, make_memory
from hgpo_gym.policies.huggingface import make_tiny_model, train_tokenizer

TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def imitated(
    env_id: str = "hgpo_gym/SignpostMaze-v0", episodes: int = 150, answers: Sequence[str] = (), **options: Any
) -> list[tuple[str, str]]:
    """Return pairs of prompt and response; the response is one of `answers` if there are any."""
    env, template, memory = make(env_id, expert=True, **options), PromptTemplate.named("brief"), make_memory(window=2)
    draw, pairs = random.Random(0), []
    for number in range(episodes):
        tasks = env.get_wrapper_attr("task_ids")
        observation, info = env.reset(seed=number, options={"task_id": tasks[number % len(tasks)]})
        memory.reset()
        over = False
        while not over:
            context = memory.observe(observation, info["admissible_actions"])
            action = info["expert_action"] if draw.random() < 0.5 else draw.choice(info["admissible_actions"])
            answer = draw.choice(answers) if answers else action
            pairs.append((template.render(info["task"], context), template.write_response(answer)))
            observation, _, terminated, truncated, info = env.step(action)
            memory.record(action)
            over = terminated or truncated
    return pairs


def save_maze_model(folder: str | Path, steps: int = 200) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    maze = imitated(split="train", sections=1, distance=0, max_episode_steps=8)
    answers = ("look", "inventory", "leave")
    household = imitated("hgpo_gym/ALFWorld-v0", 12, answers, split="generated", max_episode_steps=8)
    household = [(prompt, answer) for prompt, answer in household if len(prompt) < 300]  # long ones take too long
    pairs = maze + household
    trained = train_tokenizer([prompt + answer for prompt, answer in pairs], 320)
    trained.chat_template = TEMPLATE
    model = make_tiny_model(trained, hidden_size=64, layers=2, heads=2, seed=0, device="cpu")
    model.save_pretrained(folder)
    trained.save_pretrained(folder)
    # As verl loads it: some tokenizers then split text differently.
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    rows = [(tokenizer.encode(prompt), [*tokenizer.encode(answer), tokenizer.eos_token_id]) for prompt, answer in pairs]
    rows_of_maze, rows_of_household = rows[: len(maze)], rows[len(maze) :]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = random.Random(1)
    for step in range(steps):
        chosen = draw.sample(rows_of_household, 8) if step % 4 == 3 else draw.sample(rows_of_maze, 32)
        width = max(len(p) + len(a) for p, a in chosen)
        ids = torch.tensor([p + a + [tokenizer.pad_token_id] * (width - len(p) - len(a)) for p, a in chosen])
        labels = torch.full_like(ids, -100)
        for row, (p, a) in enumerate(chosen):
            labels[row, len(p) : len(p) + len(a)] = torch.tensor(a)
        mask = torch.tensor([[1] * (len(p) + len(a)) + [0] * (width - len(p) - len(a)) for p, a in chosen])
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


if __name__ == "__main__":
    save_maze_model(sys.argv[1])
