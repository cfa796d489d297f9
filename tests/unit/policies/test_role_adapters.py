"""An adapter for each role of a team: each responds and learns with its adapter, over a shared base."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from hgpo_gym.cli.main import main
from hgpo_gym.config.compose import load_run
from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.huggingface import load_model
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import score
from hgpo_gym.policies.lora import WithoutAdapter
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from hgpo_gym.runs.directory import read_config
from hgpo_gym.trainers.settings import RunSettings
from tests.support import small_runs
from tests.support.small_models import updated, weights
from tests.support.small_runs import training_numbers
from tests.unit.policies.test_adapters import RUN, SCORING

pytest.importorskip("peft")

train = partial(small_runs.train, base=RUN)


TEAM = [
    "team=planner_actor", "team.every=3", "team.plans=[red,blue,green]", "team.weights=adapter", "algo=dr_mas",
    "engine.constrain=admissible",
]  # fmt: skip
ROLES = ("planner", "actor")


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A team's run of two iterations, stopped after one and resumed, and the whole one."""
    folder = tmp_path_factory.mktemp("team")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HGPO_GYM_CACHE", str(folder / "cache"))
        train(folder / "whole", *TEAM)
        train(folder / "broken", *TEAM, "trainer.iterations=1")
        train(folder / "broken", *TEAM, "resume=must")
    return folder


def of_role(policy, role):
    return {name: weight for name, weight in weights(policy).items() if f".{role}.weight" in name}


def trained_team(run, iteration=2):
    settings = RunSettings.parse(read_config(run))
    return settings.model.load(settings, run / "checkpoints" / f"iteration_{iteration:04d}" / "model")


def test_the_adapters_of_a_team_train_apart_and_resume_to_the_same_numbers(team):
    assert training_numbers(team / "whole") == training_numbers(team / "broken")
    first, last, again = (trained_team(team / name, i) for name, i in [("whole", 0), ("whole", 2), ("broken", 2)])
    for role in ROLES:
        before, now, resumed = (of_role(policy, role) for policy in (first, last, again))
        assert len(now) == 2 * 7 * 2
        assert any(not torch.equal(before[name], now[name]) for name in now)
        assert all(torch.equal(resumed[name], now[name]) for name in now)
    shared = {name: weight for name, weight in weights(last).items() if "lora_" not in name}
    assert all(torch.equal(weights(first)[name], weight) for name, weight in shared.items())


def asked(policy, role):
    """A response that the role gives, and how likely it was."""
    request = Request("You are in a hall. Doors: red, blue.", ("red", "blue"), role=role)
    (response,) = policy.generate([request], Sampling())
    assert response.tokens.adapter == role
    return response.tokens, score(policy, [response.tokens], **SCORING)[0]


def test_each_role_responds_with_its_adapter_also_in_one_batch(team):
    policy = trained_team(team / "whole")
    records = [asked(policy, role)[0] for role in ROLES]
    for record in records:
        (logprobs,) = score(policy, [record], **SCORING)
        np.testing.assert_allclose(logprobs, record.logprobs[record.choices], atol=1e-5)
    both = score(policy, records, **SCORING)
    alone = [score(policy, [record], **SCORING)[0] for record in records]
    np.testing.assert_array_equal(np.concatenate(both), np.concatenate(alone))
    swapped = score(policy, [replace(records[0], adapter="actor")], **SCORING)[0]
    assert abs(swapped - alone[0]).max() > 1e-6
    requests = [Request("Doors: red, blue.", ("red", "blue"), seed=(n,), role=ROLES[n % 2]) for n in range(6)]
    together = policy.generate(requests, Sampling())
    for request, response in zip(requests, together, strict=True):
        (single,) = policy.generate([request], Sampling())
        assert single.text == response.text
        np.testing.assert_allclose(single.tokens.logprobs, response.tokens.logprobs, atol=1e-5)
    with pytest.raises(ValueError, match="The role 'checker' has no adapter: this model has those of planner, actor"):
        policy.generate([Request("Doors: red, blue.", ("red", "blue"), role="checker")], Sampling())
    with pytest.raises(ValueError, match="records of several adapters"):
        policy.likelihood(records, temperature=1.0)


