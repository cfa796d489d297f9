"""The presets of the published settings: their values, what differs between them, and that they train."""

import io

import pytest
import torch
from rich.console import Console

from hgpo_gym.cli.main import main as hgpo_gym
from hgpo_gym.config.choices import choices
from hgpo_gym.config.compose import load_run
from hgpo_gym.memory.prompts import UNEXPLAINED
from hgpo_gym.policies.huggingface import load_model, make_tiny_model, save_model, train_tokenizer
from hgpo_gym.progress import Progress
from hgpo_gym.runs.directory import flatten, read_metrics
from tests.support.small_runs import train

# From the scripts of HGPO in verl-agent (recipe/hgpo) and the defaults of its verl/trainer/config/ppo_trainer.yaml.
EVERYWHERE = {
    "rollout.num_tasks": 16,  # data.train_batch_size
    "rollout.group_size": 8,  # env.rollout.n
    "rollout.temperature": 1.0,
    "rollout.max_new_tokens": 512,  # data.max_response_length
    "engine.max_prompt_tokens": 4096,  # data.max_prompt_length, truncation=left
    "engine.constrain": "none",
    "prompt.response_reading": "published",
    "trainer.iterations": 160,  # trainer.total_epochs, of one batch each
    "trainer.learning_rate": 1e-6,
    "trainer.warmup_steps": 0,
    "trainer.weight_decay": 0.01,
    "trainer.update_epochs": 1,
    "objective.clip_low": 0.2,
    "objective.clip_high": 0.2,
    "trainer.kl_coef": 0.01,
    "trainer.entropy_coef": 0.001,
    "trainer.zero_advantage": "keep",  # the bonus is that of all responses
    "trainer.max_grad_norm": 1.0,
    "trainer.loss_aggregation": None,  # what ppo_clip prefers, token_mean
    "trainer.invalid_action_penalty": 0.1,
    "algo.name": "hgpo",
    "algo.gamma": 0.95,
    "algo.length_weight_alpha": 1.0,
    "algo.base_group": False,
    "evaluation.temperature": 0.4,
    "evaluation.top_p": 1.0,
    "evaluation.every": 5,  # trainer.test_freq
    "warmstart.source": "none",
}
OF_ENVIRONMENT = {
    "alfworld": {
        "env.id": "hgpo_gym/ALFWorld-v0", "env.split": "train", "env.max_episode_steps": 50,
        "algo.norm": "mean_std_norm", "trainer.mini_batch_size": 256, "evaluation.split": "valid_seen",
    },
    "webshop": {
        "env.id": "hgpo_gym/WebShop-v0",
        "env.split": "train",
        "env.goals": "synthetic",  # env.webshop.human_goals=False
        "env.max_episode_steps": 30,
        "env.reward": "success",
        "algo.norm": "mean_norm",
        "trainer.mini_batch_size": 64,
        "evaluation.split": "validation",
    },
}  # fmt: skip
PRESETS = {
    f"{env}_qwen2.5_{size.lower()}_hgpo{'' if history == 2 else f'_k{history}'}": OF_ENVIRONMENT[env]
    | {
        "model.path": f"Qwen/Qwen2.5-{size}-Instruct",
        "memory.history_length": history,
        "memory.window": history,  # env.history_length is both
    }
    for env in OF_ENVIRONMENT
    for size in ("1.5B", "7B")
    for history in (2, 4)
}


# Of other papers, where the environment counts.
ENVIRONMENTS = {
    "babyai_glam": {  # Carta et al., 2023
        "env.level": ["mixed/goto", "mixed/pickup", "mixed/open", "mixed/putnext", "mixed/pick_up_seq_go_to"],
        "env.num_dists": 8,
        "env.level_limit": True,
        "env.reward": "discounted",
        "engine.constrain": "admissible",
        "memory.window": 2,
    },
    "textcraft_agentgym_rl": {
        "env.recipes": "minecraft", "env.observation": "feedback", "env.actions": "free", "env.max_episode_steps": 30,
        "memory.window": None, "algo.name": "grpo",
    },
}  # fmt: skip


def settings(*overrides):
    return flatten(load_run(overrides).resolved)


def test_there_are_eight_presets_of_hgpo_beside_others():
    assert len(PRESETS) == 8
    assert set(choices()["experiment"]) >= {"demo", "maze_smollm2", "webshop_smollm2", *PRESETS, *ENVIRONMENTS}


