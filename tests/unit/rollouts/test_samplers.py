"""Samplers: exact values, rounds that play what is missing, curricula, and what everybody plays alike."""

import numpy as np
import pytest

from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.envs import TextVectorEnv
from hgpo_gym.memory import ContextWrapper
from hgpo_gym.policies import RandomPolicy, Sampling
from hgpo_gym.randomness import RandomStream
from hgpo_gym.registry import Choice
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.measures import measure_tasks
from hgpo_gym.rollouts.rollout import merge
from hgpo_gym.rollouts.rounds import collect_rounds
from hgpo_gym.rollouts.samplers import (
    SAMPLERS,
    Curriculum,
    Filter,
    GroupOutcome,
    TaskDraw,
    make_sampler,
    register_sampler,
)
from hgpo_gym.rollouts.samplers.base import draw_tasks
from hgpo_gym.rollouts.samplers.curricula.gaussian import gaussian_weights
from hgpo_gym.rollouts.samplers.curricula.pools import pool_weights
from hgpo_gym.rollouts.samplers.filters.pods import most_different
from hgpo_gym.rollouts.selection import select_episodes, select_steps
from tests.support.golden import load

TASKS = [f"task {number}" for number in range(10)]
NUM_TASKS, GROUP_SIZE = 3, 4


def sampler(name, tasks=TASKS, seed=3, **options):
    return make_sampler(Choice(name, options), tasks, seed)


def batch_of(groups):
    """A batch with an episode of one step for each of these returns, by group."""
    rows = [(group, reward) for group, returns in enumerate(groups) for reward in returns]
    return StepBatch.from_records(
        group=[group for group, _ in rows], trajectory=range(len(rows)), step=[0] * len(rows),
        observation=["here"] * len(rows), reward=[reward for _, reward in rows], history_length=0,
    )  # fmt: skip


def golden(name):
    return load("objectives")["samplers"][name]


@pytest.mark.parametrize("case", golden("dynamic_sampling"), ids=lambda case: case["criterion"])
def test_dynamic_sampling_keeps_the_groups_of_the_golden_values(case):
    batch = batch_of(case["groups"])
    values = np.concatenate([np.array(group) for group in case["groups"]])
    found = sampler("dynamic", criterion=case["criterion"]).filter.informative(batch, values)
    assert found.tolist() == case["informative"]


@pytest.mark.parametrize("case", golden("pods"), ids=lambda case: f"{len(case['returns'])}-{case['keep']}")
def test_pods_keeps_the_episodes_of_the_golden_values(case):
    assert most_different(np.array(case["returns"]), case["keep"]).tolist() == case["kept"]


@pytest.mark.parametrize("case", golden("gaussian_curriculum"), ids=lambda case: str(case["progress"]))
def test_the_gaussian_curriculum_has_the_golden_weights(case):
    rates, iterations = case["win_rates"], 100
    chosen = sampler("gaussian", [str(n) for n in range(len(rates))], iterations=iterations, **case["options"])
    measured = {str(n): rate for n, rate in enumerate(rates)}
    draw = TaskDraw(tuple(measured), 0, int(case["progress"] * iterations), measured=measured)
    found = chosen.curriculum.weights(draw)
    np.testing.assert_allclose(found, case["weights"], atol=1e-8)


@pytest.mark.parametrize("case", golden("pool_curriculum"), ids=["default", "other"])
def test_the_pools_have_the_golden_weights(case):
    np.testing.assert_allclose(pool_weights(case["scores"], case["pools"]), case["weights"], atol=1e-8)


def test_in_order_covers_all_tasks_and_depends_on_seed_and_iteration_alone():
    lap = [task for iteration in range(5) for task in sampler("in_order").tasks(iteration, 4, ())]
    assert len(set(lap[:10])) == len(set(lap[10:])) == 10
    assert lap[:10] != lap[10:]
    assert sampler("in_order").tasks(4, 4, ()) == lap[16:]
    assert sampler("in_order", seed=4).tasks(0, 10, ()) != lap[:10]


