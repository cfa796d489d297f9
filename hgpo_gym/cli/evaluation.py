"""`hgpo-gym eval`: a model, an endpoint, the expert or random actions on every task of a split."""

import argparse
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hgpo_gym.analysis.transcripts import write_transcripts
from hgpo_gym.cli.errors import CommandFailed, mistakes_explained
from hgpo_gym.config.of_run import changes_to, unread
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.files import cache_dir, check_can_be_written, content_key
from hgpo_gym.memory.prompts import UNEXPLAINED
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.plain_text import counted
from hgpo_gym.policies.base import CannotAnswerError, MeteredPolicy, NoAnswerError, Policy
from hgpo_gym.policies.endpoint_settings import EndpointSettings
from hgpo_gym.policies.kept_answers import KeptAnswers
from hgpo_gym.policies.scripted import ExpertPolicy, RandomPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts.evaluation import Evaluation
from hgpo_gym.rollouts.evaluation import evaluate as play_all
from hgpo_gym.rollouts.failures import EpisodesFailedError
from hgpo_gym.rollouts.teams import TEAMS
from hgpo_gym.runs.checkpoints import Checkpoints, read_state
from hgpo_gym.runs.diagnostics import CHECKS, Diagnostic
from hgpo_gym.runs.directory import NOT_SET, flatten
from hgpo_gym.section import parse_section
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.environments import make_evaluation_env
from hgpo_gym.trainers.libraries import quiet_libraries
from hgpo_gym.trainers.run import make_learner
from hgpo_gym.trainers.settings import RunSettings

VALID_ACTIONS = next(check for check in CHECKS if check.metric == "valid_action_rate")
EVALUATED_POLICIES = ("model", "expert", "random", "openai")


