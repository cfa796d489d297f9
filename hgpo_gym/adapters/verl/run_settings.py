"""The settings of a run as settings of verl 0.9.1. This module needs no verl."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from hgpo_gym.adapters.verl.limits import COLUMN_OF, check_estimator, check_objective
from hgpo_gym.adapters.verl.loop_settings import LoopSettings
from hgpo_gym.adapters.verl.task_order import find_sampler
from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.envs.registration import make
from hgpo_gym.rollouts.recording import ENTROPY, REWARD_VECTOR
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.columns import recorded_columns
from hgpo_gym.trainers.learners.validate import check_keys
from hgpo_gym.trainers.models.language_model_settings import LanguageModelSettings
from hgpo_gym.trainers.settings import RunSettings
from hgpo_gym.trainers.update.objectives import preferred_aggregation
from hgpo_gym.trainers.update.objectives.bound import bind_objective

AGGREGATIONS = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "sequence_sum": "seq-mean-token-sum-norm",
}
UNREAD = {
    "distributed": "verl divides the model over all GPUs: set gpus and nodes",
    "rollout.workers": "verl has processes with environments: set -- actor_rollout_ref.rollout.agent.num_workers=N",
    "rollout.worker_timeout": "environments run in the processes of verl's agent loop workers",
    "rollout.staleness": "verl has none: set mode=colocate_async or mode=separate_async",
    "rollout.overlap": "verl has none: set mode=colocate_async or mode=separate_async",
    "evaluation.num_envs": "all episodes of a validation are played at once",
    "checkpoint.keep_best": "verl keeps the newest checkpoints",
    "checkpoint.transcripts": "set -- trainer.rollout_data_dir=FOLDER and trainer.validation_data_dir=FOLDER",
    "checkpoint.rollouts_every": "verl writes rollouts by -- trainer.rollout_data_dir=FOLDER",
    "model.device": "verl takes the GPUs that Ray has",
    "model.threads": "verl starts its own processes",
    "engine.kv_cache_gib": "verl takes a share of the GPU: set engine.gpu_memory_utilization",
    "engine.sleep_level": "verl frees the engine's memory before each update",
    "engine.adapter": "verl decides how an adapter reaches the engine",
    "engine.server": "verl starts its own servers",
    "engine.server_weights": "verl starts its own servers",
    "engine.server_timeout": "verl starts its own servers",
    "algo.critic": "verl trains no critic of ours",
    "warmstart": "verl trains a given model: make one with hgpo-gym warmstart, and set model.path",
    "tiny": "verl trains a given model: make one with hgpo-gym warmstart, and set model.path",
}
"""Settings of a run that nothing in verl reads, each with the reason or what to do instead, see `section.unread`."""


class Scale(SettingsSection):
    """The keys of `configs/verl.yaml`."""

    gpus: Annotated[int, Field(ge=1, le=64)]
    nodes: PositiveInt
    mode: Literal["sync", "colocate_async", "separate_async"]
    rollout_gpus: PositiveInt | None = None


def verl_settings(run: RunSettings, scale: Scale) -> dict[str, Any]:
    """Return verl's settings by key, those that differ from its defaults.

    Raises:
        ValueError: a setting that verl has no counterpart for, or that has another meaning there.
    """
    _check(run)
    _check_scale(scale)
    needed = _needed_columns(run)
    correction = _correction(run, bypass=ENTROPY not in needed and run.objective.name not in COLUMN_OF)
    return {
        **_data(run, needed),
        **_algorithm(run),
        **{f"algorithm.rollout_correction.{name}": value for name, value in correction.items()},
        **_model(run),
        **_actor(run),
        **_rollout(run),
        **_trainer(run, scale),
    }


def _check(run: RunSettings) -> None:
    """Raise ValueError for settings of a run that would do something else in verl, or nothing."""
    trainer, model, engine = run.trainer, run.model, run.engine.options
    problems = {
        f"learner={run.learner.name}": (run.learner.name != "policy_gradient", "verl learns by policy gradients"),
        f"engine={run.engine.name}": (run.engine.name != "vllm", "verl generates by vLLM or SGLang: set engine=vllm"),
        "engine.constrain=admissible": (
            engine.get("constrain") == "admissible",
            "responses are free text: set engine.constrain=none and a prompt that explains itself, prompt=instruct",
        ),
        f"trainer.optimizer={trainer.optimizer}": (trainer.optimizer != "adamw", "set trainer.optimizer=adamw"),
        f"trainer.off_policy_limit={trainer.off_policy_limit}": (
            trainer.off_policy_limit is not None,
            "verl has no such limit: set it to null",
        ),
        "trainer.mini_batch_size=null": (
            trainer.mini_batch_size is None,
            "verl divides rows by their number: set trainer.mini_batch_size, as published to 256",
        ),
        f"trainer.zero_advantage={trainer.zero_advantage}": (
            trainer.zero_advantage == "drop" or (trainer.zero_advantage == "mask" and trainer.entropy_coef > 0),
            "verl keeps responses without an advantage: set trainer.zero_advantage=keep",
        ),
    }
    if not isinstance(model, LanguageModelSettings) or model.path is None:
        raise ValueError("verl trains a given language model: set model=pretrained and model.path.")
    problems |= {
        f"model.quantization={model.quantization}": (model.quantization is not None, "set it to null"),
        f"model.lora.dropout={model.lora.dropout}": (model.lora.dropout > 0, "verl's adapters have none: set it to 0"),
    }
    for setting, (wrong, remedy) in problems.items():
        if wrong:
            raise ValueError(f"{setting} is not possible in verl: {remedy}.")
    check_keys(run)
    _check_rows(run)
    if run.sampler.name != "in_order":
        find_sampler(run.sampler, _task_ids(run), run.seed)


def _check_rows(run: RunSettings) -> None:
    """Raise ValueError for rows of several responses where verl, or a column of an objective, counts rows."""
    if run.trainer.rows == "step":
        return
    other = {
        f"trainer.loss_aggregation={_aggregation(run)}": _aggregation(run) != "token_mean",
        f"objective={run.objective.name}": run.objective.name in COLUMN_OF,
        f"correction={run.correction.name}": run.correction.name == "sequence",
    }
    for setting, wrong in other.items():
        if wrong:
            raise ValueError(
                f"trainer.rows=episode with {setting} is not possible in verl, which takes a row for one response: set "
                "trainer.rows=step, or trainer.loss_aggregation=token_mean and another objective or correction."
            )


def _aggregation(run: RunSettings) -> str:
    return run.trainer.loss_aggregation or preferred_aggregation(run.objective.name)


def _task_ids(run: RunSettings) -> Sequence[str]:
    env = make(run.env.id, **run.env.options)
    try:
        return env.unwrapped.task_ids  # type: ignore[attr-defined]
    finally:
        env.close()


def _check_scale(scale: Scale) -> None:
    if scale.mode != "separate_async":
        if scale.rollout_gpus is not None:
            raise ValueError(
                f"rollout_gpus={scale.rollout_gpus} has no meaning with mode={scale.mode}: only mode=separate_async "
                "has GPUs that only generate."
            )
    elif scale.rollout_gpus is None or scale.rollout_gpus >= scale.gpus:
        raise ValueError(
            f"mode=separate_async with gpus={scale.gpus} and rollout_gpus={scale.rollout_gpus}: set rollout_gpus, the "
            "GPUs of each machine that only generate, to fewer than gpus; the others train."
        )


def _needed_columns(run: RunSettings) -> dict[str, str]:
    if run.algo.name not in ESTIMATORS:
        raise ValueError(f"algo={run.algo.name} is no estimator, and verl trains by those alone.")
    check_objective(run.objective.name)
    bind_objective(run.objective, extras=())  # refuses one that reads what only an estimator gives
    return check_estimator(run.algo.name, run.algo.options)


def _data(run: RunSettings, needed: Mapping[str, str]) -> dict[str, Any]:
    options, evaluation = dict(run.env.options), run.evaluation
    split = options.pop("split", None)
    # Of several splits a run takes the first that exists.
    validation = _first_split(run) if isinstance(evaluation.split, list) else evaluation.split
    loop = {
        "envs": {run.env_name: {"id": run.env.id, **options}},
        "seed": run.seed,
        "memory": run.memory.model_dump(),
        "prompt": asdict(run.prompt),
        "team": {"name": run.team.name, **run.team.options},
        "sampler": {"name": run.sampler.name, **run.sampler.options},
        "invalid_action_penalty": run.trainer.invalid_action_penalty,
        "record": [name for name in recorded_columns(run.algo, run.shaping, run.rollout.record) if name != ENTROPY],
        "shaping": {"name": run.shaping.name, **run.shaping.options},
        "texts": "texts" in needed or run.memory.similarity is not None,
        "rewards": run.credit.rewards if REWARD_VECTOR in needed else [],
        "rows": run.trainer.rows,
        "max_retries": run.rollout.max_retries or 0,
        "max_failed": run.rollout.max_failed,
        "stop": run.engine.options["stop"],
        "stop_token_ids": run.engine.options["stop_token_ids"],
        "template_date": run.engine.options["template_date"],
        "iterations": max(1, run.trainer.iterations),
        "train_tasks": run.rollout.train_tasks,
        "validation_tasks": evaluation.tasks,
        "mini_batch_size": run.trainer.mini_batch_size,
        "run_dir": str(run.run_dir.absolute()),
        "plugins": _plugins(run),
    }
    LoopSettings.parse(loop)
    return {
        "data.custom_cls.path": "pkg://hgpo_gym.adapters.verl.dataset",
        "data.custom_cls.name": "TaskDataset",
        "data.train_files": [f"{_source(run.env_name, split)}*1"],
        "data.val_files": [_source(run.env_name, validation)],
        "data.train_batch_size": run.rollout.num_tasks,
        "data.max_prompt_length": run.engine.options["max_prompt_tokens"],
        "data.max_response_length": run.rollout.max_new_tokens,
        "data.shuffle": False,
        "data.validation_shuffle": False,
        "data.seed": run.seed,
        # Making a row takes no time, and a worker process would load the environments again.
        "data.dataloader_num_workers": 0,
        "data.apply_chat_template_kwargs": run.engine.options["chat_template_kwargs"],
        "data.hgpo_gym": loop,
    }


def _plugins(run: RunSettings) -> list[str]:
    """Return the plugins, files by their whole path: processes of verl run in other folders."""
    files = {name: Path(name if name.endswith(".py") else f"{name}.py").expanduser() for name in run.plugins}
    return [str(file.absolute()) if file.is_file() else name for name, file in files.items()]


def _first_split(run: RunSettings) -> str:
    env = make(run.env.id, **{**run.env.options, "split": run.evaluation.split})
    try:
        return env.unwrapped.split  # type: ignore[attr-defined]
    finally:
        env.close()


def _source(name: str, split: str | None) -> str:
    return name if split is None else f"{name}:{split}"


def _algorithm(run: RunSettings) -> dict[str, Any]:
    return {
        # With the prefix: verl has grpo, rloo and others of its own.
        "algorithm.adv_estimator": f"hgpo_gym.{run.algo.name}",
        **({"algorithm.gamma": run.algo.options["gamma"]} if "gamma" in run.algo.options else {}),
        "algorithm.advantage_options": dict(run.algo.options),
        "algorithm.use_kl_in_reward": False,
        "critic.enable": False,
        # Episodes have their rewards: verl's processes for rewards would idle.
        "reward.num_workers": 0,
    }


def _correction(run: RunSettings, *, bypass: bool) -> dict[str, Any]:
    """Return verl's rollout correction.

    Args:
        run: the settings.
        bypass: the ratio of PPO is to the engine's log-probabilities, as in `hgpo-gym train`; otherwise verl computes
            the old ones anew, which also gives what some estimators and objectives need.
    """
    name, options = run.correction
    if name == "none":
        return {"bypass_mode": bypass, "rollout_is": None}
    if run.objective.name in COLUMN_OF:
        raise ValueError(
            f"correction={name} with objective={run.objective.name} is not possible in verl: both use its field "
            "rollout_is_weights. Set correction=none."
        )
    if name not in ("token", "sequence"):
        raise ValueError(f"correction={name} is not possible in verl: choose token or sequence.")
    return {"bypass_mode": False, "rollout_is": name, "rollout_is_threshold": options["cap"]}


def _model(run: RunSettings) -> dict[str, Any]:
    model, section = run.model, "actor_rollout_ref.model"
    assert isinstance(model, LanguageModelSettings)
    settings: dict[str, Any] = {
        f"{section}.path": model.path,
        f"{section}.enable_gradient_checkpointing": run.trainer.gradient_checkpointing,
        f"{section}.use_remove_padding": True,
    }
    if model.lora.rank is not None:
        settings[f"{section}.lora_rank"] = model.lora.rank
        settings[f"{section}.lora_alpha"] = model.lora.alpha
        settings[f"{section}.target_modules"] = model.lora.target_modules
    return settings


def _actor(run: RunSettings) -> dict[str, Any]:
    trainer, section = run.trainer, "actor_rollout_ref.actor"
    assert isinstance(run.model, LanguageModelSettings)
    precision = {"float32": "fp32", "bfloat16": "bf16"}
    longest = run.engine.options["max_prompt_tokens"] + run.rollout.max_new_tokens
    aggregation = _aggregation(run)
    constant = trainer.loss_constant or run.rollout.max_new_tokens
    return {
        f"{section}.strategy": "fsdp2",
        f"{section}.fsdp_config.strategy": "fsdp2",
        f"{section}.fsdp_config.model_dtype": precision[run.model.dtype],
        f"{section}.fsdp_config.dtype": trainer.precision,
        f"{section}.fsdp_config.mixed_precision": {
            "param_dtype": precision[trainer.precision],
            "reduce_dtype": "fp32",
            "buffer_dtype": "fp32",
        },
        f"{section}.optim.lr": trainer.learning_rate,
        f"{section}.optim.lr_warmup_steps": trainer.warmup_steps,
        f"{section}.optim.weight_decay": trainer.weight_decay,
        f"{section}.optim.clip_grad": trainer.max_grad_norm,
        f"{section}.grad_clip": trainer.max_grad_norm,
        # The trainer of `trainer` divides rows by data.hgpo_gym.mini_batch_size; verl checks this one nevertheless.
        f"{section}.ppo_mini_batch_size": run.rollout.num_tasks,
        f"{section}.ppo_epochs": trainer.update_epochs,
        f"{section}.use_dynamic_bsz": True,
        f"{section}.ppo_max_token_len_per_gpu": max(trainer.max_batch_tokens, longest),
        f"{section}.shuffle": True,
        f"{section}.data_loader_seed": run.seed,
        f"{section}.policy_loss": {
            "_target_": "hgpo_gym.adapters.verl.losses.ObjectiveConfig",
            "loss_mode": "hgpo_gym",
            "objective": run.objective.name,
            "options": dict(run.objective.options),
            "plugins": _plugins(run),
            "rows": run.trainer.rows,
        },
        f"{section}.loss_agg_mode": AGGREGATIONS[aggregation],
        f"{section}.loss_scale_factor": constant if aggregation == "sequence_sum" else None,
        f"{section}.entropy_coeff": trainer.entropy_coef,
        f"{section}.use_kl_loss": trainer.kl_coef > 0,
        f"{section}.kl_loss_coef": trainer.kl_coef,
        f"{section}.kl_loss_type": "low_var_kl",  # k3
        # A plain Hugging Face folder in every checkpoint, beside the parts of each GPU.
        f"{section}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{section}.checkpoint.load_contents": ["model", "optimizer", "extra"],
    }


def _rollout(run: RunSettings) -> dict[str, Any]:
    section, engine, evaluation = "actor_rollout_ref.rollout", run.engine.options, run.evaluation
    longest = engine["max_prompt_tokens"] + run.rollout.max_new_tokens
    return {
        f"{section}.name": "vllm",
        f"{section}.n": run.rollout.group_size,
        f"{section}.temperature": run.rollout.temperature,
        f"{section}.top_p": 1.0,
        f"{section}.top_k": -1,
        f"{section}.seed": run.seed,
        f"{section}.calculate_log_probs": True,
        f"{section}.val_kwargs.n": evaluation.decoding_seeds,
        f"{section}.val_kwargs.temperature": evaluation.temperature,
        f"{section}.val_kwargs.top_p": evaluation.top_p,
        f"{section}.val_kwargs.top_k": -1,
        f"{section}.val_kwargs.do_sample": evaluation.temperature > 0,
        f"{section}.tensor_model_parallel_size": engine["tensor_parallel_size"],
        f"{section}.gpu_memory_utilization": engine["gpu_memory_utilization"],
        f"{section}.enforce_eager": engine["enforce_eager"],
        f"{section}.max_num_seqs": engine["max_num_seqs"],
        f"{section}.max_num_batched_tokens": engine["max_batch_tokens"],
        f"{section}.max_model_len": engine["max_model_len"] or longest,
        f"{section}.log_prob_use_dynamic_bsz": True,
        f"{section}.log_prob_max_token_len_per_gpu": max(run.trainer.max_batch_tokens, longest),
        f"{section}.agent.default_agent_loop": "hgpo_gym",
    }


def _trainer(run: RunSettings, scale: Scale) -> dict[str, Any]:
    return {
        "trainer.n_gpus_per_node": scale.gpus - (scale.rollout_gpus or 0),
        "trainer.nnodes": scale.nodes,
        # Several machines have a Ray of their own, which is joined; on one it is started, or joined by RAY_ADDRESS.
        **({"ray_kwargs.ray_init.address": "auto"} if scale.nodes > 1 else {}),
        "trainer.v1.trainer_mode": f"steps_{scale.mode}",
        "trainer.total_training_steps": run.trainer.iterations,
        "trainer.total_epochs": 1,
        "trainer.save_freq": run.checkpoint.every,
        "trainer.max_actor_ckpt_to_keep": run.checkpoint.keep,
        "trainer.test_freq": run.evaluation.every or run.trainer.iterations,
        "trainer.val_before_train": True,
        "trainer.default_local_dir": str(run.run_dir.absolute() / "checkpoints"),
        "trainer.logger": ["console", "file", *run.loggers],
        "trainer.project_name": "hgpo_gym",
        "trainer.experiment_name": run.run_dir.name,
        "trainer.resume_mode": "disable" if run.resume == "never" else "auto",
        **_separate(scale),
    }


def _separate(scale: Scale) -> dict[str, Any]:
    """Return the settings of GPUs that only generate."""
    if scale.rollout_gpus is None:
        return {}
    return {
        # An iteration is one batch, so that statistics over task groups are those of the whole iteration.
        "trainer.v1.separate_async.parameter_sync_step": 1,
        "actor_rollout_ref.rollout.nnodes": scale.nodes,
        "actor_rollout_ref.rollout.n_gpus_per_node": scale.rollout_gpus,
        "actor_rollout_ref.rollout.checkpoint_engine.backend": "nccl",
    }
