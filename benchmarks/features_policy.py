"""Seconds an iteration of the features policy beside those of the tiny language model, in one process, by turns.

    python -m benchmarks.features_policy env=alfworld env.data=/data/alfworld

Both learn from all steps of as many episodes of the same tasks, with hardly a warm start. These are seconds of the
processor: those of the clock depend on who else uses the machine.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hgpo_gym.config.compose import load_run
from hgpo_gym.processes import ALONE
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.learners.policy_gradient import PolicyGradientLearner
from hgpo_gym.trainers.libraries import quiet_libraries

MODELS = ("tiny", "features")
ITERATIONS = 2
SETTINGS = ("trainer.zero_advantage=keep", "warmstart.new_model=random", "warmstart.episodes=64", "warmstart.epochs=1")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings, as of `hgpo-gym train`")
    parsed = parser.parse_args(arguments)
    learners = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            run = load_run([*SETTINGS, f"model={model}", *parsed.overrides])
            quiet_libraries(run.model.threads)
            learner = learners[model] = PolicyGradientLearner(run, ALONE, Progress())
            learner.start()
            checkpoint = Path(folder) / model
            checkpoint.mkdir()
            learner.saving().write(checkpoint)
            learner.begin(checkpoint, partial(Path, checkpoint), {"outcomes": []})
        for iteration in range(ITERATIONS):
            for model, learner in learners.items():
                began = time.process_time()
                collected = learner.collect(iteration)
                between = time.process_time()
                metrics = learner.learn(iteration, collected, between - began).metrics
                seconds = time.process_time() - between
                print(
                    f"{model:7} {metrics['steps']:6} steps  rollout {between - began:7.2f} s  update {seconds:7.2f} s"
                )
    for learner in learners.values():
        learner.close()


if __name__ == "__main__":
    main()
