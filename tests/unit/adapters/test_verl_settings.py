"""`hgpo-gym verl`: our settings become verl's, and one that has no meaning there is refused before Ray starts."""

import re

import pytest
import yaml

from hgpo_gym.adapters.verl.limits import check_estimator, check_objective
from hgpo_gym.advantages import ESTIMATORS
from hgpo_gym.cli.main import main
from hgpo_gym.registry import Choice
from hgpo_gym.trainers.update.objectives import OBJECTIVES
from hgpo_gym.trainers.update.objectives.bound import bind_objective
from tests.support import ROOT

PRESETS = [f"{env}_qwen2.5_{size}_hgpo" for env in ("alfworld", "webshop") for size in ("1.5b", "7b")]
SMALL = ["env=signpost_maze", "prompt=instruct"]


def shown(capsys, *arguments):
    """verl's settings, as --show-config prints them."""
    main(["verl", "--show-config", *arguments])
    return yaml.safe_load(capsys.readouterr().out)


def refused(capsys, *arguments):
    """The line that refuses them."""
    with pytest.raises(SystemExit) as ended:
        main(["verl", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.strip()


@pytest.mark.promise("Published presets become the same settings of verl.")
def test_published_presets(capsys):
    for preset in PRESETS:
        alfworld = preset.startswith("alfworld")
        found = shown(capsys, f"experiment={preset}", "gpus=8", "nodes=2")
        data, loop = found["data"], found["data"]["hgpo_gym"]
        actor, rollout = found["actor_rollout_ref"]["actor"], found["actor_rollout_ref"]["rollout"]
        (env,) = loop["envs"].values()
        assert data["train_files"] == ["alfworld:train*1" if alfworld else "webshop:train*1"]
        assert data["val_files"] == ["alfworld:valid_seen" if alfworld else "webshop:validation"]
        assert (data["train_batch_size"], rollout["n"]) == (16, 8)
        assert (data["max_prompt_length"], data["max_response_length"]) == (4096, 512)
        assert (env["max_episode_steps"], loop["mini_batch_size"]) == ((50, 256) if alfworld else (30, 64))
        assert (loop["invalid_action_penalty"], loop["memory"]["window"]) == (0.1, 2)
        assert found["algorithm"]["adv_estimator"] == "hgpo_gym.hgpo"
        options = found["algorithm"]["advantage_options"]
        assert (options["gamma"], options["norm"]) == (0.95, "mean_std_norm" if alfworld else "mean_norm")
        assert (actor["optim"]["lr"], actor["kl_loss_coef"], actor["kl_loss_type"]) == (1e-6, 0.01, "low_var_kl")
        assert actor["policy_loss"]["options"] == {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}
        assert (rollout["temperature"], rollout["val_kwargs"]["temperature"]) == (1.0, 0.4)
        size = "1.5B" if "1.5b" in preset else "7B"
        assert found["actor_rollout_ref"]["model"]["path"] == f"Qwen/Qwen2.5-{size}-Instruct"
        trainer = found["trainer"]
        assert (trainer["n_gpus_per_node"], trainer["nnodes"], trainer["total_training_steps"]) == (8, 2, 160)
        assert found["ray_kwargs"]["ray_init"]["address"] == "auto"


def test_what_the_run_says_reaches_verl(capsys):
    found = shown(
        capsys, *SMALL, "algo=beacon", "objective=gspo", "objective.clip_high=0.3", "correction=token",
        "model.lora.rank=8", "mode=colocate_async", "resume=auto", "seed=5", "engine.stop=['</action>']",
        "memory.history_length=3", "evaluation.decoding_seeds=3", "memory.similarity=0.9", "sampler=stages",
    )  # fmt: skip
    actor, loop = found["actor_rollout_ref"]["actor"], found["data"]["hgpo_gym"]
    assert loop["record"] == ["milestone"]
    assert (loop["memory"]["similarity"], loop["texts"], loop["sampler"]["name"]) == (0.9, True, "stages")
    assert (loop["stop"], loop["memory"]["history_length"], loop["seed"]) == (["</action>"], 3, 5)
    assert actor["loss_agg_mode"] == "seq-mean-token-mean"
    assert (actor["policy_loss"]["objective"], actor["policy_loss"]["options"]["clip_high"]) == ("gspo", 0.3)
    correction = found["algorithm"]["rollout_correction"]
    assert correction == {"bypass_mode": False, "rollout_is": "token", "rollout_is_threshold": 2.0}
    assert found["actor_rollout_ref"]["model"]["lora_rank"] == 8
    assert found["actor_rollout_ref"]["rollout"]["val_kwargs"]["n"] == 3
    assert found["trainer"]["v1"]["trainer_mode"] == "steps_colocate_async"
    assert found["trainer"]["resume_mode"] == "auto"


def test_entropy_is_computed_where_an_estimator_needs_it(capsys):
    with_entropy = shown(capsys, *SMALL, "algo=empg")["algorithm"]["rollout_correction"]
    assert with_entropy["bypass_mode"] is False
    assert shown(capsys, *SMALL)["algorithm"]["rollout_correction"]["bypass_mode"] is True


def listed(group):
    """Return the page's table of a group: True for each name that verl runs."""
    page = (ROOT / "docs" / "guides" / "scale_out_with_verl.md").read_text()
    rows = re.search(rf"^\| `{group}` \| in verl \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page, flags=re.MULTILINE)[1]
    return {
        name: answer.startswith("yes")
        for names, answer in re.findall(r"^\| (.*) \| (.*) \|$", rows, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }


def is_accepted(check, *arguments):
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def test_the_page_lists_what_runs():
    required = {"hispo": {"delta_sequence": 0.1, "delta_token": 0.1}}

    def check_bound(name):
        check_objective(name)
        bind_objective(Choice(name, required.get(name, {})), extras=())

    assert listed("algo") == {name: is_accepted(check_estimator, name, {}) for name in ESTIMATORS}
    assert listed("objective") == {name: is_accepted(check_bound, name) for name in OBJECTIVES}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["algo=hgop"], "Unknown algo 'hgop'"),
        (["sampler=pools"], "sampler=pools is not possible in verl: it reads the outcomes of earlier iterations"),
        (["sampler=gaussian"], "sampler=gaussian is not possible in verl: it needs the win_rate of every task"),
        (["sampler=dynamic"], "sampler=dynamic is not possible in verl, which plays and selects episodes itself"),
        (["memory.similarity=0.5", "team=planner_actor"], "memory.similarity=0.5 merges what an agent by itself"),
        (
            ["trainer.rows=episode", "objective=gspo"],
            "trainer.rows=episode with trainer.loss_aggregation=sequence_mean",
        ),
        (["trainer.rows=episode", "objective=hapo"], "trainer.rows=episode with .* is not possible in verl"),
        (["algo=gae"], "algo=gae needs the column 'value'"),
        (["algo=tree_grpo"], "algo=tree_grpo needs the column"),
        (["objective=capo"], "objective=capo needs quantities of tokens that verl does not pass"),
        (["objective=hapo", "correction=token"], "correction=token with objective=hapo is not possible in verl"),
        (["mode=separate_async", "gpus=8"], "mode=separate_async with gpus=8 and rollout_gpus=None: set rollout_gpus"),
        (["mode=separate_async", "gpus=2", "rollout_gpus=2"], "fewer than gpus"),
        (["rollout_gpus=2"], "rollout_gpus=2 has no meaning with mode=sync"),
        (["objective=gbpo"], "objective=gbpo takes its targets from the estimator"),
        (["engine=transformers"], "engine=transformers is not possible in verl: verl generates by vLLM or SGLang"),
        (["engine.constrain=admissible"], "engine.constrain=admissible is not possible in verl"),
        (["model=tiny"], "verl trains a given language model: set model=pretrained and model.path"),
        (["trainer.zero_advantage=drop"], "trainer.zero_advantage=drop is not possible in verl"),
        (["distributed=fsdp2"], "distributed is not read: verl .* set gpus and nodes"),
        (["rollout.staleness=1"], "rollout.staleness is not read: verl has none: set mode=colocate_async"),
        (["gpu=8"], "Unknown config key 'gpu'. Did you mean 'gpus'"),
        (["gpus=0"], "gpus=0: must be at least 1"),
        (["mode=async"], "Unknown mode 'async'"),
        (["env.sections=0"], "sections=0: must be at least 1"),
        (["evaluation.split=nowhere"], "nowhere"),
        (["prompt=plan_instruct"], "responses with a plan"),
    ],
)
def test_refused_by_name(capsys, arguments, message):
    line = refused(capsys, *SMALL, *arguments)
    assert line.count("\n") == 0
    assert re.search(message, line), line