class Game:
    """Plays the maze by chance, and notes what it was asked to play."""

    def __init__(self, num_tasks=NUM_TASKS, parts=1, **options):
        options = {"sections": 1, "max_episode_steps": 12, "split": "all", **options}
        vectors = [TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, GROUP_SIZE, **options) for _ in range(parts)]
        self.envs = [ContextWrapper(vector, "bare", history_length=1) for vector in vectors]
        self.task_ids = vectors[0].task_ids
        self.asked = []

    def __call__(self, tasks, seeds):
        self.asked.append((tasks, seeds))
        count = len(self.envs)
        parts = [slice(rank * len(tasks) // count, (rank + 1) * len(tasks) // count) for rank in range(count)]
        return merge(
            [
                collect(env, RandomPolicy(), Sampling(), task_ids=tasks[part], seeds=seeds[part])
                for env, part in zip(self.envs, parts, strict=True)
            ]
        )


def grpo(rollout):
    return estimate("grpo", rollout.batch)


def rounds(game, chosen, iteration=0, outcomes=()):
    return collect_rounds(game, chosen, iteration=iteration, num_tasks=NUM_TASKS, outcomes=outcomes, assign=grpo)


def same(one, other):
    for name, values in one.batch._columns():
        np.testing.assert_array_equal(values, dict(other.batch._columns())[name])
    assert (one.steps, one.episodes) == (other.steps, other.episodes)


@pytest.mark.parametrize("name", ["in_order", "dynamic", "pods"])
def test_round_0_plays_what_in_order_plays(name):
    game = Game()
    plain = game.task_ids
    for iteration in (0, 5):
        rounds(game, sampler(name, plain), iteration)
    tasks = sampler("in_order", plain)
    first = [asked for asked in game.asked if asked[1][0][-1] == 0]
    assert first == [
        (tasks.tasks(iteration, 3, ()), [(RandomStream.ROLLOUT, 3, iteration, group) for group in range(3)])
        for iteration in (0, 5)
    ]


def test_dynamic_equals_in_order_where_every_group_is_informative():
    game = Game()
    iteration = next(n for n in range(50) if rounds(game, sampler("dynamic", game.task_ids), n).rounds == 1)
    one, other = (rounds(game, sampler(name, game.task_ids), iteration) for name in ("dynamic", "in_order"))
    same(one.rollout, other.rollout)
    assert one.outcomes == other.outcomes
    assert one.steps == other.steps == len(one.rollout.batch)


@pytest.mark.parametrize("options", [{}, {"criterion": "advantages"}])
def test_dynamic_plays_missing_groups_from_separate_seeds(options):
    game = Game(max_episode_steps=4)  # chance seldom wins, so that many groups are silent
    chosen = sampler("dynamic", game.task_ids, **options)
    found = rounds(game, chosen, 1)
    assert found.rounds == len(game.asked) > 1
    kept = 0
    for number, (tasks, seeds) in enumerate(game.asked):
        assert len(tasks) == NUM_TASKS - kept
        assert seeds == [(RandomStream.ROLLOUT, 3, 1, number * NUM_TASKS + group) for group in range(len(tasks))]
        rollout = game(tasks, seeds)
        returns = np.array([episode.episode_return for episode in rollout.episodes]).reshape(-1, GROUP_SIZE)
        informative = (returns != returns[:, :1]).any(axis=1)
        kept += int(informative.sum())
        if number == found.rounds - 1:
            break
    assert kept == found.groups_kept == NUM_TASKS
    assert len(found.rollout.episodes) == NUM_TASKS * GROUP_SIZE
    returns = np.array([episode.episode_return for episode in found.rollout.episodes]).reshape(-1, GROUP_SIZE)
    assert (returns != returns[:, :1]).any(axis=1).all()
    assert found.first_round == game(*game.asked[0]).episodes
    assert found.episodes == GROUP_SIZE * len(found.outcomes) > len(found.rollout.episodes)
    assert found.steps > len(found.rollout.batch)


def test_the_last_round_is_kept_as_it_is_and_early_iterations_have_one():
    game = Game(max_episode_steps=2)  # too short to win
    found = rounds(game, sampler("dynamic", game.task_ids, rounds=2))
    assert (found.rounds, found.groups_kept) == (2, NUM_TASKS)
    assert len(found.rollout.episodes) == NUM_TASKS * GROUP_SIZE
    early = rounds(game, sampler("dynamic", game.task_ids, after=2), 1)
    assert early.rounds == 1
    same(early.rollout, rounds(game, sampler("in_order", game.task_ids), 1).rollout)


def test_processes_decide_alike_and_may_have_no_group():
    """Three processes of one group each: later rounds leave some of them without."""
    alone, together = Game(max_episode_steps=4), Game(1, parts=3, max_episode_steps=4)
    one, other = (rounds(game, sampler("dynamic", game.task_ids), 1) for game in (alone, together))
    assert any(len(tasks) < 3 for tasks, _ in together.asked)
    same(one.rollout, other.rollout)
    assert one.outcomes == other.outcomes
    assert (one.steps, one.rounds) == (other.steps, other.rounds)


def test_pods_takes_returns_that_differ_by_rounding_as_equal():
    batch = StepBatch.from_records(
        group=[0] * 4, trajectory=range(4), step=[0] * 4, observation=["a"] * 4, history_length=0,
        reward=[0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2],
    )  # fmt: skip
    kept = sampler("pods", keep=2).filter.episodes(batch, np.random.default_rng(0))
    assert kept.tolist() == [True, True, False, False]


def test_pods_takes_whole_episodes_and_all_of_them_change_nothing():
    game = Game()
    rollout = rounds(game, sampler("in_order", game.task_ids)).rollout
    assert select_episodes(rollout, sampler("pods", keep=GROUP_SIZE), 0) is rollout
    some = select_episodes(rollout, sampler("pods", keep=2), 0)
    assert len(some.episodes) == 2 * NUM_TASKS
    np.testing.assert_array_equal(some.groups, np.repeat(np.arange(NUM_TASKS), 2))
    for group in range(NUM_TASKS):
        returns = {episode.episode_return for episode in rollout.episodes[group * 4 : group * 4 + 4]}
        kept = {episode.episode_return for episode in some.episodes[group * 2 : group * 2 + 2]}
        assert len(kept) == min(2, len(returns))


class Halves(Filter):
    """Learns from every other step, a random half of the episodes, and groups that were won at all."""

    def episodes(self, batch, generator):
        return generator.permutation(len(batch.first_rows)) % 2 == 0

    def steps(self, batch, advantages, progress, generator):
        return batch.step % 2 == int(2 * progress)


class Nothing(Filter):
    def episodes(self, batch, generator):
        return np.zeros(len(batch.first_rows), dtype=np.bool_)

    def steps(self, batch, advantages, progress, generator):
        return advantages != 0

    def informative(self, batch, advantages):
        return [True] * NUM_TASKS


def test_custom_hooks_select_and_are_checked(monkeypatch):
    game = Game()
    rollout = rounds(game, sampler("in_order", game.task_ids)).rollout
    monkeypatch.setitem(SAMPLERS._all, "halves", Halves)
    halves = sampler("halves", game.task_ids, seed=1)
    some = [select_episodes(rollout, halves, iteration) for iteration in (0, 0, 1)]
    assert len(some[0].episodes) == 6
    same(some[0], some[1])
    assert some[0].episodes != some[2].episodes
    zeros = np.zeros(len(rollout.batch))
    np.testing.assert_array_equal(select_steps(rollout.batch, zeros, halves, 0, 0.5), rollout.batch.step % 2 == 1)
    np.testing.assert_array_equal(select_steps(rollout.batch, zeros, sampler("pods"), 0, 0.5), True)
    with pytest.raises(ValueError, match="taken by"):
        register_sampler("pods", Nothing)
    monkeypatch.setitem(SAMPLERS._all, "nothing_at_all", Nothing)
    nothing = sampler("nothing_at_all", game.task_ids)
    with pytest.raises(ValueError, match=r"sampler=nothing_at_all leaves no episodes to learn from in iteration 3"):
        select_episodes(rollout, nothing, 2)
    with pytest.raises(ValueError, match=r"leaves no steps to learn from in iteration 1: give it options"):
        select_steps(rollout.batch, zeros, nothing, 0, 0.0)
    with pytest.raises(ValueError, match=r"informative\(\) has to return bool\[3\], an entry a group; it returned \[T"):
        rounds(game, nothing)


class OddTasks(Curriculum):
    def tasks(self, draw, count):
        return [task for task in draw.task_ids if int(task.split()[1]) % 2][:count]


def test_a_choice_may_make_several_parts_and_leaves_the_others_as_they_are(monkeypatch):
    monkeypatch.setitem(SAMPLERS._all, "odd_halves", lambda *, keep=1: (OddTasks(), Halves()))
    chosen = sampler("odd_halves", keep=2)
    assert chosen.tasks(0, 3, ()) == ["task 1", "task 3", "task 5"]
    assert chosen.filter.overrides("episodes")
    assert chosen.described == "sampler=odd_halves (sampler.keep=2)"
    with pytest.raises(ValueError, match=r"sampler=odd_halves .* names 5 tasks for 6 groups"):
        chosen.tasks(0, 6, ())
    monkeypatch.setitem(SAMPLERS._all, "nobody", lambda: 3)
    with pytest.raises(TypeError, match="sampler=nobody: int is no part of a sampler"):
        sampler("nobody")


def test_draws_by_weight_repeat_only_when_all_were_drawn():
    generator = np.random.default_rng(0)
    weights = np.array([0.0, 1.0, 3.0, 0.0])
    for _ in range(50):
        assert set(draw_tasks(generator, "abcd", weights, 2)) == {"b", "c"}
        drawn = draw_tasks(generator, "abcd", weights, 7)
        assert set(drawn[:2]) == {"b", "c"}
        assert sorted(drawn[:4]) == list("abcd")
        assert len(set(drawn[4:])) == 3
        assert set(drawn[4:6]) == {"b", "c"}
    first = [draw_tasks(generator, "abcd", weights, 1)[0] for _ in range(4000)]
    assert np.mean([task == "c" for task in first]) == pytest.approx(0.75, abs=0.02)


def test_pools_follow_the_latest_group_of_a_task():
    chosen = sampler("pools", pools=[[0.5, 0.0], [1.0, 5.0]])
    outcomes = [
        [GroupOutcome("task 0", 1.0, 4, 4), GroupOutcome("task 1", 0.0, 0, 4)],
        [GroupOutcome("task 1", 9.0, 3, 4), GroupOutcome("task 2", 0.0, 2, 4)],
    ]
    weights = chosen.curriculum.weights(TaskDraw(TASKS, 3, 2, outcomes=outcomes))
    np.testing.assert_array_equal(weights, [5, 5, 0, *[1] * 7])
    assert chosen.tasks(2, 4, outcomes) == sampler("pools", pools=[[0.5, 0.0], [1.0, 5.0]]).tasks(2, 4, outcomes)
    assert "task 2" not in chosen.tasks(2, 9, outcomes)
    assert chosen.tasks(2, 10, outcomes)[-1] == "task 2"


def test_stages_go_from_short_to_long_tasks():
    lengths = {f"task {n}": float(n) for n in range(9)} | {"task 9": None}
    growing, apart = sampler("stages"), sampler("stages", easier=False, stages=[[3, 2], [8, 1], [None, None]])

    def weights(chosen, iteration):
        return chosen.curriculum.weights(TaskDraw(TASKS, 3, iteration, measured=lengths))

    assert [int(weights(growing, n).sum()) for n in (0, 9, 10, 19, 20, 500)] == [4, 4, 9, 9, 10, 10]
    assert [np.flatnonzero(weights(apart, n)).tolist() for n in (1, 2, 3)] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9]]
    growing.measured = lengths
    assert set(growing.tasks(0, 4, ())) == {f"task {n}" for n in range(4)}
    assert {task for number in range(1, 20) for task in growing.tasks(0, 2, (), number)} == {
        f"task {n}" for n in range(4)
    }


