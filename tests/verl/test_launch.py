"""verl's configuration with ours on top, before Ray starts."""

import pytest
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from hgpo_gym.adapters.verl.launch import check_separate, compose_verl
from hgpo_gym.adapters.verl.loop_settings import LoopSettings
from hgpo_gym.adapters.verl.losses import ObjectiveConfig
from hgpo_gym.adapters.verl.run_settings import Scale, verl_settings
from hgpo_gym.adapters.verl.trainer import StepsSync
from hgpo_gym.config.compose import load_config
from hgpo_gym.trainers.settings import RunSettings

SCALE = Scale(gpus=8, nodes=1, mode="sync")


def settings(*overrides):
    return verl_settings(RunSettings.parse(load_config("verl", list(overrides))), SCALE)


@pytest.fixture(scope="module")
def maze():
    return settings("env=signpost_maze", "prompt=instruct", "objective=gspo")


def test_verl_accepts_what_ours_become(maze):
    config = compose_verl(maze, [])
    validate_config(config, need_reference_policy(config), need_critic(config))
    actor = config.actor_rollout_ref.actor
    # verl makes this object in its workers.
    made = omega_conf_to_dataclass(actor.policy_loss)
    assert isinstance(made, ObjectiveConfig)
    assert (made.objective, made.options["clip_low"]) == ("gspo", 3e-4)
    assert config.data.hgpo_gym.prompt.first == maze["data.hgpo_gym"]["prompt"]["first"]
    assert config.trainer.n_gpus_per_node == 8


def test_settings_of_verl_come_last(maze):
    config = compose_verl(
        maze, ["trainer.n_gpus_per_node=2", "++data.hgpo_gym.max_retries=5", "trainer.logger=[console]"]
    )
    assert config.trainer.n_gpus_per_node == 2
    assert config.data.hgpo_gym.max_retries == 5
    assert list(config.trainer.logger) == ["console"]
    assert maze["trainer.n_gpus_per_node"] == 8


def test_optimiser_steps_by_responses_or_by_task_groups(maze):
    def steps(*overrides):
        trainer = StepsSync.__new__(StepsSync)  # its __init__ starts workers
        trainer.config = compose_verl({**maze, "data.train_batch_size": 16}, overrides)
        trainer.loop_settings = LoopSettings.of_data(trainer.config.data)
        trainer.use_critic, trainer.parameter_sync_step = False, 1
        return [trainer._count_mini_batches(responses, responses) for responses in (100, 5000)]

    assert steps("data.hgpo_gym.mini_batch_size=256") == [1, 20]
    assert steps("data.hgpo_gym.mini_batch_size=null", "actor_rollout_ref.actor.ppo_mini_batch_size=4") == [4, 4]


def test_mini_batches_of_separate_async(maze):
    changed = {**maze, "data.train_batch_size": 16, "trainer.v1.trainer_mode": "steps_separate_async"}
    parts = ["trainer.v1.separate_async.parameter_sync_step=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4"]
    check_separate(compose_verl(changed, parts))
    with pytest.raises(ValueError, match=r"parameter_sync_step=4: verl wants data\.train_batch_size=16"):
        check_separate(compose_verl(changed, parts[:1]))
    whitened = {**changed, "algorithm.adv_estimator": "hgpo_gym.reinforce_pp"}
    with pytest.raises(ValueError, match="algo=reinforce_pp takes statistics over all task groups"):
        check_separate(compose_verl(whitened, parts))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.n_gpus=8", r"Unknown setting of verl 'trainer\.n_gpus'.*trainer\.n_gpus_per_node"),
        ("trainer.v2.mode=x", r"Unknown setting of verl 'trainer\.v2\.mode'"),
        ("trainer.n_gpus_per_node", r"The settings of verl, trainer\.n_gpus_per_node"),
        ("model_engine=nothing", r"The settings of verl, model_engine=nothing"),
    ],
)
def test_mistakes_are_named(maze, override, message):
    with pytest.raises(ValueError, match=message):
        compose_verl(maze, [override])
