"""Answers with plans: how they are written and read, which tokens are whose, and runs that learn from both."""

import numpy as np
import pytest

from hgpo_gym.advantages import StepBatch, assign
from hgpo_gym.advantages.statistics import means_of_copies
from hgpo_gym.memory import make_memory
from hgpo_gym.memory.plans import read_plan, write_plan
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.policies import Response
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.rollouts import saved
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.teams.base import Solo
from hgpo_gym.runs.directory import read_metrics
from tests.support.small_models import make_policy
from tests.support.small_runs import TINY, numbers, train, whole_and_resumed
from tests.support.step_batches import random_batch

PLANNED = [*TINY, "algo=hiper_hae", "prompt=plan", "rollout.max_new_tokens=64"]
SEEN = {"task": "Go.", "observation": "a hall", "admissible_actions": ("go", "stay")}
INFO = {
    **SEEN,
    "context_keys": np.zeros(1, int),
    "context": make_memory(window=2, history_length=0).observe("a hall", ()),
}


@pytest.mark.parametrize(
    ("response", "current", "subgoal", "switches", "in_form"),
    [
        (write_plan("find the door", switches=True) + "<action>go</action>", "", "find the door", True, True),
        (write_plan("find the key", switches=True), "find the door", "find the key", True, True),
        (write_plan("find the door", switches=False), "find the door", "find the door", False, True),
        # What is kept is what was in force, whatever is repeated; the first one that is named begins.
        (write_plan("find a doorway", switches=False), "find the door", "find the door", False, True),
        (write_plan("find the door", switches=False), "", "find the door", True, True),
        ("<switch> SWITCH </switch> hm <subgoal> key </subgoal>", "door", "key", True, True),
        ("<switch>MAYBE</switch><subgoal>key</subgoal>", "door", "door", False, False),
        ("<switch>SWITCH</switch><subgoal> </subgoal>", "door", "door", False, False),
        ("<subgoal>key</subgoal><switch>SWITCH</switch>", "door", "door", False, False),
        ("<switch>SWITCH</switch><subgoal>key", "door", "door", False, False),
        ("<switch>SWITCH<subgoal>key</subgoal>", "door", "door", False, False),
        ("", "", "", False, False),
    ],
)
def test_a_plan_is_read_and_one_that_is_not_in_form_changes_nothing(response, current, subgoal, switches, in_form):
    plan = read_plan(response, current)
    assert (plan.subgoal, plan.switches, plan.in_form) == (subgoal, switches, in_form)
    if in_form:
        assert response[: plan.switch_end].endswith("</switch>")
        assert response[: plan.end].endswith("</subgoal>")
    else:
        assert plan.end == plan.switch_end == 0


def test_responses_keep_the_subgoal_or_switch_to_each_other():
    template = PromptTemplate.named("plan")
    assert len(template.write_responses("go")) == 3
    kept, *switched = template.write_responses("go", "two")
    assert kept == "<switch>KEEP</switch>\n<subgoal>two</subgoal>\n<action>go</action>"
    assert len(switched) == 3
    assert all("SWITCH" in text and template.parse_action(text) == "go" for text in switched)
    free = PromptTemplate.named("plan_instruct")
    assert free.write_responses("go") == ["<switch>SWITCH</switch>\n<subgoal>go</subgoal>\n<action>go</action>"]
    assert template.prefix.show("a hall\n>", "two") == "Subgoal: two\na hall\n>"
    assert template.prefix.show("a hall\n>", "") == "Subgoal: none\na hall\n>"
    bare = PromptTemplate.named("bare")
    assert bare.write_responses("go", "two") == ["go"]
    assert bare.prefix.show("a hall\n>", "two") == "a hall\n>"


def test_a_player_follows_its_plan_also_where_it_branches():
    template = PromptTemplate.named("plan")
    player = Player((0,), "a hall\n>", INFO, Solo())
    shown = []
    for text in (template.write_responses("go")[0], "<action>go</action>", template.write_responses("stay", "one")[2]):
        shown.append(player.request(template).prompt.splitlines()[0])
        player.on_response(template, Response(text))
        player.on_step("a hall\n>", 0.0, False, {**INFO, "action_valid": True})
    assert shown == ["Subgoal: none", "Subgoal: one", "Subgoal: one"]
    assert player.request(template).prompt.startswith("Subgoal: two")
    assert [row.valid for row in player.rows] == [True, False, True]  # the second acts, and is not in form
    assert [row.extras["boundary"] for row in player.rows] == [True, False, True]
    assert player.actions == ["go", "go", "stay"]
    assert player.branch(1, (1,), "a hall\n>", INFO).request(template).prompt.startswith("Subgoal: one")
    assert player.branch(0, (1,), "a hall\n>", INFO).request(template).prompt.startswith("Subgoal: none")


