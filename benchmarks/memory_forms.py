"""Does an agent that writes notes learn a maze that no window of two steps solves, and what does each form cost?

    python -m benchmarks.memory_forms [--seeds 3] [--forms notes] [--out runs/memory_forms]

The signpost of this maze is four observations before its hall, and the step limit leaves no time for a wrong door, so
that an agent that does not know the sign wins one episode in three. All forms imitate the same episodes of an expert
and learn by HGPO. Token counts are of one episode in the last iteration.
"""

import argparse
from pathlib import Path

import numpy as np

import hgpo_gym as hg
from hgpo_gym.runs.directory import read_metrics, read_summary

MAZE = (
    "env.sections=1", "env.distance=3", "env.max_episode_steps=5", "env.split=all", "evaluation.split=all",
    "rollout.num_tasks=2", "rollout.group_size=4", "rollout.max_new_tokens=16", "engine.constrain=none", "model=tiny",
    "warmstart.source=expert", "warmstart.episodes=150", "warmstart.epochs=8", "warmstart.batch_size=16",
    "evaluation.decoding_seeds=8", "trainer.iterations=2",
)  # fmt: skip
FORMS = {
    "window of 2": ["memory=window", "memory.window=2"],
    "whole episode": ["memory=full"],
    "notes": ["memory=notes", "memory.key=observation+notes"],
    "notes every 3 steps": ["memory=notes", "memory.every=3", "memory.key=observation+notes"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--out", type=Path, default=Path("runs/memory_forms"))
    args = parser.parse_args()
    rows = {form: [played(form, seed, args.out) for seed in range(args.seeds)] for form in args.forms}
    print(f"{'':<22}{'imitation, %':>14}{'trained, %':>12}{'prompt tokens':>15}{'response tokens':>17}")
    for form, numbers in rows.items():
        before, after, prompts, responses = np.mean(numbers, axis=0)
        print(f"{form:<22}{100 * before:>14.1f}{100 * after:>12.1f}{prompts:>15.0f}{responses:>17.0f}")


def played(form: str, seed: int, out: Path) -> tuple[float, float, float, float]:
    """Return success before and after training, and the prompt and response tokens of an episode."""
    run = out / f"{form.replace(' ', '_')}-seed{seed}"
    hg.train(overrides=[*MAZE, *FORMS[form]], seed=seed, run_dir=run, resume=True, progress=False)
    first, *_, last = read_summary(run)["evaluations"]
    line = read_metrics(run)[-1]
    return first["success"], last["success"], line["prompt_tokens_episode"], line["response_tokens_episode"]


if __name__ == "__main__":
    main()