@pytest.mark.parametrize("preset", ENVIRONMENTS)
def test_a_preset_of_another_paper_has_its_values(preset):
    chosen = settings(f"experiment={preset}")
    assert {name: chosen[name] for name in ENVIRONMENTS[preset]} == ENVIRONMENTS[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_published_values(preset):
    chosen = settings(f"experiment={preset}")
    expected = EVERYWHERE | PRESETS[preset]
    assert {name: chosen[name] for name in expected} == expected
    assert chosen["prompt.first"] == settings("prompt=instruct")["prompt.first"]
    assert chosen["run_dir"] == f"runs/{preset.replace('_hgpo', '')}-hgpo-seed0"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("algo", ["grpo", "gigpo"])
def test_algorithms_under_a_preset_differ_in_nothing_else(preset, algo):
    hgpo, other = settings(f"experiment={preset}"), settings(f"experiment={preset}", f"algo={algo}")
    different = {name for name in hgpo.keys() | other.keys() if hgpo.get(name) != other.get(name)}
    assert other["algo.name"] == algo
    assert "run_dir" in different
    assert all(name.startswith("algo.") for name in different - {"run_dir"})
    assert other["algo.norm"] == PRESETS[preset]["algo.norm"]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A random Qwen2 of 50,000 parameters with a chat template, in a folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(["You act in a text world. <think> </think> <action>go to desk 1</action>"] * 3, 300)
    tokenizer.chat_template = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"
    model = make_tiny_model(tokenizer, hidden_size=32, layers=2, heads=2, seed=0, device="cpu")
    save_model(model, tokenizer, folder)
    return folder


@pytest.mark.parametrize(
    ("dtype", "warned"), [("float32", []), ("bfloat16", ["Most steps of trainer.learning_rate=1e-06 are rounded away"])]
)
def test_the_first_lines_name_the_model_and_what_comes_next(dtype, warned, chat_model, tmp_path):
    output = io.StringIO()
    maze = ["model=pretrained", f"model.path={chat_model}", "prompt=bare", "trainer.iterations=0", "trainer.kl_coef=0"]
    short = ["evaluation.decoding_seeds=1", "env.max_episode_steps=1", "rollout.max_new_tokens=2"]
    train(tmp_path, f"model.dtype={dtype}", base=[*maze, *short], progress=Progress(Console(file=output)))
    lines = output.getvalue().splitlines()
    size = f"{load_model(str(chat_model), device='cpu')[0].num_parameters():,} parameters on "
    loaded = [f"Loading {chat_model}", UNEXPLAINED, *warned, size]
    expected = [*loaded, "Memory: about ", "Evaluating 9 episodes of test", "Before training: evaluation of test "]
    for line, prefix in zip(lines, expected, strict=True):
        assert line.startswith(prefix)


SCALED_DOWN = [
    "env.split=generated", "env.max_episode_steps=2", "evaluation.split=generated_test",
    "rollout.num_tasks=2", "rollout.group_size=2", "rollout.max_new_tokens=4", "engine.max_prompt_tokens=256",
    "trainer.iterations=1", "trainer.mini_batch_size=4",
]  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "algo"), [("alfworld_qwen2.5_1.5b_hgpo", "hgpo"), ("webshop_qwen2.5_7b_hgpo_k4", "gigpo")]
)
def test_a_preset_scaled_down_trains(preset, algo, chat_model, tmp_path):
    """Two optimiser steps: Adam moves no weight by more than the learning rate each time, weight decay aside."""
    overrides = [f"experiment={preset}", f"algo={algo}", f"model.path={chat_model}", *SCALED_DOWN]
    summary = train(tmp_path, base=overrides)
    (metrics,) = read_metrics(tmp_path)
    assert summary["iterations"] == 1
    assert metrics["steps"] == 2 * 2 * 2
    before, after = (load_model(str(tmp_path / f"checkpoints/iteration_000{n}/model"))[0].state_dict() for n in (0, 1))
    moved = max((after[name] - before[name]).abs().max().item() for name in before)
    assert 0 < moved < 2 * 1.1e-6
    assert all(torch.isfinite(weight).all() for weight in after.values())


def test_the_preset_for_shopping_imitates_and_trains(chat_model, tmp_path):
    preset = ["experiment=webshop_smollm2", "trainer.precision=float32", "model.device=cpu"]
    small = tmp_path / "imitated"
    few = ["warmstart.episodes=8", "warmstart.batch_size=8"]
    hgpo_gym(["warmstart", *preset, *few, f"model.path={chat_model}", f"out={small}"])
    fewer = ["trainer.iterations=1", "rollout.num_tasks=2", "rollout.group_size=2", "evaluation.tasks=2"]
    summary = train(tmp_path / "run", base=[*preset, *fewer, f"model.path={small}", "trainer.zero_advantage=keep"])
    assert summary["iterations"] == 1
    (metrics,) = read_metrics(tmp_path / "run")
    assert metrics["valid_action_rate"] == 1.0
    assert metrics["response_tokens_max"] <= 4  # a number and the end
    assert metrics["prompt_tokens_max"] < 4096
