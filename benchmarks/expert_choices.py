"""Where imitation fails in WebShop: how often a policy's likeliest action is its expert's, by what is to be chosen.

    python -m benchmarks.expert_choices model=features warmstart.source=expert
    python -m benchmarks.expert_choices model.path=models/imitated prompt=described

The expert plays, and at each of its steps with a choice the policy is asked as well, on products of the warm start
(`generated`) and on others (`generated_test`). Chance is what a uniform choice among the admissible actions agrees.
Settings are those of `hgpo-gym eval`.
"""

import argparse
import re
from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console

from hgpo_gym.cli.evaluation import evaluated_policy
from hgpo_gym.config.compose import load_config
from hgpo_gym.policies import ExpertPolicy, Policy, Request, Response, Sampling
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.evaluation import evaluate
from hgpo_gym.trainers.environments import make_evaluation_env
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.settings import RunSettings

SETTINGS = ("env=webshop", "env.split=generated", "env.describe_actions=true", "evaluation.tasks=200")
SPLITS = ("generated", "generated_test")
PAGES = ("back to search", "next >", "< prev", "description", "features", "reviews", "attributes")
KINDS = ("search", "product", "option", "page", "buy")
GREEDY = Sampling(temperature=0, max_new_tokens=64)


def kind(action: str) -> str:
    """What is chosen by an action of the shop."""
    clicked = re.fullmatch(r"click\[(.*)\]", action)
    if clicked is None:
        return "search"
    if clicked[1] == "buy now":
        return "buy"
    if clicked[1] in PAGES:
        return "page"
    return "product" if re.fullmatch("[a-z0-9]{10}", clicked[1]) else "option"


class Beside:
    """Plays as the expert, and asks a policy the same.

    Attributes:
        asked: of each step with a choice (kind, whether they agree, chance).
    """

    def __init__(self, policy: Policy):
        self._policy, self._expert = policy, ExpertPolicy()
        self.asked: list[tuple[str, bool, float]] = []

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        right = self._expert.generate(requests, sampling)
        choices = [
            (request, one.text)
            for request, one in zip(requests, right, strict=True)
            if len(request.allowed_responses) > 1
        ]
        responses = self._policy.generate([request for request, _ in choices], GREEDY)
        self.asked += [
            (
                kind(request.choices[request.allowed_responses.index(expected)]),
                response.text == expected,
                1 / len(request.allowed_responses),
            )
            for (request, expected), response in zip(choices, responses, strict=True)
        ]
        return right


def rows(asked: Iterable[tuple[str, bool, float]]) -> Iterable[str]:
    """A line a kind, in Markdown."""
    asked = list(asked)
    for name in KINDS:
        own = np.array([(agree, chance) for one, agree, chance in asked if one == name])
        if len(own):
            agree, chance = 100 * own.mean(0)
            yield f"{name} | {len(own)} | {agree:.0f} % | {chance:.0f} %"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings, as of `hgpo-gym eval`")
    parsed = parser.parse_args(arguments)
    print("| products | choice | steps | agree | chance |\n| --- | --- | ---: | ---: | ---: |")
    for split in SPLITS:
        config = load_config("eval", [*SETTINGS, *parsed.overrides, f"evaluation.split={split}"])
        run = RunSettings.parse(config)
        quiet_libraries(run.model.threads)
        policy, _ = evaluated_policy(config, run, Progress(Console(stderr=True)))
        beside = Beside(policy)
        env = make_evaluation_env(run.environments, run.evaluation, expert=True)
        evaluate(env, beside, GREEDY, [0], tasks=run.evaluation.tasks)
        env.close()
        for row in rows(beside.asked):
            print(f"| {split} | {row} |", flush=True)


if __name__ == "__main__":
    main()
