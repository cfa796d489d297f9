"""True advantages and the measured errors of estimators: against values by hand, by simulation, and by another way."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from hgpo_gym.advantages import estimate
from hgpo_gym.advantages.batch import StepBatch
from hgpo_gym.advantages.statistics import discounted_returns
from hgpo_gym.analysis.estimator_bias import continuations, exact_stages
from hgpo_gym.analysis.estimator_bias.run import BiasResult, BiasSettings, measure_bias
from hgpo_gym.config.compose import load_config
from hgpo_gym.creditbench.decision_process import Situations, unfold
from hgpo_gym.creditbench.exact import baseline, context_bias, solve, success_rate
from hgpo_gym.creditbench.measure import Truth, measure
from hgpo_gym.creditbench.policies import improved, stages_of_training, uniform_policy
from hgpo_gym.creditbench.simulate import roll_out
from hgpo_gym.envs import TextEnv, Turn
from hgpo_gym.envs.registration import make
from hgpo_gym.envs.signpost_maze import Position, SignpostMazeEnv
from hgpo_gym.memory import make_memory
from hgpo_gym.memory.keys import hash_text
from hgpo_gym.progress import Progress
from hgpo_gym.section import parse_section
from hgpo_gym.trainers.settings import RunSettings

GAMMA = 0.9
MEMORY = {"window": 2, "history_length": 2, "key": "observation"}


@dataclass(frozen=True)
class Fork:
    """left: a room with a prize behind one of two curtains; right: a small prize. `alike` hides where one is."""

    alike: bool = False
    start = "fork"

    def observation(self, place):
        return "a room" if self.alike else place

    def admissible_actions(self, place):
        return {"fork": ("left", "right"), "curtains": ("red", "blue")}.get(place, ())

    def outcomes(self, place, action):
        return {{"left": "curtains", "right": "small prize", "red": "prize", "blue": "nothing"}[action]: 1.0}

    def reward(self, place):
        return {"prize": 10.0, "small prize": 1.0}.get(place, 0.0)


def fork(horizon=2, **options):
    situations = Situations()
    process = unfold(Fork(**options), situations, **MEMORY)
    policy = uniform_policy(situations)
    return process, policy, solve(process, policy, GAMMA, horizon)


def test_exact_values_by_hand():
    process, policy, values = fork()
    np.testing.assert_allclose(values.value, [[2.75, 5.0], [0.5, 5.0]])
    np.testing.assert_allclose(values.advantage[0, 0], [4.5 - 2.75, 1.0 - 2.75])
    np.testing.assert_allclose(values.advantage[1, 1], [5.0, -5.0])
    np.testing.assert_allclose(values.visits, [[1.0, 0.0], [0.0, 0.5]])
    assert success_rate(process, policy, values) == pytest.approx(0.75)


def test_the_step_limit_counts():
    _, _, values = fork(horizon=1)
    np.testing.assert_allclose(values.action_value[0, 0], [0.0, 1.0])


def test_context_bias_by_hand():
    """Both rooms look alike: level 0 has their mean value (2.75 + 5 / 2) / 1.5 = 3.5. Level 1 tells the second from the
    first, but the first, with nothing before it, has level 0 only."""
    process, policy, values = fork(alike=True)
    np.testing.assert_allclose(baseline(process, values, level=0), 3.5)
    np.testing.assert_allclose(baseline(process, values, level=1), [3.5, 5.0])
    signal = 1.75**2 + 0.5 * 25
    expected = [(0.75**2 + 0.5 * 1.5**2) / signal, 0.75**2 / signal, 0.75**2 / signal]
    np.testing.assert_allclose(context_bias([process], policy, [values]), expected)
    assert context_bias([fork()[0]], policy, [fork()[2]]) == pytest.approx((0, 0, 0))


def maze_processes(window=2, history_length=2, key="observation", **options):
    env = SignpostMazeEnv(**options)
    situations = Situations()
    memory = {"window": window, "history_length": history_length, "key": key}
    return situations, [unfold(env.dynamics(task_id), situations, **memory) for task_id in env.task_ids]


@pytest.mark.parametrize("key", ["observation", "observation+admissible", "observation+action"])
def test_a_process_is_what_an_agent_meets_in_the_environment(key):
    situations, processes = maze_processes(sections=2, key=key)
    env = SignpostMazeEnv(sections=2)
    steps = roll_out(processes[0], uniform_policy(situations), 12, 20, np.random.default_rng(0))
    memory = make_memory(window=2, history_length=2, key=key)
    known = list(situations.rows)
    for row in range(len(steps.step)):
        if steps.step[row] == 0:
            observation, info = env.reset(options={"task_id": env.task_ids[0]})
            memory.reset()
        context = memory.observe(observation, info["admissible_actions"])
        np.testing.assert_array_equal(context.keys, processes[0].context_keys[steps.state[row]])
        met = known[processes[0].situation[steps.state[row]]]
        assert met == (context.history, context.observation, context.admissible_actions)
        action = info["admissible_actions"][steps.action[row]]
        observation, reward, *_, info = env.step(action)
        memory.record(action)
        assert reward == steps.reward[row]
    assert steps.reward.any()


def close(samples, expected, errors=4.5):
    """The mean of independent samples is within so many standard errors."""
    assert abs(samples.mean() - expected) <= errors * samples.std() / np.sqrt(len(samples)) + 1e-9


def test_exact_values_of_a_maze_with_chance_agree_with_the_environment():
    """A dynamic program over the outcomes against episodes of the environment itself."""
    env = SignpostMazeEnv(sections=1, colours=2, slip=0.4)
    situations = Situations()
    process = unfold(env.dynamics(env.task_ids[0]), situations, **MEMORY)
    assert process.probability.shape[2] == 3
    admissible = situations.admissible[process.situation]
    np.testing.assert_allclose(process.probability.sum(axis=2)[admissible], 1.0)
    policy = uniform_policy(situations)
    values = solve(process, policy, GAMMA, 8)
    generator, returns = np.random.default_rng(0), []
    for episode in range(3000):
        _, info = env.reset(seed=episode, options={"task_id": env.task_ids[0]})
        earned = 0.0
        for step in range(8):
            actions = info["admissible_actions"]
            _, reward, terminated, _, info = env.step(actions[generator.integers(len(actions))])
            earned += GAMMA**step * reward
            if terminated:
                break
        returns.append(earned)
    close(np.array(returns), values.value[0, 0])
    steps = roll_out(process, policy, 8, 3000, np.random.default_rng(1))
    close(discounted_returns(as_batch(steps, process, group_size=1), GAMMA)[steps.step == 0], values.value[0, 0])


def test_slips_that_change_nothing_leave_the_values_alone():
    """With slip 1 every action is the uniform one, whatever the policy chose."""
    mazes = [SignpostMazeEnv(sections=1, slip=slip).dynamics("red") for slip in (0.0, 1.0)]
    situations = Situations()
    certain, slipping = (unfold(maze, situations, **MEMORY) for maze in mazes)
    policy = uniform_policy(situations)
    before, after = (solve(process, policy, GAMMA, 9) for process in (certain, slipping))
    assert after.value[0, 0] == pytest.approx(before.value[0, 0])
    assert np.abs(after.advantage[after.visits > 0][:, 0]).max() < 1e-12


@pytest.mark.parametrize("slip", [0.0, 0.3])
def test_batches_carry_what_estimators_need(slip):
    """Actions, outcomes and ends are those of the maze; a truncated episode ends in a place that others pass."""
    (stage,) = maze_stages(slip=slip, episodes=64, restarts=2)
    for batch in stage.compare(8).batches:
        won = np.bincount(batch.trajectory_labels, weights=batch.reward)[batch.trajectory_labels] > 0
        np.testing.assert_array_equal(batch.success, won)
        np.testing.assert_array_equal(batch.extras["truncated"], ~won)  # only the garden ends an episode early
        garden = SignpostMazeEnv(slip=slip).dynamics("red-red-red").observation(Position(3, 0))
        assert set(batch.final_keys[won, 0].tolist()) <= {np.uint64(hash_text(garden)).view(np.int64)}
        assert set(batch.final_keys[~won, 0].tolist()) <= set(batch.context_keys[:, 0].tolist())
        assert set(batch.action.view(np.uint64).tolist()) <= {
            hash_text(action) for place in [(0, 0), (0, 1), (0, 2)]
            for action in SignpostMazeEnv().dynamics("red-red-red").admissible_actions(Position(*place))
        }  # fmt: skip


def test_restarts_sample_the_exact_values():
    """vineppo without bias, its variance that of the restarts: nine have a third of three's."""
    (stage,) = maze_stages(episodes=512, restarts=9)
    comparison = stage.compare(8)
    errors = {
        restarts: measure(comparison.estimates("vineppo", restarts=restarts, gamma=0.95), comparison.truth)
        for restarts in (1, 3, 9)
    }
    for found in errors.values():
        assert abs(found.bias2) < 4 * found.bias2_se + 0.02
    assert errors[3].variance == pytest.approx(errors[1].variance / 3, rel=0.1)
    assert errors[9].variance == pytest.approx(errors[1].variance / 9, rel=0.1)


