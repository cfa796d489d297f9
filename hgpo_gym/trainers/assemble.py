"""From a configuration to the parts of a run: environments, the policy, the weights it starts from."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from hgpo_gym.config.compose import plain
from hgpo_gym.envs.vector import TextVectorEnv
from hgpo_gym.files import cache_dir, content_key, make_whole, source_digest
from hgpo_gym.memory.memory import Memory
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.memory.wrapper import ContextWrapper
from hgpo_gym.progress import Progress
from hgpo_gym.randomness import Stream
from hgpo_gym.suggest import unknown_name
from hgpo_gym.trainers.baselines import is_baseline
from hgpo_gym.trainers.checkpoint import Checkpoints, read_state
from hgpo_gym.trainers.evaluation import best_evaluation
from hgpo_gym.trainers.policies import likelihood, models, scripted
from hgpo_gym.trainers.policies.base import Policy, Sampling, Scorer, TokenRecord, TrainablePolicy
from hgpo_gym.trainers.policies.kept_answers import KeptAnswers
from hgpo_gym.trainers.policies.language_model import LanguageModelPolicy
from hgpo_gym.trainers.policies.lora import CONFIG as ADAPTER_CONFIG
from hgpo_gym.trainers.policies.lora import WithoutAdapter, add_adapter, base_of, has_adapter, load_adapter
from hgpo_gym.trainers.policies.models import load_model, make_tiny_model, save_model, train_tokenizer
from hgpo_gym.trainers.policies.scripted import ExpertPolicy, RandomPolicy
from hgpo_gym.trainers.policies.tabular import Table, TabularPolicy
from hgpo_gym.trainers.policies.vllm_policy import VllmPolicy
from hgpo_gym.trainers.processes import ALONE, Processes
from hgpo_gym.trainers.rollouts import collect as rollout
from hgpo_gym.trainers.rollouts import player, transcripts
from hgpo_gym.trainers.rollouts.collect import collect
from hgpo_gym.trainers.rollouts.samplers import tasks_in_order
from hgpo_gym.trainers.rollouts.transcripts import Transcript
from hgpo_gym.trainers.run_directory import read_config
from hgpo_gym.trainers.settings import (
    EndpointSettings,
    LoraSettings,
    RolloutSettings,
    TrainerSettings,
    WarmstartSettings,
)
from hgpo_gym.trainers.warm_start import imitation
from hgpo_gym.trainers.warm_start.imitation import imitate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

EVALUATED_POLICIES = ("model", "expert", "random", "openai")
RUNTIME_SETTINGS = ("device", "threads", "dtype", "quantization", "lora")
"""Settings of the model group that the initial weights do not depend on."""


def make_env(config: DictConfig, *, num_tasks: int, group_size: int, workers: int, **changes: Any) -> ContextWrapper:
    """The configured environment, vectorised, with memory and prompts. `changes` replace options of the environment."""
    options = {**plain(config.env), **changes}
    vector = TextVectorEnv(options.pop("id"), num_tasks=num_tasks, group_size=group_size, workers=workers, **options)
    return ContextWrapper(vector, make_prompt(config), **plain(config.memory))


def make_training_env(config: DictConfig, processes: Processes = ALONE) -> ContextWrapper:
    """The training split: this process' share of `rollout.num_tasks` groups of `rollout.group_size`."""
    settings = RolloutSettings(**plain(config.rollout))
    groups = len(processes.share(range(settings.num_tasks)))
    return make_env(config, num_tasks=groups, group_size=settings.group_size, workers=settings.workers)


def make_evaluation_env(config: DictConfig, processes: Processes = ALONE, **changes: Any) -> ContextWrapper:
    """The evaluation split, one episode a task, this process' share of `evaluation.num_envs` side by side."""
    if config.evaluation.split is not None:
        changes["split"] = config.evaluation.split
    share = len(processes.share(range(config.evaluation.num_envs)))
    return make_env(config, num_tasks=max(1, share), group_size=1, workers=config.rollout.workers, **changes)


def make_prompt(config: DictConfig) -> PromptTemplate:
    return PromptTemplate(**plain(config.prompt))


ENGINES: dict[str, Callable[..., TrainablePolicy]] = {"transformers": LanguageModelPolicy, "vllm": VllmPolicy}
"""What generates the answers of a language model, by `engine.kind`."""


