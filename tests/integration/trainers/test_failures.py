"""Environments that raise errors and hang: their episodes are played again or given up, and the others go on."""

import io
import json
import re
from contextlib import contextmanager

import pytest
from rich.console import Console

from hgpo_gym.cli.main import main
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.progress import Progress
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts import failures
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.evaluation import evaluate
from hgpo_gym.rollouts.failures import EpisodesFailedError
from hgpo_gym.rollouts.rollout import merge
from hgpo_gym.rollouts.samplers import make_sampler
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor
from hgpo_gym.trainers.run import Run
from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate
from tests.support.breaking import BREAKING
from tests.support.small_models import make_policy
from tests.support.small_runs import numbers, settings, train
from tests.support.worker_clock import LIMIT, worker_clock  # noqa: F401 - a fixture


def breaking(folder, groups=3, size=4, workers=0, timeout=None, **options):
    vector = TextVectorEnv(
        BREAKING, groups, size, workers=workers, worker_timeout=timeout, contain_failures=True, folder=str(folder),
        split="all", **{"sections": 1, **options},
    )  # fmt: skip
    return ContextWrapper(vector, "bare", window=2, history_length=2)


def play(env, groups=3, max_retries=2, how=collect, **options):
    seeds = [(7, 0, 0, group) for group in range(groups)]
    tasks = env.unwrapped.task_ids[:groups]
    return how(env, RandomPolicy(), Sampling(), task_ids=tasks, seeds=seeds, max_retries=max_retries, **options)


def steps_of(rollout):
    return [(step.task, step.observation, step.action) for step in rollout.steps]


@pytest.mark.usefixtures("worker_clock")
@pytest.mark.parametrize(("workers", "how"), [(0, "raise"), (2, "raise"), (1, "stop"), (2, "die")])
def test_a_failure_that_passes_leaves_no_trace(tmp_path, workers, how):
    expected = play(breaking(tmp_path))
    env = breaking(tmp_path, workers=workers, timeout=LIMIT if how == "stop" else None, once=True, how=how)
    passed = play(env)
    env.close()
    assert len(list(tmp_path.iterdir())) == 3  # it did fail
    assert steps_of(passed) == steps_of(expected)
    assert passed.episodes == expected.episodes
    assert not passed.failures


@pytest.mark.usefixtures("worker_clock")
@pytest.mark.parametrize(
    ("workers", "how", "words"),
    [
        (0, "raise", "ConnectionResetError: the backend hung up"),
        (2, "raise", "ConnectionResetError: the backend hung up"),
        (1, "stop", f"no response within {LIMIT:g} s twice at the same begin"),
        (2, "die", "exit code -9"),
    ],
)
def test_a_task_that_cannot_begin_costs_its_group_and_no_other(tmp_path, workers, how, words):
    expected = play(breaking(tmp_path, size=2))
    task = expected.episodes[2].task_id
    env = breaking(tmp_path, size=2, workers=workers, timeout=LIMIT if how == "stop" else None, broken=task, how=how)
    rollout = play(env, max_retries=1)
    env.close()
    assert rollout.episodes == expected.episodes[:2] + expected.episodes[4:]
    assert rollout.groups.tolist() == [0, 0, 1, 1]
    failed = rollout.failures
    assert [(one.group, one.attempt, one.failed) for one in failed] == [(1, 1, False)] * 2 + [(1, 2, True)] * 2
    assert all(one.outcome.task_id == task and words in one.error for one in failed)
    assert (rollout.episodes_left_out, rollout.steps_left_out) == (4, 0)


def test_a_failed_episode_is_repeated_with_other_chance_and_its_conversation_is_saved(tmp_path):
    expected, rollout = play(breaking(tmp_path)), play(breaking(tmp_path, unlucky=0.3), max_retries=5)
    failed = rollout.failures
    assert failed
    assert not any(one.failed for one in failed)
    assert len(rollout.episodes) == 12
    assert all(one.steps == 1 and [len(one.texts), len(one.rewards)] == [2, 2] for one in failed)
    assert all("take_action" in one.traceback for one in failed)
    # Those that were not struck are as they were, but for the draw that decided it.
    once = {(one.group, one.outcome.task_id) for one in failed}
    assert 0 < len(once) < 12
    assert rollout.steps_left_out == len(failed)
    assert rollout.played_episodes == 12 + len(failed)
    assert sum(one == other for one, other in zip(rollout.episodes, expected.episodes, strict=True)) >= 12 - len(failed)