def test_the_exact_maze_measures_every_configured_estimator():
    (stage,) = maze_stages(episodes=64, restarts=9, history_length=4, slip=0.1)
    comparison = stage.compare(8)
    entries = parse_section(BiasSettings, load_config("estimator-bias", [])["bias"], "bias.").estimators
    for entry in entries.values():
        options = {"restarts": 0, **entry}
        assert np.isfinite(comparison.estimates(options.pop("estimator"), **options)).all()


def test_common_options_reach_what_an_estimator_builds_on():
    settings = parse_section(BiasSettings, load_config("estimator-bias", ["bias.gamma=0.8"])["bias"], "bias.")
    common = {"gamma": 0.8, "norm": "mean_norm"}
    measured = BiasResult.of("mine", {"estimator": "salt", "base": "gigpo"}, settings)
    assert measured.options == {"base": "gigpo", "base_options": common}
    assert not measured.without_unit
    deeper = BiasResult.of("mine", {"estimator": "progpo", "base": "salt", "base_options": {"base": "gigpo"}}, settings)
    assert deeper.options["base_options"] == {"base": "gigpo", "base_options": common}
    custom = BiasResult.of("mine", {"estimator": "salt", "base_options": {"norm": "mean_std_norm"}}, settings)
    assert custom.options["base_options"] == {"norm": "mean_std_norm"}
    assert custom.without_unit