def make_policy(config: DictConfig, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> TrainablePolicy:
    options = plain(config.engine)
    kind = options.pop("kind")
    if kind not in ENGINES:
        raise ValueError(unknown_name("engine.kind", kind, ENGINES))
    return ENGINES[kind](model, tokenizer, **options)


def make_evaluated_policy(config: DictConfig, progress: Progress) -> Policy:
    """The policy that `hgpo-gym eval` was asked for: `expert`, `random`, a model, or `openai`, a model elsewhere.

    Raises:
        ValueError: another name, or settings that do not suit the policy.
        FileNotFoundError: the run has no checkpoint, or not that one.
        UnsoundError: the checkpoint is damaged.
    """
    if config.policy not in EVALUATED_POLICIES:
        raise ValueError(unknown_name("policy", config.policy, EVALUATED_POLICIES))
    if config.policy == "expert":
        return ExpertPolicy()
    if config.policy == "random":
        return RandomPolicy()
    if config.policy == "openai":
        return _make_endpoint_policy(config, progress)
    if config.run is None:
        return initial_policy(config, progress)
    run = Path(config.run)
    checkpoint = _checkpoint(run, config.iteration, progress)
    trained = read_config(run)
    if is_baseline(trained) or is_baseline(config):
        if trained.algo.name != config.algo.name:
            raise ValueError(
                f"run={config.run} has algo={trained.algo.name}, not {config.algo.name}: set the same algo=."
            )
    elif (kind := trained.model.kind) != config.model.kind:
        raise ValueError(f"run={config.run} has model.kind={kind}, not {config.model.kind}: set the same model=.")
    return load_policy(config, checkpoint / "model")


def _checkpoint(run: Path, iteration: str | int, progress: Progress) -> Path:
    """The checkpoint of a run that `iteration` means: newest, best or a number."""
    checkpoints = Checkpoints(run / "checkpoints")
    if isinstance(iteration, int):
        return checkpoints.sound(iteration)
    if iteration not in ("newest", "best"):
        raise ValueError(unknown_name("iteration", iteration, ["newest", "best", "0", "1"]))
    newest = checkpoints.newest_sound(progress.line)
    if newest is None:
        raise FileNotFoundError(f"run={run} has no checkpoint: expected {checkpoints.folder}/iteration_*.")
    if iteration == "best":
        return checkpoints.sound(best_evaluation(read_state(newest)["evaluations"])["iteration"])
    return newest


def _make_endpoint_policy(config: DictConfig, progress: Progress) -> Policy:
    settings = EndpointSettings(**plain(config.openai))
    if config.engine.constrain != "none":
        raise ValueError(
            f"engine.constrain={config.engine.constrain}: what an endpoint answers cannot be constrained. Set "
            "engine.constrain=none, and prompt=instruct, which tells the model how to answer."
        )
    from hgpo_gym.trainers.policies.endpoint import EndpointPolicy

    prompt = plain(config.prompt)
    if prompt in (asdict(PromptTemplate.named(name)) for name in ("bare", "brief")):
        progress.line(
            "This prompt does not tell how to answer, and takes the whole answer as the action: prompt=instruct suits "
            "models that were not trained on it."
        )
    asked = [settings.base_url, settings.model, settings.chat, dict(settings.extra), prompt, plain(config.env)]
    kept = KeptAnswers(cache_dir() / "answers" / f"{content_key([*asked, config.evaluation.split])}.jsonl")
    if kept:
        progress.line(f"Going on with {len(kept):,} answers in {kept.path}; remove it to ask anew.")
    return EndpointPolicy(settings, kept)


class PolicyKind(NamedTuple):
    """How policies of one kind begin, and how they are loaded from a folder that they were saved in."""

    initial: Callable[[DictConfig, Progress], TrainablePolicy]
    load: Callable[[DictConfig, Path], TrainablePolicy]


def initial_policy(config: DictConfig, progress: Progress) -> TrainablePolicy:
    """The policy that training starts from."""
    return _kind(config).initial(config, progress)


def load_policy(config: DictConfig, folder: Path) -> TrainablePolicy:
    """A policy that was saved in `folder`. Raises FileNotFoundError if there is none of this kind."""
    return _kind(config).load(config, folder)


def _kind(config: DictConfig) -> PolicyKind:
    if is_baseline(config):
        return PolicyKind(_initial_baseline, _load_baseline)
    if config.model.kind not in POLICY_KINDS:
        raise ValueError(unknown_name("model.kind", config.model.kind, POLICY_KINDS))
    return POLICY_KINDS[config.model.kind]


def reference_policy(config: DictConfig, policy: TrainablePolicy, initial: Path) -> Scorer:
    """What the KL loss holds a policy to, the weights that its run began with: those under the policy's adapter, or
    else a second model from the folder `initial`."""
    if has_adapter(policy.model):
        return WithoutAdapter(policy)
    reference = load_policy(config, initial)
    reference.model.eval().requires_grad_(False)
    return reference


def _initial_language_model(config: DictConfig, progress: Progress) -> TrainablePolicy:
    lora = LoraSettings(**plain(config.model.lora))
    if lora.rank is None and config.model.quantization is not None:
        raise ValueError(
            f"model.quantization={config.model.quantization}: such weights do not train. Set model.lora.rank."
        )
    model, tokenizer = _load(config, initial_weights(config, progress))
    return make_policy(config, add_adapter(model, lora, config.model.seed) if lora.rank else model, tokenizer)


def _load_language_model(config: DictConfig, folder: Path) -> TrainablePolicy:
    if not (folder / ADAPTER_CONFIG).exists():
        return make_policy(config, *_load(config, str(folder)))
    model, tokenizer = _load(config, base_of(folder))
    return make_policy(config, load_adapter(model, folder), tokenizer)


def _load(config: DictConfig, path: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    options = {name: config.model[name] for name in ("device", "dtype", "quantization")}
    return load_model(path, **options)


def _initial_table(config: DictConfig, _progress: Progress) -> TabularPolicy:
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


def _initial_baseline(config: DictConfig, _progress: Progress) -> TrainablePolicy:
    from hgpo_gym.trainers.learners.sb3.policy import Sb3Policy

    return Sb3Policy.initial(config)


def _load_baseline(config: DictConfig, folder: Path) -> TrainablePolicy:
    from hgpo_gym.trainers.learners.sb3.policy import Sb3Policy

    return Sb3Policy.load(config, folder)


POLICY_KINDS = {
    "language_model": PolicyKind(_initial_language_model, _load_language_model),
    "tabular": PolicyKind(_initial_table, _load_table),
}


def initial_weights(config: DictConfig, progress: Progress) -> str:
    """The folder or hub name of the weights that training starts from, warm-started.

    What is made or warm-started is kept in the cache under a key of all the settings that it depends on, so that every
    algorithm and training seed starts from the same weights.

    Raises:
        ValueError: the policy is not a language model.
    """
    if config.model.kind != "language_model":
        raise ValueError(f"model.kind={config.model.kind}: only a language model has a warm start.")
    if config.model.path is not None and config.warmstart.source == "none":
        return config.model.path
    settings = {name: plain(config[name]) for name in ("memory", "prompt", "model", "warmstart")}
    for name in RUNTIME_SETTINGS:
        del settings["model"][name]
    episodes, episodes_key = warmstart_transcripts(config, progress)
    folder = (
        cache_dir() / "models" / content_key([source_digest(models, imitation, likelihood), settings, episodes_key])
    )
    if not folder.exists():
        model, tokenizer = _make_model(config, episodes, progress)
        make_whole(folder, lambda target: save_model(model, tokenizer, target))
    progress.line(f"Initial weights: {folder}")
    return str(folder)


def warmstart_transcripts(config: DictConfig, progress: Progress) -> tuple[list[Transcript], str]:
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
    made_by = source_digest(transcripts, rollout, player, scripted)
    key = content_key([made_by, options, list(vector.task_ids), behaviour, settings.episodes, config.model.seed])
    path = cache_dir() / "transcripts" / key / "episodes.jsonl"
    if not path.exists():
        policy: Policy = ExpertPolicy(settings.random_actions) if expert else RandomPolicy()
        schedule = tasks_in_order(vector.task_ids, config.model.seed, 0, settings.episodes)
        collected: list[Transcript] = []
        with progress.stage(f"Collecting {settings.episodes} {'expert' if expert else 'random'} episodes") as tick:
            while len(collected) < settings.episodes:
                first = len(collected)
                tasks = schedule[first : first + num_tasks]
                seeds = [(Stream.WARM_START, config.model.seed, first + index) for index in range(len(tasks))]
                collected += transcripts.from_rollout(collect(env, policy, Sampling(), task_ids=tasks, seeds=seeds))
                tick(len(collected), settings.episodes, f"{sum(episode.won for episode in collected)} won")
        make_whole(path.parent, lambda folder: transcripts.save(collected, folder / path.name))
    env.close()
    return transcripts.load(path), key


def _make_model(
    config: DictConfig, episodes: list[Transcript], progress: Progress
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    memory, template = Memory(**plain(config.memory)), make_prompt(config)
    settings = WarmstartSettings(**plain(config.warmstart))
    pairs = [pair for episode in episodes for pair in episode.prompts(memory, template)]
    if config.model.path is None:
        texts = (prompt + answer for prompt, answer in pairs)
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(texts, config.model.vocabulary_size)
        shape = {name: config.model[name] for name in ("hidden_size", "layers", "heads", "seed", "device")}
        model = make_tiny_model(tokenizer, **shape)
    else:
        model, tokenizer = load_model(config.model.path, device=config.model.device)
    if settings.source == "none":
        return model, tokenizer
    policy = LanguageModelPolicy(model, tokenizer, max_prompt_tokens=config.engine.max_prompt_tokens)
    records = _records(policy, [episode for episode in episodes if episode.won or settings.source == "random"], config)
    with progress.stage(f"Warm start: imitating {len(records)} {settings.source} actions") as tick:
        loss = imitate(
            model,
            records,
            settings,
            max_batch_tokens=TrainerSettings(**plain(config.trainer)).max_batch_tokens,
            seed=config.model.seed,
            on_progress=lambda done, steps, loss: tick(done, steps, f"loss {loss:.3f}"),
        )
    progress.line(f"Warm start: {len(records)} actions, loss {loss:.4f} nats a token in the last epoch")
    return model, tokenizer


def _records(policy: LanguageModelPolicy, episodes: list[Transcript], config: DictConfig) -> list[TokenRecord]:
    memory, template = Memory(**plain(config.memory)), make_prompt(config)
    pairs = [pair for episode in episodes for pair in episode.prompts(memory, template)]
    prompts = policy.encode_prompts([prompt for prompt, _ in pairs])
    answers = [policy.encode_answer(answer) for _, answer in pairs]
    return [
        TokenRecord(prompt, answer, np.zeros(len(answer), dtype=np.float32))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
