"""The weights that training starts from: a new or a given model, trained to imitate episodes."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo_gym import memory as memory_package
from hgpo_gym.digests import cached_folder
from hgpo_gym.files import cache_dir, content_key, source_digest
from hgpo_gym.policies import huggingface, language_model, likelihood, trie
from hgpo_gym.policies.base import Request, TokenRecord
from hgpo_gym.policies.engines import Constraint
from hgpo_gym.policies.huggingface import (
    checkpoint_activations,
    load_model,
    make_tiny_model,
    save_model,
    train_tokenizer,
)
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.progress import Progress
from hgpo_gym.rollouts import plans
from hgpo_gym.rollouts.transcripts import Transcript
from hgpo_gym.trainers.models.language_model_settings import LanguageModelSettings
from hgpo_gym.trainers.warm_start import imitation
from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate, worth_imitating
from hgpo_gym.trainers.warm_start.imitation import imitate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from hgpo_gym.trainers.settings import ModelSections

RUNTIME_SETTINGS = ("device", "threads", "dtype", "quantization", "lora")
"""Settings of the model group that the initial weights do not depend on."""


def initial_weights(run: "ModelSections", model: LanguageModelSettings, progress: Progress) -> str:
    """Return the folder or hub name of the weights that training starts from, after the warm start.

    New or warm-started weights are cached under a key of all settings that they depend on. So every algorithm and
    training seed starts from the same weights.
    """
    if model.path is not None and run.warmstart.source == "none":
        return model.path
    settings = {name: dict(run.resolved[name]) for name in ("memory", "prompt", "model", "warmstart")}
    for name in RUNTIME_SETTINGS:
        del settings["model"][name]
    del settings["warmstart"]["new_model"]  # `source` already holds the result
    settings["model"]["files"] = _stamps(model.path)
    settings["engine"] = _reading(run)  # decides the prompts that imitation reads
    settings["trainer"] = {"precision": run.trainer.precision}
    episodes, episodes_key = episodes_to_imitate(run, model.seed, progress)
    modules = (huggingface, imitation, language_model, likelihood, memory_package, plans, trie)
    made_by = source_digest(sys.modules[__name__], *modules)
    folder = cache_dir() / "models" / content_key([made_by, settings, episodes_key])
    cached_folder(folder, lambda target: save_model(*_make(run, model, episodes, progress), target))
    progress.line(f"Initial weights: {folder}")
    return str(folder)


def _stamps(path: str | None) -> list[tuple[str, int, int]]:
    """Return name, size and time of the files in a local model folder. They change when files are overwritten."""
    files = sorted(Path(path).expanduser().glob("*")) if path is not None else []
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _make(
    run: "ModelSections", model: LanguageModelSettings, episodes: list[Transcript], progress: Progress
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    if model.path is None:
        weights_model, tokenizer = _from_scratch(run, model, episodes)
    else:
        weights_model, tokenizer = load_model(model.path, device=model.device)
    source = run.warmstart.source
    if source == "none":
        return weights_model, tokenizer
    if run.trainer.gradient_checkpointing:
        checkpoint_activations(weights_model)
    constrain: Constraint = "admissible" if run.warmstart.loss == "choices" else "none"
    policy = LanguageModelPolicy(weights_model, tokenizer, constrain=constrain, **_reading(run))
    records = _records(policy, run, worth_imitating(episodes, source))
    with progress.stage(f"Imitating {len(records):,} {source} actions") as report_progress:
        loss = imitate(
            weights_model,
            records,
            run.warmstart,
            likelihood=partial(likelihood.likelihood, weights_model),
            max_batch_tokens=run.trainer.max_batch_tokens,
            precision=run.trainer.precision,
            seed=model.seed,
            on_progress=lambda done, steps, loss: report_progress(done, steps, f"loss {loss:.3f}"),
        )
    unit = "choice" if constrain == "admissible" else "token"
    progress.line(f"Warm start: {len(records)} actions, loss {loss:.4f} nats a {unit} in the last epoch")
    return weights_model, tokenizer


def _reading(run: "ModelSections") -> dict[str, Any]:
    """Return the engine settings that decide how a prompt is read."""
    names = "max_prompt_tokens", "chat_template_kwargs", "template_date"
    return {name: run.engine.options[name] for name in names if name in run.engine.options}


def _from_scratch(
    run: "ModelSections", model: LanguageModelSettings, episodes: list[Transcript]
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return a tokenizer of the episodes' words and a small model with random weights."""
    texts = (request.prompt + response for request, response in _steps(run, episodes))
    assert model.vocabulary_size is not None
    assert model.hidden_size is not None
    assert model.layers is not None
    assert model.heads is not None
    tokenizer = train_tokenizer(texts, model.vocabulary_size)
    tiny_model = make_tiny_model(
        tokenizer,
        hidden_size=model.hidden_size,
        layers=model.layers,
        heads=model.heads,
        seed=model.seed,
        device=model.device,
    )
    return tiny_model, tokenizer


def _steps(run: "ModelSections", episodes: list[Transcript]) -> list[tuple[Request, str]]:
    """Return the request and the response of every step."""
    memory = run.environments.memory.make()
    return [step for episode in episodes for step in episode.requests(memory, run.environments.prompt)]


def _records(policy: LanguageModelPolicy, run: "ModelSections", episodes: list[Transcript]) -> list[TokenRecord]:
    steps = _steps(run, episodes)
    if policy.constrain == "admissible":
        steps = [
            (request, response)
            for request, response in steps
            if len(request.allowed_responses) > 1 and response in request.allowed_responses
        ]
    return policy.records([request for request, _ in steps], [response for _, response in steps])