def as_batch(steps, process, group_size):
    return StepBatch(
        group=steps.episode // group_size,
        trajectory=steps.episode,
        step=steps.step,
        reward=steps.reward,
        context_keys=process.context_keys[steps.state],
        penalty=np.zeros(len(steps.step)),
    )


def test_improvement_raises_the_return_to_the_best():
    situations, processes = maze_processes()
    policies = stages_of_training(situations, processes, 0.95, 24, [0, 5, 10, 200])
    start_values = [np.mean([solve(task, policy, 0.95, 24).value[0, 0] for task in processes]) for policy in policies]
    assert (np.diff(start_values) > 0).all()
    shortest = 9  # three sections of signpost, corridor, hall
    assert start_values[-1] == pytest.approx(10 * 0.95 ** (shortest - 1), rel=0.03)
    better = improved(policies[0], processes, 0.95, 24)
    assert (better[~situations.admissible] == 0).all()
    np.testing.assert_allclose(better.sum(axis=1), 1)


def known_truth(generator, groups=400, histories=5, variance=0.0):
    """Each group visits each history twice."""
    history = np.tile(np.repeat(np.arange(histories), 2), groups)
    exact = np.linspace(-1, 1, histories)
    seen = exact + np.sqrt(variance) * generator.normal(size=histories)
    return exact[history], Truth(
        advantage=seen[history],
        variance=np.full(len(history), variance),
        noise=np.zeros(len(history)),
        history=history,
        group=np.repeat(np.arange(groups), 2 * histories),
        drawn=np.repeat(np.arange(groups), 2 * histories),
        step=np.zeros(len(history), dtype=np.int64),
    )


def test_measured_bias_and_variance_are_those_that_were_put_in():
    """Noise that the rows of a group share is variance, not bias."""
    generator = np.random.default_rng(0)
    exact, truth = known_truth(generator)
    bias = np.array([0.5, -0.5, 0.0, 1.0, 0.0])
    shared = generator.normal(size=400)[truth.group]
    estimates = exact + bias[truth.history] + shared + 2 * generator.normal(size=len(exact))
    errors = measure(estimates, truth)
    signal = (exact**2).mean()
    assert errors.signal == pytest.approx(signal)
    assert errors.coverage == 1
    assert abs(errors.bias2 * signal - (bias**2).mean()) < 4 * errors.bias2_se * signal
    assert errors.bias2_se * signal < 0.1
    assert errors.variance * signal == pytest.approx(5.0, rel=0.1)
    assert errors.error == pytest.approx(errors.bias2 + errors.variance)