def test_a_critic_reads_the_state_of_who_answered_whoever_was_asked_last(team):
    policy = trained_team(team / "whole")
    records, reading = [asked(policy, role)[0] for role in ROLES], {"max_batch_tokens": 10_000, "precision": "float32"}
    whoever = []
    for role in ROLES:
        asked(policy, role)
        whoever.append(policy.states(records, [0, 0], **reading))
    np.testing.assert_array_equal(*whoever)
    alone = [policy.states([record], [0], **reading) for record in reversed(records)]
    np.testing.assert_allclose(whoever[0], np.concatenate(alone[::-1]), atol=1e-5)
    assert (
        np.abs(whoever[0] - policy.states([replace(one, adapter=ROLES[0]) for one in records], [0, 0], **reading)).max()
        > 1e-6
    )


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_update_gives_each_adapter_the_gradient_of_its_responses(team, checkpointing):
    """One mini-batch with answers of both roles; a role whose advantages are 0 keeps its adapter as it is."""
    policy = trained_team(team / "whole", 0)
    records = [asked(policy, role)[0] for role in ROLES for _ in range(2)]
    after, _ = updated(policy, records, [1.0, 1.0, 0.0, 0.0], gradient_checkpointing=checkpointing)
    for role, changes in (("planner", True), ("actor", False)):
        before, now = of_role(policy, role), of_role(after, role)
        assert any(not torch.equal(before[name], now[name]) for name in now) == changes
    _, both = updated(policy, records, [1.0, 1.0, -1.0, 2.0], gradient_checkpointing=checkpointing)
    _, split = updated(policy, records, [1.0, 1.0, -1.0, 2.0], max_batch_tokens=1)
    assert both["gradient_norm"] == pytest.approx(split["gradient_norm"], rel=1e-5)


def test_the_reference_of_every_role_is_the_base(team):
    policy, base = (trained_team(team / "whole", iteration) for iteration in (2, 0))  # at first adapters add nothing
    records = [asked(policy, role)[0] for role in ROLES]
    reference = score(WithoutAdapter(policy), records, **SCORING)
    for role, found, expected in zip(ROLES, reference, score(base, records, **SCORING), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=role)
    assert abs(np.concatenate(score(policy, records, **SCORING)) - np.concatenate(reference)).max() > 1e-3


def test_a_run_with_adapters_is_not_played_as_if_they_were_shared(team):
    settings = load_run([*RUN, *TEAM, "team.weights=shared"])
    with pytest.raises(ValueError, match=r"team.weights=shared: .* has an adapter for each of actor, planner"):
        settings.model.load(settings, team / "whole" / "checkpoints" / "iteration_0002" / "model")


def test_export_writes_a_model_for_each_role(team, tmp_path, capsys):
    main(["export", str(team / "whole"), "--to", str(tmp_path / "plain")])
    folders = ", ".join(f"model.path={tmp_path / 'plain' / role}" for role in sorted(ROLES))
    assert f"{folders} each load a role's model." in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == sorted([*ROLES, "README.md"])
    policy = trained_team(team / "whole")
    outputs = {}
    for role in ROLES:
        exported, _ = load_model(str(tmp_path / "plain" / role), device="cpu")
        record, _ = asked(policy, role)
        (expected,) = score(policy, [record], **SCORING)
        alone = LanguageModelPolicy(exported, policy.tokenizer, constrain="admissible")
        (found,) = score(alone, [replace(record, adapter=None)], **SCORING)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        outputs[role] = {name: weight.clone() for name, weight in exported.state_dict().items()}
    assert any(not torch.equal(outputs["planner"][name], outputs["actor"][name]) for name in outputs["actor"])


def test_adapters_need_names_of_roles_and_known_weights():
    with pytest.raises(ValueError, match=r"team.weights 'adaptr'. Did you mean 'adapter'\?"):
        PlannerActor(weights="adaptr")