def test_a_group_with_an_episode_that_always_fails_is_left_out_whole_and_counted(tmp_path):
    rollout = play(breaking(tmp_path, unlucky=0.2), max_retries=0)
    lost = {one.group for one in rollout.failures}
    assert 0 < len(lost) < 3
    assert len(rollout.episodes) == 4 * (3 - len(lost))
    assert rollout.played_episodes == 12
    whole = play(breaking(tmp_path, unlucky=0.2), max_retries=5)
    assert rollout.episodes == tuple(
        one for one, group in zip(whole.episodes, whole.groups, strict=True) if group not in lost
    )


SAMPLERS = {
    "tree": ({"trees": 2, "nodes": 2, "rounds": 2, "leaves": 3}, {}),
    "restarts": ({"restarts": 2, "gamma": 0.9}, {}),
    "best_plan": ({"trials": 3, "executions": 3}, {"team": PlannerActor()}),
}


@contextmanager
def counted(policy):
    """The tokens of each response that the policy gives meanwhile."""
    counts, generate = [], policy.generate

    def count(requests, sampling):
        responses = generate(requests, sampling)
        counts.extend(len(response.tokens.token_ids) for response in responses)
        return responses

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "generate", count)
        yield counts


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_that_branch_leave_out_a_group_that_failed(tmp_path, name):
    settings, options = SAMPLERS[name]
    policy = make_policy(constrain="none" if name == "best_plan" else "admissible")

    def rollout_of(env, max_retries):
        sampler = make_sampler(Choice(name, settings), env.unwrapped.task_ids, 0)
        seeds = [(7, 0, 0, group) for group in range(3)]
        tasks = env.unwrapped.task_ids[:3]
        return sampler.collector.collect(
            env, policy, Sampling(max_new_tokens=16), task_ids=tasks, seeds=seeds, max_retries=max_retries, **options
        )

    expected = rollout_of(breaking(tmp_path, size=6), 0)
    task = expected.episodes[6].task_id
    rollout = rollout_of(breaking(tmp_path, size=6, broken=task), 0)
    assert rollout.episodes == expected.episodes[:6] + expected.episodes[12:]
    with counted(policy) as responses:
        some = rollout_of(breaking(tmp_path, size=6, unlucky=0.2), 0)
    assert len(some.episodes) < 18
    assert some.played_tokens == sum(responses)
    unlucky = rollout_of(breaking(tmp_path, size=6, unlucky=0.2), 4)  # at branches too
    assert unlucky.failures
    assert len(unlucky.episodes) == 18
    none = rollout_of(breaking(tmp_path, size=6, broken="*"), 0)
    assert none.episodes == ()
    assert none.failures


def test_failures_of_processes_come_together_even_if_one_has_nothing_else(tmp_path):
    nothing, something = play(breaking(tmp_path, broken="*"), max_retries=0), play(breaking(tmp_path))
    merged = merge([nothing, something])
    assert merged.episodes == something.episodes
    assert len(merged.failures) == 12
    assert merged.episodes_left_out == 12


def test_an_evaluation_counts_as_not_won_what_always_fails(tmp_path):
    env = breaking(tmp_path, groups=4, size=1, sections=2)
    expected = evaluate(env, RandomPolicy(), Sampling(), [0, 1], tasks=6)
    struck = expected.episodes[0][4].task_id
    result = evaluate(
        breaking(tmp_path, groups=4, size=1, sections=2, broken=struck), RandomPolicy(), Sampling(), [0, 1],
        tasks=6, max_retries=1, max_failed=0.2,
    )  # fmt: skip
    for before, after in zip(expected.episodes, result.episodes, strict=True):
        assert [one for one in before if one.task_id != struck] == [one for one in after if one.task_id != struck]
        assert (after[4].task_id, after[4].won, after[4].steps) == (struck, False, 0)
    assert result.summary()["failed"] == 2
    assert result.summary()["episodes"] == 12
    with pytest.raises(EpisodesFailedError, match=r"so that 2 of 12 episodes of an evaluation are lost; .*=0.1 is"):
        evaluate(
            breaking(tmp_path, groups=4, size=1, sections=2, broken=struck), RandomPolicy(), Sampling(), [0, 1],
            tasks=6, max_failed=0.1,
        )  # fmt: skip
    with pytest.raises(
        EpisodesFailedError, match=r"so that 3 of 3 episodes .* are lost; nothing is left\. .*_timeout\)\.$"
    ):
        evaluate(
            breaking(tmp_path, groups=4, size=1, broken="*"), RandomPolicy(), Sampling(), [0], tasks=6, max_failed=1
        )