def test_no_bias_is_measured_as_none_and_zero_as_all():
    generator = np.random.default_rng(1)
    exact, truth = known_truth(generator)
    unbiased = measure(exact + generator.normal(size=len(exact)), truth)
    assert abs(unbiased.bias2) < 4 * unbiased.bias2_se
    nothing = measure(np.zeros(len(exact)), truth)
    assert (nothing.bias2, nothing.error, nothing.cosine) == pytest.approx((1, 1, 0))
    assert nothing.sign_agreement == 0.5
    perfect = measure(exact, truth)
    assert (perfect.error, perfect.cosine, perfect.sign_agreement) == pytest.approx((0, 1, 1))


def test_a_fitted_scale_takes_the_unit_out():
    generator = np.random.default_rng(2)
    exact, truth = known_truth(generator)
    estimates = exact + generator.normal(size=len(exact))
    plain, scaled = measure(estimates, truth), measure(7 * estimates, truth, fit_scale=True)
    assert scaled.error == pytest.approx(plain.error, rel=0.1)
    assert scaled.cosine == pytest.approx(plain.cosine)
    assert measure(7 * estimates, truth).error > 30 * plain.error


def test_where_no_factor_fits_there_is_no_error():
    """An estimate that mostly points the other way: no factor above 0 gives it the truth's scale."""
    exact, truth = known_truth(np.random.default_rng(0))
    errors = measure(-exact, truth, fit_scale=True)
    assert np.isnan([errors.bias2, errors.variance, errors.error]).all()
    assert errors.cosine == pytest.approx(-measure(exact, truth, fit_scale=True).cosine)


def test_noise_of_the_truth_does_not_count_as_error():
    generator = np.random.default_rng(3)
    results = []
    for _ in range(200):
        exact, truth = known_truth(generator, groups=12, histories=300, variance=0.3)
        errors = measure(exact, truth)
        results.append((errors.bias2 * errors.signal, errors.error * errors.signal))
    bias2, error = np.array(results).T
    close(bias2, 0.0)
    close(error, 0.0)


def maze_stages(improvements=(5,), **options):
    settings = {"window": 2, "history_length": 2, "key": "observation", "gamma": 0.95, "horizon": 24, "seed": 0}
    changes = {name: options.pop(name) for name in list(options) if name in (*settings, "episodes", "restarts")}
    env = SignpostMazeEnv(**options)
    mazes = [env.dynamics(task_id) for task_id in env.task_ids]
    settings = {**settings, "episodes": 1024, "groups_a_batch": 8, **changes}
    return exact_stages.exact_stages(
        mazes, mazes[:4], exact_stages.ExactSettings(improvements=improvements, **settings)
    )


def test_the_step_term_of_gigpo_is_unbiased_without_revisits_but_for_the_return_of_the_step():
    """G - mean is (n - 1) / n (G - mean of the others): with n members the bias is -A / n, and none without oneself."""
    process, policy, values = fork()
    steps = roll_out(process, policy, 2, 40_000, np.random.default_rng(0))
    batch = as_batch(steps, process, group_size=4)
    where = steps.step, steps.state, steps.action
    truth = Truth(
        advantage=values.advantage[where],
        variance=np.zeros(len(steps.step)),
        noise=discounted_returns(batch, GAMMA) - values.action_value[where],
        history=np.ravel_multi_index(where, values.advantage.shape),
        group=batch.group,
        drawn=batch.group,
        step=steps.step,
    )
    at_fork = steps.step == 0
    estimates = estimate("hgpo", batch, gamma=GAMMA, norm="mean_norm", history_length=0)
    itself_included = measure(estimates[at_fork], truth[at_fork])
    assert itself_included.bias2 == pytest.approx(1 / 16, rel=0.05)
    size = np.bincount(batch.key_groups(0))[batch.key_groups(0)]
    shared = size > 1
    left_out = measure((estimates * size / (size - 1 + ~shared))[shared], truth[shared])
    assert abs(left_out.bias2) < 4 * left_out.bias2_se
    assert left_out.bias2_se < 1e-3