@pytest.mark.parametrize("name", ["plan", "plan_instruct"])
def test_an_action_may_contain_a_bracket(name):
    template = PromptTemplate.named(name)
    for action in ("click[< prev]", "go", "a < b > c"):
        for written in template.write_responses(action, "one"):
            assert template.read(written).action == action
    unclosed = "<action>" * 20_000
    assert template.read(unclosed).action == ""
    assert template.read("<action>stay <action>go</action>").action == "go"


def test_plans_that_are_made_up_can_be_read_and_last_some_steps():
    template = PromptTemplate.named("plan")
    generator, current, switches = np.random.default_rng(0), "", []
    for _ in range(200):
        response, carried = template.sample_response("go", current, (), generator)
        plan = read_plan(response, current)
        assert plan.in_form
        assert template.parse_action(response) == "go"
        assert carried == plan.subgoal
        current = carried
        switches.append(plan.switches)
    assert 0.15 < np.mean(switches) < 0.35


def test_the_tokens_of_a_part_of_a_response_are_counted():
    policy = make_policy()
    text = write_plan("find the door", switches=True) + "<action>gö left</action>"
    record = _record(policy, text)
    plan = read_plan(text, "")
    for end, expected in ((0, ""), (plan.switch_end, "</switch>"), (plan.end, "</subgoal>"), (len(text), "</action>")):
        count = policy.tokens_within(record, end)
        decoded = policy.tokenizer.decode(record.token_ids[:count].tolist(), skip_special_tokens=True)
        assert decoded.startswith(text[:end])
        assert expected in decoded
        shorter = policy.tokenizer.decode(record.token_ids[: max(0, count - 1)].tolist(), skip_special_tokens=True)
        assert end == 0 or len(shorter) < end


def _record(policy: LanguageModelPolicy, text):
    from hgpo_gym.policies import TokenRecord

    ids = policy.encode_response(text)
    return TokenRecord(np.array([1]), ids, np.zeros(len(ids), dtype=np.float32))


def test_high_advantages_are_for_the_tokens_of_subgoals_that_begin_and_low_ones_for_actions():
    batch = random_batch(0)
    options = {"gamma": 0.9, "trace_decay": 0.8}
    low, high = (assign("hiper_hae", batch, part=part, **options) for part in ("low", "high"))
    both = assign("hiper_hae", batch, part="both", **options)
    np.testing.assert_array_equal(both.values, low.values)
    begins = (batch.step == 0) | batch.extras["boundary"]
    for row, tokens in enumerate(both.tokens):
        switch, plan, whole = (int(batch.extras[f"{name}_tokens"][row]) for name in ("switch", "plan", "response"))
        expected = [0.0] * switch + [high.values[row]] * (plan - switch) + [low.values[row]] * (whole - plan)
        assert tokens.tolist() == expected
        assert begins[row] or high.values[row] == 0
    np.testing.assert_array_equal(both.targets["value_low"], low.targets["value_low"])
    np.testing.assert_array_equal(np.isnan(both.targets["value_high"]), ~begins)


def test_copies_of_a_response_have_the_mean_of_its_tokens_advantages():
    records = {"group": [0] * 4, "trajectory": [0, 0, 1, 1], "step": [0, 1] * 2, "observation": list("abac")}
    batch = StepBatch.from_records(**records, reward=[0.0, 1.0, 0.0, 0.0], history_length=0, response=[0, 1, 0, 2])
    values = [np.array([1.0, 2.0]), np.array([5.0]), np.array([3.0, 0.0]), None]
    first, second, same, none = means_of_copies(batch, values)
    assert first.tolist() == same.tolist() == [2.0, 1.0]
    assert second.tolist() == [5.0]
    assert none is None


def test_a_resumed_run_has_the_numbers_of_an_undisturbed_one(tmp_path):
    whole, resumed = whole_and_resumed(tmp_path, "evaluation.every=2", base=PLANNED)
    assert numbers(resumed) == numbers(whole)
    lines = read_metrics(whole)
    assert len({line["value_low_loss"] for line in lines}) == len({line["value_high_loss"] for line in lines}) == 4
    assert {line["plan_in_form_share"] for line in lines} == {1.0}
    extras = saved.load(whole / "rollouts", 4).batch.extras
    assert (extras["switch_tokens"] > 0).all()
    assert (extras["switch_tokens"] < extras["plan_tokens"]).all()
    assert (extras["plan_tokens"] < extras["response_tokens"]).all()
    assert extras["boundary"].any()


def test_a_model_that_may_say_anything_is_not_always_in_form(tmp_path):
    free = ["engine.constrain=none", "trainer.iterations=2", "warmstart.source=none"]
    train(tmp_path, *free, base=PLANNED)
    for line in read_metrics(tmp_path):
        assert line["plan_in_form_share"] < 0.1
        assert line["valid_action_rate"] < 0.1
        assert np.isfinite(line["value_low_loss"])
