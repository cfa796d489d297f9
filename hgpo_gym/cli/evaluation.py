"""`hgpo-gym eval`: a model, an endpoint, the expert or random actions on every task of a split."""

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hgpo_gym.analysis.transcripts import write_transcripts
from hgpo_gym.cli.errors import CommandFailed, mistakes_explained
from hgpo_gym.config.compose import parse_run
from hgpo_gym.config.of_run import changes_to, without_effect
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.experiments.evaluation import evaluate_policy, evaluated_policy
from hgpo_gym.files import check_can_be_written
from hgpo_gym.plain_text import counted
from hgpo_gym.policies.base import CannotRespondError, MeteredPolicy, NoResponseError, Policy
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.failures import EpisodesFailedError
from hgpo_gym.runs.diagnostics import CHECKS, Diagnostic
from hgpo_gym.runs.directory import NOT_SET, flatten
from hgpo_gym.trainers.environments import make_evaluation_env
from hgpo_gym.trainers.libraries import quiet_libraries

VALID_ACTIONS = next(check for check in CHECKS if check.metric == "valid_action_rate")


def evaluate(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym eval`."""
    progress, kind = Progress(), config["policy"]
    with mistakes_explained():
        settings = parse_run(config)
        out = Path(config["out"]) if config["out"] else None
        if out is not None:
            check_can_be_written(out)
        transcripts = Path(config["transcripts"]) if config["transcripts"] else None
        if transcripts is not None:
            transcripts.mkdir(parents=True, exist_ok=True)
            check_can_be_written(transcripts / "transcripts.jsonl")
        changes = {} if config["run"] is None else changes_to(Path(config["run"]), settings.resolved)
        for key, (old, new) in changes.items():
            progress.line(f"{key}: {_shown(old)} -> {_shown(new)}")
        if ignored := without_effect(parsed.overrides, config):
            progress.line(ignored)
        quiet_libraries(settings.model.threads)
        try:
            policy, iteration = evaluated_policy(config, progress)
        except EpisodesFailedError as error:
            raise CommandFailed(str(error), 1) from None
        env_options: dict[str, Any] = {"expert": True} if kind == "expert" else {}
        env = make_evaluation_env(settings.environments, settings.evaluation, **env_options)
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    place = f"{settings.env.id}, split {vector.split}"
    title = f"{kind} on {place}"
    played_by = (settings.evaluation, settings.rollout, settings.team)
    with closing(env), _failures_explained(policy):
        result = evaluate_policy(env, policy, *played_by, progress, title, keep=None if transcripts else 0)
    summary = result.summary()
    progress.line(f"{place}: success {result.success:.1%} of {counted(summary['episodes'], 'episode')}")
    if kind == "model" and summary["valid_action_rate"] < VALID_ACTIONS.limit:
        diagnostic = Diagnostic(
            VALID_ACTIONS, (), summary["valid_action_rate"], VALID_ACTIONS.limit, flatten(settings.resolved)
        )
        progress.line(str(diagnostic))
    if failures := result.failures_line:
        progress.line(failures)
    report = {"env": settings.env.id, "policy": kind, **summary}
    if config["run"] is not None:
        report |= {"run": str(config["run"]), "changed": changes}
        if iteration is not None:
            report |= {"iteration": iteration}
    if isinstance(policy, MeteredPolicy):
        report |= {"usage": policy.usage()}
    text = json.dumps(report, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    try:
        if transcripts is not None:
            progress.line(f"Transcripts: {write_transcripts(result.conversations, transcripts, title)}")
    finally:
        # The JSON for programs comes last, and is printed even if writing the transcripts fails.
        print(text)
    if isinstance(policy, MeteredPolicy):
        policy.forget()


@contextmanager
def _failures_explained(policy: Policy) -> Iterator[None]:
    """Raise CommandFailed in the block if the policy could not answer, too many episodes failed, or a metered policy
    was interrupted."""
    try:
        yield
    except (NoResponseError, EpisodesFailedError) as error:
        raise CommandFailed(str(error), 1) from None
    except CannotRespondError as error:
        raise CommandFailed(str(error), 2) from None
    except KeyboardInterrupt:
        if not isinstance(policy, MeteredPolicy):
            raise
        raise CommandFailed("interrupted. The same command continues with the responses so far.", 130) from None


def _shown(value: Any) -> str:
    return value if value == NOT_SET else json.dumps(value, ensure_ascii=False)