def test_gigpo_is_biased_where_contexts_are_inconsistent_and_hgpo_less_with_every_level():
    (stage,) = maze_stages(history_length=4, episodes=2048)
    comparison = stage.compare(256)
    bias = [
        measure(
            comparison.estimates("hgpo", gamma=0.95, norm="mean_norm", history_length=level), comparison.truth
        ).bias2
        for level in range(5)
    ]
    assert (np.diff(bias) < 0).all()
    # Groups of 256 are nearly as good as groups without limit, for which the bias of GiGPO's step term is computed.
    assert bias[0] == pytest.approx(stage.context_bias[0], rel=0.08)
    assert bias[4] < 0.75 * bias[0]


def test_gigpo_is_unbiased_in_large_groups_where_contexts_are_consistent():
    (stage,) = maze_stages(plates=True, sections=2, horizon=150, episodes=2048)
    assert max(stage.context_bias) < 1e-3
    bias = {}
    for group_size in (4, 256):
        comparison = stage.compare(group_size)
        estimates = comparison.estimates("hgpo", gamma=0.95, norm="mean_norm", history_length=0)
        bias[group_size] = measure(estimates, comparison.truth)
    assert bias[4].bias2 > 0.05
    assert abs(bias[256].bias2) < 0.01


def test_hgpo_gae_has_less_error_than_hgpo_in_every_setting():
    for options in ({}, {"plates": True}, {"distance": 2, "window": 3, "horizon": 36}, {"sections": 1}):
        for stage in maze_stages(improvements=(0, 10), episodes=256, **options):
            for group_size in (4, 16):
                comparison = stage.compare(group_size)
                ours, hgpo = (
                    measure(comparison.estimates(name, gamma=0.95, norm="mean_norm"), comparison.truth)
                    for name in ("hgpo_gae", "hgpo")
                )
                assert ours.error < 0.6 * hgpo.error, (options, stage.name, group_size)
                assert ours.cosine > 1.2 * hgpo.cosine, (options, stage.name, group_size)


def test_continuations_find_the_advantages_that_are_computed_exactly():
    """With plates the noisy expert is a policy of the observation, so that its values can be computed as well."""
    horizon, share = 24, 0.5
    env = make("hgpo_gym/SignpostMaze-v0", sections=2, plates=True, expert=True).unwrapped
    settings = continuations.SampledSettings(
        random_actions=[share], history_length=0, key="observation", gamma=0.95, horizon=horizon, episodes=400,
        probes=40, continuations=100, groups=2, groups_a_batch=8, seed=0,
    )  # fmt: skip
    task_id = env.task_ids[1]
    collected = continuations.Collected()
    actor = continuations.noisy_expert(env, share, settings, np.random.default_rng(0))
    continuations.collect(collected, actor, task_id, settings)
    situations = Situations()
    process = unfold(env.dynamics(task_id), situations, window=0, history_length=0, key="observation")
    policy = share * uniform_policy(situations)
    for row, situation in enumerate(situations.rows):
        best = situation.admissible_actions.index(expert_action(env.dynamics(task_id), situation.observation))
        policy[row, best] += 1 - share
    values = solve(process, policy, 0.95, horizon)
    won = np.array([trajectory.won for trajectory in collected.trajectories[: settings.episodes]])
    close(won, success_rate(process, policy, values))
    states = {int(keys[0]) % 2**64: state for state, keys in enumerate(process.context_keys)}
    situation_of = list(situations.rows)
    scores = []
    for probe, (_, episode) in enumerate(collected.source):
        trajectory, step = collected.trajectories[episode], collected.step[probe]
        state = states[trajectory.observations[step]]
        action = situation_of[process.situation[state]].admissible_actions.index(trajectory.actions[step])
        error = collected.advantage[probe] - values.advantage[step, state, action]
        scores.append(error / (np.sqrt(collected.variance[probe]) + 1e-9))
    assert len(scores) == 40
    assert np.abs(scores).max() < 4.5
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.4  # the variance is neither too small nor too large


def sampled_maze(restarts, **options):
    """Stages of a maze whose values are sampled, though they could be computed."""
    env = make("hgpo_gym/SignpostMaze-v0", sections=1, plates=True, expert=True).unwrapped
    settings = continuations.SampledSettings(**{
        "random_actions": [0.5], "history_length": 1, "key": "observation", "gamma": 0.95, "horizon": 10,
        "episodes": 40, "probes": 10, "continuations": 60, "groups": 60, "groups_a_batch": 8, "seed": 0,
        "restarts": restarts, **options,
    })  # fmt: skip
    return continuations.sampled_stages(env, env.task_ids, settings, lambda *_: None)