RUN = [
    "model=tabular", f"env.id={BREAKING}", "env.sections=1", "env.max_episode_steps=8", "env.split=all",
    "evaluation.split=all", "evaluation.tasks=6", "rollout.num_tasks=3", "rollout.group_size=4",
    "trainer.iterations=2", "evaluation.every=2", "evaluation.decoding_seeds=1",
]  # fmt: skip


def run(folder, *overrides):
    return train(folder / "run", f"+env.folder={folder}", *overrides, base=RUN)


@pytest.mark.promise("An environment that fails and recovers leaves no trace in a run.")
def test_a_run_with_failures_that_pass_has_the_numbers_of_one_without(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    train(tmp_path / "sound", f"+env.folder={marks}", base=RUN)
    train(tmp_path / "passed", f"+env.folder={marks}", "+env.once=true", base=RUN)
    assert list(marks.iterdir())
    assert numbers(tmp_path / "passed") == numbers(tmp_path / "sound")
    assert {line["failed_episodes"] for line in numbers(tmp_path / "sound")} == {0}
    assert not (tmp_path / "sound" / "failures").exists()


def test_a_run_goes_on_past_failures_and_shows_them(tmp_path, capsys):
    summary = run(tmp_path, "+env.unlucky=0.2", "rollout.max_failed=1")
    lines = numbers(tmp_path / "run")
    assert len(lines) == 2
    assert lines[0]["failed_episodes"] > 0
    assert lines[0]["groups_kept"] == 3
    folder = tmp_path / "run" / "failures"
    saved = [failure for _, _, path in failures.saved_files(folder) for failure in failures.read(path)]
    assert saved
    assert all("the backend hung up" in failure.error for failure in saved)
    assert all(failure.conversation.exchanges[-1].response for failure in saved)
    lost = sum(failure.failed for _, phase, path in failures.saved_files(folder) if phase == "evaluation"
               for failure in failures.read(path))  # fmt: skip
    assert sum(result["failed"] for result in summary["evaluations"]) == lost
    assert [line["evaluation_failed"] for line in lines if "evaluation_failed" in line] == [
        result["failed"] for result in summary["evaluations"][1:]
    ]
    capsys.readouterr()
    main(["inspect", str(tmp_path / "run"), "--failures"])
    shown = capsys.readouterr().out
    assert "hung up" in shown
    main(["inspect", str(tmp_path / "run"), "--failures", "--task", "1"])
    shown = capsys.readouterr().out
    assert "take_action" in shown
    assert saved[0].conversation.exchanges[0].response.split()[0] in shown
    main(["health", str(tmp_path / "run")])
    assert "failed episodes" in capsys.readouterr().out


def test_an_evaluation_with_failures_says_so(tmp_path, capsys):
    """They are losses of the environment, in a number that is called the policy's."""
    task = breaking(tmp_path).unwrapped.task_ids[1]
    output = io.StringIO()
    settings = [f"+env.folder={tmp_path}", f"+env.broken={task}", "rollout.max_failed=0.5", "evaluation.split=train"]
    summary = train(tmp_path / "run", *settings, base=RUN, progress=Progress(Console(file=output, width=1000)))
    lost = [result["failed"] for result in summary["evaluations"]]
    assert min(lost) > 0
    assert output.getvalue().count(f"of those that failed each time ({lost[0]}) none counts as won.") == len(lost)
    main(["health", str(tmp_path / "run")])
    assert "failed in evaluation" in capsys.readouterr().out


@pytest.mark.parametrize(
    "sampler",
    [[], ["sampler=dynamic", "sampler.after=3"], ["sampler=dynamic", "sampler.rounds=1"]],
    ids=["in order", "before groups are drawn anew", "no group is drawn anew"],
)
def test_a_group_that_is_given_up_is_replaced_by_another_task(tmp_path, sampler):
    task = breaking(tmp_path).unwrapped.task_ids[1]
    broken = [f"+env.broken={task}", "rollout.max_failed=0.5"]
    run(tmp_path, *broken, "trainer.iterations=3", "evaluation.tasks=2", *sampler)
    lines = numbers(tmp_path / "run")
    struck = [line for line in lines if line["failed_episodes"]]
    assert struck
    assert all(line["groups_kept"] == 3 and line["rounds"] > 1 for line in struck)


def test_a_run_that_loses_too_much_stops_and_keeps_what_failed(tmp_path):
    with pytest.raises(EpisodesFailedError, match="the backend hung up"):
        run(tmp_path, "+env.broken='*'")
    assert [phase for _, phase, _ in failures.saved_files(tmp_path / "run" / "failures")] == ["evaluation"]
    with pytest.raises(SystemExit) as ended:
        main(["train", *RUN, f"run_dir={tmp_path / 'other'}", f"+env.folder={tmp_path}", "+env.broken=*"])
    assert ended.value.code == 1


WARM = ["model=features", "warmstart.source=expert", "warmstart.episodes=12", "trainer.iterations=1"]


def test_a_warm_start_leaves_out_episodes_whose_environment_fails(tmp_path, capsys):
    task = breaking(tmp_path).unwrapped.task_ids[1]
    run(tmp_path, *WARM, f"+env.broken={task}", "rollout.max_failed=0.5")
    output = capsys.readouterr().out
    lost = int(re.search(r"(\d+) of 12 episodes to imitate are left out", output)[1])
    assert "attempts at an episode to imitate. The last error, in task '" in output
    assert 0 < lost <= 6
    again = settings(tmp_path / "run", *WARM, f"+env.folder={tmp_path}", f"+env.broken={task}", base=RUN)
    kept, _ = episodes_to_imitate(again, 0, Progress())
    assert len(kept) == 12 - lost
    assert f"{lost} of 12 episodes to imitate are left out" in capsys.readouterr().out  # from the cache as well
    assert task not in {episode.task_id for episode in kept}


@pytest.mark.parametrize("max_retries", ["2", "null"])
def test_a_warm_start_that_loses_too_much_ends_in_words(tmp_path, max_retries, capsys):
    with pytest.raises(SystemExit) as ended:
        main([
            "train", *RUN, *WARM, f"run_dir={tmp_path / 'run'}", f"+env.folder={tmp_path}", "+env.broken=*",
            f"rollout.max_retries={max_retries}",
        ])  # fmt: skip
    assert ended.value.code == (1 if max_retries == "2" else 2)
    errors = capsys.readouterr().err
    assert "the backend hung up" in errors
    assert ("before training: " in errors and "12 of 12 episodes to imitate are lost" in errors) == (max_retries == "2")


@pytest.mark.parametrize("measure", ["win_rate", "expert_length"])
def test_what_is_measured_of_tasks_before_training_counts_failures_as_not_won(tmp_path, measure):
    task = breaking(tmp_path).unwrapped.task_ids[1]
    chosen = {"win_rate": "sampler=gaussian", "expert_length": "sampler=stages"}[measure]
    run(tmp_path, chosen, f"+env.broken={task}", "rollout.max_failed=0.5", "trainer.iterations=1")
    with pytest.raises(EpisodesFailedError, match="to measure are lost"):
        train(tmp_path / "strict", chosen, f"+env.folder={tmp_path}", f"+env.broken={task}", "rollout.max_failed=0",
              base=RUN)  # fmt: skip


def test_without_replays_the_first_error_ends_the_run(tmp_path):
    with pytest.raises(ConnectionResetError, match="the backend hung up"):
        run(tmp_path, "+env.unlucky=0.3", "rollout.max_retries=null")


def test_a_resumed_run_forgets_failures_that_are_to_be_made_again(tmp_path):
    run(tmp_path, "+env.unlucky=0.1", "rollout.max_failed=1")
    folder = tmp_path / "run" / "failures"
    late = failures.path_of(folder, "training", 9)
    late.write_bytes(b"")
    now = settings(
        tmp_path / "run", f"+env.folder={tmp_path}", "+env.unlucky=0.1", "rollout.max_failed=1", "resume=must", base=RUN
    )
    with Run(now, Progress()):
        assert not late.exists()


def test_a_step_of_a_failed_row_says_so_and_ends_it(tmp_path):
    env = TextVectorEnv(BREAKING, 1, 2, contain_failures=True, folder=str(tmp_path), broken="*", sections=1)
    observations, infos = env.reset()
    assert observations == ("", "")
    assert not env.active.any()
    assert set(env.failures) == {0, 1}
    assert json.dumps(list(infos["failure"])) == json.dumps(["ConnectionResetError: the backend hung up"] * 2)