def test_win_rates_and_expert_lengths_are_measured_by_playing():
    game = Game()
    chosen = sampler("gaussian", game.task_ids, iterations=10, episodes=6)
    measured = measure_tasks(chosen, game, game.envs[0].close, num_tasks=NUM_TASKS, group_size=GROUP_SIZE)
    assert measured.values.keys() == set(game.task_ids)
    assert measured.episodes == 2 * GROUP_SIZE * len(game.task_ids)
    assert [len(tasks) for tasks, _ in game.asked] == [3, 3]  # two groups of four for each of three tasks
    first_round = game(game.task_ids[:1] * 2, game.asked[0][1][:2]).episodes
    assert measured.values[game.task_ids[0]] == sum(episode.won for episode in first_round[:6]) / 6
    rates = np.array([measured.values[task] for task in game.task_ids])
    draw = TaskDraw(game.task_ids, 3, 5, measured=measured.values)
    np.testing.assert_array_equal(chosen.curriculum.weights(draw), gaussian_weights(rates, 0.5, 0.15))

    def expert_env():
        vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", 2, sections=2, expert=True, max_episode_steps=20)
        return ContextWrapper(vector, "bare")

    tasks = expert_env().unwrapped.task_ids
    stages = sampler("stages", tasks)
    measured = measure_tasks(stages, game, expert_env, num_tasks=NUM_TASKS, group_size=GROUP_SIZE)
    assert measured.values == dict.fromkeys(tasks, 6)
    assert (measured.steps, measured.episodes) == (0, 0)


@pytest.mark.parametrize("name", ["gaussian", "stages"])
def test_a_curriculum_without_outcomes_is_an_error(name):
    chosen = sampler(name, **({"iterations": 4} if name == "gaussian" else {}))
    with pytest.raises(ValueError, match=f"sampler={name}.* needs the .* of every task before training"):
        chosen.tasks(0, 2, ())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dynamics", {}, r"sampler 'dynamics'. Did you mean 'dynamic'\?"),
        ("dynamic", {"round": 3}, r"option of dynamic 'round'. Did you mean 'rounds'\?"),
        ("dynamic", {"criterion": "return"}, r"sampler.criterion 'return'. Did you mean 'returns'\?"),
        ("dynamic", {"rounds": 0}, "sampler.rounds=0: an iteration has to play 1 round"),
        ("pods", {"keep": 0}, "sampler.keep=0: keep 1 episode"),
        ("gaussian", {}, "gaussian needs the option iterations"),
        ("gaussian", {"iterations": 5, "width": 0}, "sampler.width=0: must be above 0"),
        ("pools", {"pools": []}, "give pairs of threshold and weight"),
        ("stages", {"stages": [[8, 2], [3, 2]]}, "the steps growing"),
    ],
)
def test_wrong_samplers_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(name, **options)