def test_restarts_sample_values_where_the_truth_is_sampled_too():
    """No bias, and nine restarts have a ninth of one's variance (chance apart, which there is none of here): they are
    others in each group than those of the truth."""
    (stage,) = sampled_maze(restarts=9)
    comparison = stage.compare(4)
    errors = {
        restarts: measure(comparison.estimates("vineppo", restarts=restarts, gamma=0.95), comparison.truth)
        for restarts in (1, 9)
    }
    for found in errors.values():
        assert abs(found.bias2) < 4 * found.bias2_se + 0.02
    assert errors[9].variance == pytest.approx(errors[1].variance / 9, rel=0.15)


def test_restarts_leave_what_is_measured_of_others_as_it_is():
    """The default comparison without them, number by number."""
    for plain, restarted in zip(
        sampled_maze(0, episodes=16, probes=3, continuations=4)[0].compare(4).batches,
        sampled_maze(2, episodes=16, probes=3, continuations=4)[0].compare(4).batches,
        strict=True,
    ):
        np.testing.assert_array_equal(plain.reward, restarted.reward)
        np.testing.assert_array_equal(plain.context_keys, restarted.context_keys)
        np.testing.assert_array_equal(plain.action, restarted.action)
        assert restarted.extras.keys() - plain.extras.keys() == {"restart_returns"}


def test_groups_of_a_step_are_apart_from_what_its_truth_is_found_by():
    (few,), (many,) = (sampled_maze(0, groups=5, continuations=count) for count in (20, 80))
    few, many = few.compare(4), many.compare(4)
    assert len(few.truth.group) == len(many.truth.group) == 5 * len(np.unique(many.truth.history))
    assert many.truth.variance.mean() < 0.4 * few.truth.variance.mean()


class Coins(TextEnv):
    """A coin is tossed at each step; nothing that is done matters."""

    task_ids = ("coins",)

    def begin_episode(self, task_id):
        self.tosses = ""
        return Turn("", task="Toss.", admissible_actions=("toss",))

    def take_action(self, action):
        self.tosses += "HT"[self.np_random.integers(2)]
        return Turn(self.tosses, admissible_actions=("toss",), terminated=len(self.tosses) == 12)

    def save_state(self):
        return self.tosses

    def load_state(self, state):
        self.tosses = state


def test_the_episodes_of_a_task_are_not_all_of_the_same_luck():
    settings = continuations.SampledSettings(
        random_actions=[1.0], history_length=1, key="observation", gamma=1.0, horizon=12, episodes=20, probes=1,
        continuations=2, groups=2, groups_a_batch=2, seed=0,
    )  # fmt: skip
    env, found = Coins(), continuations.Collected()
    continuations.collect(
        found, continuations.noisy_expert(env, 1.0, settings, np.random.default_rng(0)), "coins", settings
    )
    episodes = [found.trajectories[number].observations for number in found.pool[0]]
    assert len({tuple(steps) for steps in episodes}) >= 19
    assert len({steps[0] for steps in episodes}) == 1


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_an_expert_that_leaves_its_action_to_chance_draws_it_again_in_every_continuation(share):
    """A choice that was drawn before the snapshot would else be repeated, and the state's value be that of one
    action."""
    settings = continuations.SampledSettings(
        random_actions=[share], history_length=1, key="observation", gamma=1.0, horizon=8, episodes=20, probes=1,
        continuations=2, groups=2, groups_a_batch=2, seed=0,
    )  # fmt: skip
    env = make("hgpo_gym/SecretWord-v0", expert=True).unwrapped
    actor = continuations.noisy_expert(env, share, settings, np.random.default_rng(0), ["a b"])
    firsts = [actor.play_task(env.task_ids[0], 0)[0].actions[0] for _ in range(20)]
    assert len(set(firsts)) > 5
    _, moments = actor.play_task(env.task_ids[0], 0, keep=(0,))
    again = [actor.play_on(moments[0], 0)[0].actions[0] for _ in range(20)]
    assert len(set(again)) > 5


