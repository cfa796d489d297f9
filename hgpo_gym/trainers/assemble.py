"""From a configuration to the parts of a run: environments, the policy, the weights it starts from."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from omegaconf import DictConfig, OmegaConf

from hgpo_gym.cache import cache_dir, content_key, make_whole, source_digest
from hgpo_gym.config import plain
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers import imitation, likelihood, rollout, transcripts
from hgpo_gym.trainers.checkpoint import Checkpoints
from hgpo_gym.trainers.imitation import imitate
from hgpo_gym.trainers.policies import models, scripted
from hgpo_gym.trainers.policies.base import Policy, Sampling, TokenRecord, TrainablePolicy
from hgpo_gym.trainers.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.policies.models import load_model, make_tiny_model, save_model, train_tokenizer
from hgpo_gym.trainers.policies.scripted import ExpertPolicy, RandomPolicy
from hgpo_gym.trainers.policies.tabular import Table, TabularPolicy
from hgpo_gym.trainers.progress import Report
from hgpo_gym.trainers.rollout import collect
from hgpo_gym.trainers.schedule import TaskSchedule
from hgpo_gym.trainers.settings import RolloutSettings, TrainerSettings, WarmstartSettings
from hgpo_gym.trainers.transcripts import Transcript

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

WARMSTART_STREAM = 4
RUNTIME_SETTINGS = ("device", "threads")
"""Settings of the model group that its weights do not depend on."""


def make_env(config: DictConfig, *, num_tasks: int, group_size: int, workers: int, **changes: Any) -> ContextWrapper:
    """The configured environment, vectorised, with memory and prompts. `changes` replace options of the environment."""
    options = {**plain(config.env), **changes}
    vector = TextVectorEnv(options.pop("id"), num_tasks=num_tasks, group_size=group_size, workers=workers, **options)
    return ContextWrapper(vector, make_prompt(config), **plain(config.memory))


def make_training_env(config: DictConfig) -> ContextWrapper:
    """The training split: `rollout.num_tasks` groups of `rollout.group_size`."""
    settings = RolloutSettings(**plain(config.rollout))
    return make_env(config, num_tasks=settings.num_tasks, group_size=settings.group_size, workers=settings.workers)


def make_evaluation_env(config: DictConfig, **changes: Any) -> ContextWrapper:
    """The evaluation split, one episode a task, `evaluation.num_envs` side by side."""
    if config.evaluation.split is not None:
        changes["split"] = config.evaluation.split
    return make_env(
        config, num_tasks=config.evaluation.num_envs, group_size=1, workers=config.rollout.workers, **changes
    )


def make_prompt(config: DictConfig) -> PromptTemplate:
    return PromptTemplate(**plain(config.prompt))


def make_policy(
    config: DictConfig, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase"
) -> LanguageModelPolicy:
    return LanguageModelPolicy(model, tokenizer, **plain(config.engine))


def make_evaluated_policy(config: DictConfig, report: Report) -> Policy:
    """The policy that `hgpo-gym eval` was asked for: `expert`, `random`, or a model.

    Raises:
        ValueError: another name.
        FileNotFoundError: the run has no checkpoint.
    """
    if config.policy not in ("model", "expert", "random"):
        raise ValueError(unknown_name("policy", config.policy, ["model", "expert", "random"]))
    if config.policy == "expert":
        return ExpertPolicy()
    if config.policy == "random":
        return RandomPolicy()
    if config.run is None:
        return initial_policy(config, report)
    newest = Checkpoints(Path(config.run) / "checkpoints", keep=1).newest()
    if newest is None:
        raise FileNotFoundError(f"run={config.run} has no checkpoint: expected {config.run}/checkpoints/iteration_*.")
    if (kind := OmegaConf.load(Path(config.run) / "config.yaml").model.kind) != config.model.kind:
        raise ValueError(f"run={config.run} has model.kind={kind}, not {config.model.kind}: set the same model=.")
    return load_policy(config, newest / "model")


class PolicyKind(NamedTuple):
    """How policies of one kind begin, and how they are loaded from a folder that they were saved in."""

    initial: Callable[[DictConfig, Report], TrainablePolicy]
    load: Callable[[DictConfig, Path], TrainablePolicy]


def initial_policy(config: DictConfig, report: Report) -> TrainablePolicy:
    """The policy that training starts from."""
    return _kind(config).initial(config, report)


def load_policy(config: DictConfig, folder: Path) -> TrainablePolicy:
    """A policy that was saved in `folder`. Raises FileNotFoundError if there is none of this kind."""
    return _kind(config).load(config, folder)


def _kind(config: DictConfig) -> PolicyKind:
    if config.model.kind not in POLICY_KINDS:
        raise ValueError(unknown_name("model.kind", config.model.kind, POLICY_KINDS))
    return POLICY_KINDS[config.model.kind]


def _initial_language_model(config: DictConfig, report: Report) -> TrainablePolicy:
    return make_policy(config, *initial_model(config, report))


def _load_language_model(config: DictConfig, folder: Path) -> TrainablePolicy:
    return make_policy(config, *load_model(str(folder), device=config.model.device))


def _initial_table(config: DictConfig, _report: Report) -> TabularPolicy:
    if config.warmstart.source != "none":
        raise ValueError(f"warmstart.source={config.warmstart.source}: a table starts uniform; set it to none.")
    level = config.memory.history_length if config.model.level is None else config.model.level
    return _check_level(TabularPolicy(Table(config.model.capacity), level), config)


def _load_table(config: DictConfig, folder: Path) -> TabularPolicy:
    return _check_level(TabularPolicy.load(folder), config)


def _check_level(policy: TabularPolicy, config: DictConfig) -> TabularPolicy:
    deepest = config.memory.history_length
    if not 0 <= policy.level <= deepest:
        raise ValueError(f"model.level={policy.level}: memory.history_length={deepest} makes levels 0 to {deepest}.")
    return policy


POLICY_KINDS = {
    "language_model": PolicyKind(_initial_language_model, _load_language_model),
    "tabular": PolicyKind(_initial_table, _load_table),
}


def initial_model(config: DictConfig, report: Report) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """The weights that training starts from: loaded or made, and warm-started.

    What is made or warm-started is kept in the cache under a key of all the settings that it depends on, so that every
    algorithm and training seed starts from the same weights.

    Raises:
        ValueError: the policy is not a language model.
    """
    if config.model.kind != "language_model":
        raise ValueError(f"model.kind={config.model.kind}: only a language model has a warm start.")
    if config.model.path is not None and config.warmstart.source == "none":
        return load_model(config.model.path, device=config.model.device)
    settings = {name: plain(config[name]) for name in ("memory", "prompt", "model", "warmstart")}
    for name in RUNTIME_SETTINGS:
        del settings["model"][name]
    episodes, episodes_key = warmstart_transcripts(config, report)
    folder = (
        cache_dir() / "models" / content_key([source_digest(models, imitation, likelihood), settings, episodes_key])
    )
    if not folder.exists():
        model, tokenizer = _make_model(config, episodes, report)
        make_whole(folder, lambda target: save_model(model, tokenizer, target))
    report.line(f"Initial weights: {folder}")
    return load_model(str(folder), device=config.model.device)


def warmstart_transcripts(config: DictConfig, report: Report) -> tuple[list[Transcript], str]:
    """Episodes of the scripted policy that the warm start imitates, collected once, and their key in the cache.

    With `warmstart.source=none` these are random episodes, from which the tokenizer learns the environment's words.
    """
    expert = config.warmstart.source == "expert"
    settings = WarmstartSettings(**plain(config.warmstart))
    num_tasks = min(settings.episodes, 32)
    env = make_env(
        config,
        num_tasks=num_tasks,
        group_size=1,
        workers=config.rollout.workers,
        **({"expert": True} if expert else {}),
    )
    vector: TextVectorEnv = env.unwrapped  # type: ignore[assignment]
    options = {name: value for name, value in plain(config.env).items() if name != "data"}
    behaviour = ["expert", settings.random_actions] if expert else ["random"]
    made_by = source_digest(transcripts, rollout, scripted)
    key = content_key([made_by, options, list(vector.task_ids), behaviour, settings.episodes, config.model.seed])
    path = cache_dir() / "transcripts" / key / "episodes.jsonl"
    if not path.exists():
        policy: Policy = ExpertPolicy(settings.random_actions) if expert else RandomPolicy()
        schedule = TaskSchedule(vector.task_ids, config.model.seed).tasks(0, settings.episodes)
        collected: list[Transcript] = []
        with report.stage(f"Collecting {settings.episodes} {'expert' if expert else 'random'} episodes") as tick:
            while len(collected) < settings.episodes:
                first = len(collected)
                tasks = schedule[first : first + num_tasks]
                seeds = [(WARMSTART_STREAM, config.model.seed, first + index) for index in range(len(tasks))]
                collected += transcripts.from_rollout(collect(env, policy, Sampling(), task_ids=tasks, seeds=seeds))
                tick(len(collected), settings.episodes, f"{sum(episode.won for episode in collected)} won")
        make_whole(path.parent, lambda folder: transcripts.save(collected, folder / path.name))
    env.close()
    return transcripts.load(path), key


def _make_model(
    config: DictConfig, episodes: list[Transcript], report: Report
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    memory, template = Memory(**plain(config.memory)), make_prompt(config)
    settings = WarmstartSettings(**plain(config.warmstart))
    pairs = [pair for episode in episodes for pair in episode.prompts(memory, template)]
    if config.model.path is None:
        options = plain(config.model)
        del options["kind"], options["path"], options["threads"]
        texts = (prompt + answer for prompt, answer in pairs)
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(texts, options.pop("vocabulary_size"))
        model = make_tiny_model(tokenizer, **options)
    else:
        model, tokenizer = load_model(config.model.path, device=config.model.device)
    if settings.source == "none":
        return model, tokenizer
    policy = make_policy(config, model, tokenizer)
    records = _records(policy, [episode for episode in episodes if episode.won or settings.source == "random"], config)
    with report.stage(f"Warm start: imitating {len(records)} {settings.source} actions") as tick:
        loss = imitate(
            model,
            records,
            settings,
            max_batch_tokens=TrainerSettings(**plain(config.trainer)).max_batch_tokens,
            seed=config.model.seed,
            on_progress=lambda done, steps, loss: tick(done, steps, f"loss {loss:.3f}"),
        )
    report.line(f"Warm start: {len(records)} actions, loss {loss:.4f} nats a token in the last epoch")
    return model, tokenizer


def _records(policy: LanguageModelPolicy, episodes: list[Transcript], config: DictConfig) -> list[TokenRecord]:
    memory, template = Memory(**plain(config.memory)), make_prompt(config)
    records = []
    for episode in episodes:
        for prompt, answer in episode.prompts(memory, template):
            answer_ids = policy.encode_answer(answer)
            records.append(
                TokenRecord(policy.encode_prompt(prompt), answer_ids, np.zeros(len(answer_ids), dtype=np.float32))
            )
    return records