def evaluate(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """`hgpo-gym eval`"""
    progress, kind = Progress(), config["policy"]
    with mistakes_explained():
        settings = RunSettings.parse(config)
        out = Path(config["out"]) if config["out"] else None
        if out is not None:
            check_can_be_written(out)
        transcripts = Path(config["transcripts"]) if config["transcripts"] else None
        if transcripts is not None:
            transcripts.mkdir(parents=True, exist_ok=True)
            check_can_be_written(transcripts / "transcripts.jsonl")
        changes = {} if config["run"] is None else changes_to(Path(config["run"]), settings)
        for key, (before, now) in changes.items():
            progress.line(f"{key}: {_shown(before)} -> {_shown(now)}")
        if without_effect := unread(parsed.overrides, config):
            progress.line(without_effect)
        quiet_libraries(settings.model.threads)
        try:
            policy, iteration = evaluated_policy(config, settings, progress)
        except EpisodesFailedError as error:
            raise CommandFailed(str(error), 1) from None
        own: dict[str, Any] = {"expert": True} if kind == "expert" else {}
        env = make_evaluation_env(settings, **own)
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    place = f"{settings.env.id}, split {vector.split}"
    title = f"{kind} on {place}"
    try:
        result = _played(env, policy, settings, progress, title, keep=None if transcripts else 0)
    finally:
        env.close()
    summary = result.summary()
    progress.line(f"{place}: success {result.success:.1%} of {counted(summary['episodes'], 'episode')}")
    if kind == "model" and summary["valid_action_rate"] < VALID_ACTIONS.limit:
        few = Diagnostic(
            VALID_ACTIONS, (), summary["valid_action_rate"], VALID_ACTIONS.limit, flatten(settings.resolved)
        )
        progress.line(str(few))
    if told := result.failures_told:
        progress.line(told)
    said = {"env": settings.env.id, "policy": kind, **summary}
    if config["run"] is not None:
        said |= {"run": str(config["run"]), "changed": changes}
        if iteration is not None:
            said |= {"iteration": iteration}
    if isinstance(policy, MeteredPolicy):
        said |= {"usage": policy.usage()}
    text = json.dumps(said, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    try:
        if transcripts is not None:
            progress.line(f"Transcripts: {write_transcripts(result.conversations, transcripts, title)}")
    finally:
        # What programs read comes last, and however the transcripts end.
        print(text)
    if isinstance(policy, MeteredPolicy):
        policy.forget()


def _played(
    env: ContextWrapper, policy: Policy, settings: RunSettings, progress: Progress, title: str, *, keep: int | None
) -> Evaluation:
    """What the policy does on all tasks; of one that is metered, also what that came to, however it ends.

    Raises:
        CommandFailed: the policy could not answer, too many episodes failed, or a metered policy was interrupted.
    """
    evaluation, metered = settings.evaluation, policy if isinstance(policy, MeteredPolicy) else None
    try:
        with metered or nullcontext(), progress.stage(title) as report_progress:
            return play_all(
                env,
                policy,
                evaluation.sampling(settings.rollout.max_new_tokens),
                range(evaluation.decoding_seeds),
                lambda done, total, steps: report_progress(done, total, f"episodes, {counted(steps, 'step')}"),
                team=TEAMS.bind(settings.team)(),
                tasks=evaluation.tasks,
                keep=keep,
                max_retries=settings.rollout.max_retries or 0,
                max_failed=settings.rollout.max_failed,
            )
    except (NoAnswerError, EpisodesFailedError) as error:
        raise CommandFailed(str(error), 1) from None
    except CannotAnswerError as error:
        raise CommandFailed(str(error), 2) from None
    except KeyboardInterrupt:
        if not metered:
            raise
        raise CommandFailed("interrupted. The same command goes on with the answers so far.", 130) from None
    finally:
        if metered:
            progress.line(metered.describe_usage())


def evaluated_policy(config: Mapping[str, Any], settings: RunSettings, progress: Progress) -> tuple[Policy, int | None]:
    """The policy that was asked for: `expert`, `random`, a model, or `openai`, a model elsewhere; and the iteration of
    the run's checkpoint that it is, if it is one.

    Raises:
        ValueError: another name, or settings that do not suit the policy.
        FileNotFoundError: the run has no checkpoint, or not that one.
        InvalidCheckpointError: the checkpoint is damaged.
    """
    kind = config["policy"]
    if kind not in EVALUATED_POLICIES:
        raise ValueError(unknown_name("policy", kind, EVALUATED_POLICIES))
    if config["iteration"] != "newest" and (kind != "model" or config["run"] is None):
        raise ValueError(f"iteration={config['iteration']}: of which run? Name it by run=, with policy=model.")
    if kind == "expert":
        return ExpertPolicy(), None
    if kind == "random":
        return RandomPolicy(), None
    if kind == "openai":
        return _endpoint_policy(config, settings, progress), None
    if config["run"] is None:
        learner = make_learner(settings, progress)
        learner.start()
        return learner.policy, None
    run = Path(config["run"])
    checkpoints = Checkpoints(run / "checkpoints")
    if checkpoints.newest() is None:
        raise FileNotFoundError(f"run={run} has no checkpoint: expected {checkpoints.folder}/iteration_*.")
    checkpoint = checkpoints.choose(config["iteration"], progress.line)
    learner = make_learner(settings, progress)
    learner.load(checkpoint)
    return learner.policy, read_state(checkpoint)["iteration"]


def _shown(value: Any) -> str:
    return value if value == NOT_SET else json.dumps(value, ensure_ascii=False)


def _endpoint_policy(config: Mapping[str, Any], settings: RunSettings, progress: Progress) -> Policy:
    endpoint = parse_section(EndpointSettings, config["openai"], "openai.")
    if (constrain := settings.engine.options["constrain"]) != "none":
        raise ValueError(
            f"engine.constrain={constrain}: what an endpoint answers cannot be constrained. Set engine.constrain=none, "
            "and prompt=instruct, which tells the model how to answer."
        )
    from hgpo_gym.policies.endpoint import EndpointPolicy

    prompt = asdict(settings.prompt)
    if settings.prompt.unexplained:
        progress.line(UNEXPLAINED)
    asked = [endpoint.base_url, endpoint.model, endpoint.chat, endpoint.extra, prompt, settings.resolved["env"]]
    kept = KeptAnswers(cache_dir() / "answers" / f"{content_key([*asked, settings.evaluation.split])}.jsonl")
    if kept:
        progress.line(f"Going on with {len(kept):,} answers in {kept.path}; remove it to ask anew.")
    return EndpointPolicy(endpoint, kept)