def test_intervals_are_as_wide_as_results_scatter():
    """The cosine and the error, with an exact truth and with a noisy one of uncertain size."""
    generator = np.random.default_rng(4)
    for variance in (0.0, 0.3):
        found = []
        for _ in range(150):
            exact = generator.normal(size=80)
            truth = Truth(
                advantage=exact + np.sqrt(variance) * generator.normal(size=80),
                variance=np.full(80, variance),
                noise=np.zeros(80),
                history=np.arange(80),
                group=np.arange(80),
                drawn=np.arange(80) // 4,
                step=np.zeros(80, dtype=np.int64),
            )
            found.append(measure(0.5 * exact + generator.normal(size=80), truth))
        for name in ("cosine", "error"):
            scatter = np.std([getattr(errors, name) for errors in found])
            assert np.mean([getattr(errors, f"{name}_se") for errors in found]) == pytest.approx(scatter, rel=0.25)
        assert np.mean([errors.truth_noise for errors in found]) == pytest.approx(variance, rel=0.15)


def test_where_a_block_holds_all_there_is_no_interval():
    exact, truth = known_truth(np.random.default_rng(0), groups=1)
    assert np.isnan(measure(exact, truth).error_se)
    truth = replace(truth, advantage=np.where(truth.history == 0, 1.0, 0.0), drawn=truth.history)
    errors = measure(exact, truth)
    assert np.isfinite(errors.error)
    assert np.isnan([errors.bias2_se, errors.error_se, errors.cosine_se]).all()


def measured(tmp_path, *overrides):
    """The findings of a small measurement, over all steps, by estimator; and what was printed."""
    small = ["bias.group_sizes=[4]", "bias.tasks=4", "bias.episodes=16", "bias.probes=16"]
    config = load_config("estimator-bias", [*small, "bias.continuations=8", *overrides])
    settings = parse_section(BiasSettings, config["bias"], "bias.")
    findings = measure_bias(RunSettings.parse(config), settings, tmp_path, Progress())
    return {found.estimator: found.errors for found in findings if found.steps == "all"}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [["env=secret_word", "env.consonants=2"], ["env=sokoban", "env.levels=12"]])
def test_environments_with_snapshots_are_measured_by_restarts(tmp_path, capsys, overrides):
    """Every configured estimator has an interval; where no action is listed, a random one is somebody else's guess."""
    found = measured(tmp_path, *overrides, "bias.random_actions=[0.5]")
    assert found.keys() == load_config("estimator-bias", [])["bias"]["estimators"].keys()
    assert all(0 < errors.cosine_se < np.inf for label, errors in found.items() if label != "pass_at_k")
    assert all(errors.truth_noise > 0 for errors in found.values())
    printed = capsys.readouterr().out
    assert "The true advantages are estimates, with a noise of" in printed
    assert "±" in printed


def expert_action(maze, observation):
    places = [type(maze.start)(section, room) for section in range(2) for room in range(3)]
    (place,) = [place for place in places if maze.observation(place) == observation]
    return maze.expert_action(place)


def test_groups_must_divide_the_episodes():
    (stage,) = maze_stages(episodes=100)
    with pytest.raises(ValueError, match=r"bias\.episodes=100 is not a multiple of the group size 8"):
        stage.compare(8)


WITHOUT_RESTARTS = [f"~bias.estimators.vineppo_{count}" for count in (1, 3, 9)]


@pytest.mark.slow
def test_alfworld_is_measured_by_continuations(alfworld_data, tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    small = ["bias.group_sizes=[4,8]", "bias.tasks=2", "bias.episodes=60", "bias.probes=15"]
    less = ["bias.random_actions=[0.5]", "bias.continuations=16", *WITHOUT_RESTARTS]
    env = ["env=alfworld", f"env.data={alfworld_data}", "env.split=valid_seen", "env.max_episode_steps=30"]
    config = load_config("estimator-bias", [*env, *small, *less])
    settings = parse_section(BiasSettings, config["bias"], "bias.")
    findings = measure_bias(RunSettings.parse(config), settings, tmp_path / "out", Progress())
    overall = {found.estimator: found.errors for found in findings if (found.steps, found.group_size) == ("all", 8)}
    assert overall["hgpo_k2"].coverage == 1
    assert 0 < overall["hgpo_gae"].error < overall["gigpo"].error
    assert (tmp_path / "out" / "errors.png").read_bytes().startswith(b"\x89PNG")
