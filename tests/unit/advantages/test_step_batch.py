"""StepBatch: its columns, parts and wholes of batches, and what estimators return."""

import csv
import io

import numpy as np
import pytest

from hgpo_gym.advantages import ESTIMATORS, Advantages, StepBatch, assign, estimate, needs
from hgpo_gym.advantages.batch import pair_labels
from hgpo_gym.advantages.columns import COLUMNS
from tests.support.step_batches import with_neutral_columns

EPISODES = ["abc", "ab", "xyab", "a"]


def records(**changes) -> dict:
    """Three episodes of group p and one of q; their observations are letters."""
    trajectory = [name for name, seen in enumerate(EPISODES) for _ in seen]
    seen = "".join(EPISODES)
    return {
        "group": ["q" if name == 2 else "p" for name in trajectory],
        "trajectory": trajectory,
        "step": [step for letters in EPISODES for step in range(len(letters))],
        "observation": list(seen),
        "reward": [float(row) for row in range(len(seen))],
        "history_length": 2,
        "action": [letter.upper() for letter in seen],
        "success": [name == 0 for name in trajectory],
        "final_observation": [["d", "c", "c", None][name] for name in trajectory],
        "value": [None if letter == "c" else 0.5 for letter in seen],
        "tag": [None if letter == "a" else letter for letter in seen],
        "reward_vector": [[float(name), 1.0] for name in trajectory],
    } | changes


def same(one: StepBatch, other: StepBatch) -> bool:
    left, right = dict(one._columns()), dict(other._columns())
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name], equal_nan=left[name].dtype.kind == "f") for name in left
    )


def test_records_become_columns():
    batch = StepBatch.from_records(**records())
    assert batch.action is not None
    assert batch.success is not None
    assert batch.action.dtype == np.int64
    assert (batch.action[[0, 3, 7, 9]] == batch.action[0]).all()
    assert batch.action[1] != batch.action[0]
    assert batch.success.tolist() == [True] * 3 + [False] * 7
    assert np.isnan(batch.extras["value"]).tolist() == [letter == "c" for letter in "abcabxyaba"]
    assert (batch.extras["tag"] == 0).tolist() == [letter == "a" for letter in "abcabxyaba"]
    assert batch.extras["reward_vector"].shape == (10, 2)


@pytest.mark.parametrize("key", ["observation", "observation+action"])
def test_final_keys_are_those_that_one_more_step_would_have(key):
    """Episode 1 (a b) ends where the third step of episode 0 (a b c) begins: the same history, the same keys."""
    batch = StepBatch.from_records(**records(key=key))
    assert batch.final_keys is not None
    assert batch.final_keys[3].tolist() == batch.final_keys[4].tolist() == batch.context_keys[2].tolist()
    assert batch.final_keys[5][0] == batch.context_keys[2][0]
    assert batch.final_keys[5][2] == batch.final_keys[3][2]  # the last three observations are a b c there, too
    assert batch.final_keys[9].tolist() == [0, 0, 0]
    assert len({*batch.final_keys[0].tolist()}) == 3
    short = StepBatch.from_records(**records(final_observation=["z"] * 10))
    assert short.final_keys is not None
    assert short.final_keys[9][2] == 0  # one step and the end: two observations
    assert short.final_keys[9][1] != 0


@pytest.mark.parametrize("shuffled", [False, True])
def test_parts_and_wholes(shuffled):
    columns = records()
    order = np.random.default_rng(0).permutation(10) if shuffled else np.arange(10)
    columns |= {name: [values[row] for row in order] for name, values in columns.items() if isinstance(values, list)}
    batch = StepBatch.from_records(**columns)
    in_p = np.array(columns["group"]) == "p"
    parts = [batch.take(in_p), batch.take(np.flatnonzero(~in_p))]
    assert [len(part) for part in parts] == [6, 4]
    whole = StepBatch.concatenate(parts)
    assert len(np.unique(whole.trajectory)) == 4
    apart = np.concatenate([estimate("gigpo", part) for part in parts])
    np.testing.assert_array_equal(estimate("gigpo", whole), apart)
    back = np.argsort(np.concatenate([np.flatnonzero(in_p), np.flatnonzero(~in_p)]))
    np.testing.assert_array_equal(estimate("gigpo", whole)[back], estimate("gigpo", batch))
    assert same(batch.take(np.arange(10)), batch)
    assert same(StepBatch.concatenate([batch]), batch)


def test_concatenated_groups_and_trajectories_stay_apart():
    batch = StepBatch.from_records(**records())
    whole = StepBatch.concatenate([batch, batch, batch])
    assert whole.group.tolist() == [number + 2 * copy for copy in range(3) for number in batch.group]
    assert whole.trajectory.tolist() == [number + 4 * copy for copy in range(3) for number in batch.trajectory]


def test_parts_that_cannot_be_are_refused():
    batch = StepBatch.from_records(**records())
    with pytest.raises(ValueError, match="2 of the 3 steps of trajectory 0"):
        batch.take(np.arange(10) != 2)
    with pytest.raises(ValueError, match="4 of the 3 steps"):
        batch.take(np.array([0, 1, 2, 2]))
    with pytest.raises(ValueError, match="batch 0 has the column 'action', batch 1 has not"):
        StepBatch.concatenate([batch, StepBatch.from_records(**records(action=None))])
    with pytest.raises(ValueError, match="different history_length"):
        StepBatch.concatenate([batch, StepBatch.from_records(**records(history_length=1))])
    with pytest.raises(ValueError, match="one batch or more"):
        StepBatch.concatenate([])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"success": [True, False] * 5}, "trajectory 0 has more than one success"),
        ({"final_observation": ["d", "e"] * 5}, "final_observation of row 1 is not that"),
        ({"value": [0.0]}, "value has 1 entries, group has 10"),
        ({"final_observation": ["d"]}, "final_observation has 1 entries"),
        ({"trained": [True] * 10}, "extras has 'trained', which is a field"),
        ({"observation": range(10)}, "observation of row 0 is 0: give a text"),
        ({"step": [0.5] * 10}, "step of row 0 is 0.5: give a whole number"),
        ({"reward": [0.0, float("nan")] * 5}, "reward of row 1 is nan: give a finite number"),
    ],
)
def test_columns_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        StepBatch.from_records(**records(**changes))


def test_fields_of_other_types_are_refused():
    batch = StepBatch.from_records(**records())
    fields = dict(batch._columns())
    required = {name: fields[name] for name in ("group", "trajectory", "step", "reward", "context_keys", "penalty")}
    for column, message in [
        ({"action": np.full(10, 0.5)}, "action of row 0 is 0.5: give a whole number"),
        ({"action": np.full(10, 2.0**60)}, "action of row 0 is .*: give a whole number"),  # rounded: no key
        ({"success": np.arange(10)}, "success of row 2 is 2: give True or False"),
        ({"trained": ["True"] * 10}, "trained of row 0 is the text 'True': give True or False"),
        ({"extras": {"value_low": np.full(10, np.nan)}}, "value_low of row 0 is nan: give a finite number"),
        ({"extras": {"mine": np.full(10, np.inf)}}, "mine of row 0 is inf: give finite numbers"),
        ({"extras": {"value": np.zeros((10, 1))}}, r"value has shape \(10, 1\), expected \[N\]"),
    ]:
        with pytest.raises(ValueError, match=f"^StepBatch: {message}"):
            StepBatch(**required, **column)
    for name, values in [("reward", [0.0] * 9 + [np.nan]), ("penalty", [0.0] * 9 + [None])]:
        with pytest.raises(ValueError, match=f"{name} of row 9 is (nan|None): give a finite number"):
            StepBatch(**required | {name: values})
    with pytest.raises(ValueError, match=r"final_keys has shape \(10, 1\)"):
        StepBatch(**required, final_keys=fields["final_keys"][:, :1])
    with pytest.raises(ValueError, match="value has 3 rows, group has 10"):
        StepBatch(**required, extras={"value": np.zeros(3)})


def forms(values: list) -> dict:
    """The same values as the forms in which files, NumPy and pandas give them."""
    made = {
        "tuple": tuple(values),
        "objects": np.array(values, dtype=object),
        "scalars": [np.asarray(value)[()] for value in values],
        "masked": np.ma.masked_array(values, mask=[False] * len(values)),
    }
    if None in values:
        del made["scalars"], made["masked"]
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(values, index=range(7, 7 + len(values)))
    made |= {"series": series, "nullable": series.convert_dtypes()}
    if not isinstance(values[0], str):
        made["category"] = series.astype("category")
    return made


def test_each_form_of_a_column_gives_the_same_batch():
    """Lists, object arrays, NumPy scalars, masked arrays and what pandas has: NumPy's and its nullable types."""
    columns = records(boundary=[row % 3 == 0 for row in range(10)], agent=["planner", "actor"] * 5, mine=[1, 2] * 5)
    batch = StepBatch.from_records(**columns)
    assert batch.extras["boundary"].dtype == np.bool_
    given = [name for name, values in columns.items() if isinstance(values, list) and name != "reward_vector"]
    for name in given:
        for form, values in forms(columns[name]).items():
            assert same(StepBatch.from_records(**columns | {name: values}), batch), (name, form)
    for name in ("success", "boundary"):
        for kind in (np.int64, np.float64, np.uint8):
            assert same(StepBatch.from_records(**columns | {name: np.array(columns[name], dtype=kind)}), batch)
    assert same(StepBatch.from_records(**columns | {"step": np.array(columns["step"], dtype=np.float32)}), batch)
    assert same(StepBatch.from_records(**columns | {"history_length": np.int64(2)}), batch)
    fields = dict(batch._columns())
    extras = {name: fields.pop(name).tolist() for name in batch.extras}
    assert same(StepBatch(**{name: values.tolist() for name, values in fields.items()}, extras=extras), batch)


def test_what_a_column_cannot_hold_is_refused_by_its_name_and_row():
    """In every column of the table and one of another name, in a list, an object array, a Series, a masked array."""
    pandas = pytest.importorskip("pandas")
    neutral = with_neutral_columns(records(tag=[0] * 10))
    neutral |= {"mine": [0.5] * 10, "penalty": [0.0] * 10}
    wrong = {
        **dict.fromkeys(COLUMNS, ("True", "0.5", "", None, np.nan, np.inf, pandas.NA, pandas.NaT, b"1", [])),
        **dict.fromkeys(("group", "trajectory"), (None, np.nan, pandas.NA, [], np.zeros(1))),
        **dict.fromkeys(("observation", "action"), (None, np.nan, pandas.NA, 1, True, b"a")),
        **dict.fromkeys(("agent", "response", "branch", "plan", "tag", "tree"), (None, np.nan, 0.5, pandas.NaT)),
        "final_observation": (0, True, 0.5, b"a"),
        "value": ("True", "0.5", "", np.inf),
        "mine": ("True", "0.5", "nan", np.inf),
    }
    for name in neutral.keys() - {"history_length", "reward_vector"}:
        for value in wrong[name]:
            values = list(neutral[name])
            values[3] = value
            objects = np.empty(10, dtype=object)
            objects[:] = values
            for given in (values, objects, pandas.Series(values)):
                with pytest.raises(
                    ValueError, match=rf"^StepBatch: {name} (of row \d is|has entries|has shape)"
                ) as caught:
                    StepBatch.from_records(**neutral | {name: given})
                if not isinstance(value, (list, np.ndarray)):
                    assert f"{name} of row 3 is" in str(caught.value), (name, value, type(given))
    masked = np.ma.masked_array([0.0] * 10, mask=[False, True] * 5)
    for name in ("reward", "penalty", "success", "step", "truncated"):
        with pytest.raises(ValueError, match=f"StepBatch: {name} of row 1 is None"):
            StepBatch.from_records(**neutral | {name: masked})
    for changes, message in [
        ({"reward_vector": [[0.0, 1.0]] * 9 + [[0.0, np.nan]]}, "reward_vector of row 9 is nan"),
        ({"reward_vector": [["0", "1"]] * 10}, "reward_vector of row 0 is the text '0'"),
        ({"trajectory": [0, 0, 0, "1", "1", 2, 2, 2, 2, 3]}, "trajectory of row 3 is the text '1': give texts on all"),
        ({"reward": 1.0}, "reward is 1.0: give a sequence"),
        ({"success": "True"}, "success is 'True': give a sequence"),
        ({"step": [2**70] * 10}, "step of row 0 is 1180591620717411303424: give a whole number"),
    ]:
        with pytest.raises(ValueError, match=f"^StepBatch: {message}"):
            StepBatch.from_records(**neutral | changes)
    for length in (-1, True, 1.5, "2"):
        with pytest.raises(ValueError, match=f"history_length={length!r}: choose 0 or more"):
            StepBatch.from_records(**neutral | {"history_length": length})


def test_rows_of_a_csv_file_are_refused_until_they_are_read_as_what_they_are():
    text = "group,trajectory,step,observation,reward,success\n" + "".join(
        f"p,{row},0,a,{row}.5,False\n" for row in range(4)
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with pytest.raises(ValueError, match="step of row 0 is the text '0': give a whole number"):
        StepBatch.from_records(**columns, history_length=0)
    table = pytest.importorskip("pandas").read_csv(io.StringIO(text))
    batch = StepBatch.from_records(**table, history_length=0)
    assert (batch.reward.tolist(), batch.success.tolist()) == ([0.5, 1.5, 2.5, 3.5], [False] * 4)


def test_options_may_be_numpy_scalars():
    batch = StepBatch.from_records(**records())
    as_numpy = {"history_length": np.int64(1), "gamma": np.float32(0.5), "base_group": np.bool_(True)}
    plain = {"history_length": 1, "gamma": 0.5, "base_group": True}
    np.testing.assert_array_equal(estimate("hgpo", batch, **as_numpy), estimate("hgpo", batch, **plain))
    for option, value in [("history_length", np.bool_(True)), ("gamma", np.nan), ("base_group", np.int64(1))]:
        with pytest.raises(ValueError, match=f"{option}=.* .option of estimator hgpo.: expected"):
            estimate("hgpo", batch, **{option: value})


def test_a_missing_column_is_named():
    batch = StepBatch.from_records(**records(action=None))
    assert batch.column("reward", "mine") is batch.reward
    assert batch.column("value", "mine") is batch.extras["value"]
    with pytest.raises(ValueError, match=r"Estimator 'mine' needs the column 'action'.* from_records takes action="):
        batch.column("action", "mine")
    with pytest.raises(ValueError, match=r"Estimator 'mine' needs the column 'moon'.*extras="):
        batch.column("moon", "mine")


def test_an_estimator_that_needs_a_column_does_not_run_without_it(monkeypatch):
    @needs("action", "moon")
    def mine(batch):
        raise AssertionError("It ran.")

    monkeypatch.setitem(ESTIMATORS._all, "mine", mine)
    with pytest.raises(ValueError, match="Estimator 'mine' needs the column 'moon'"):
        estimate("mine", StepBatch.from_records(**records()))


def test_what_an_estimator_returns(monkeypatch):
    batch = StepBatch.from_records(**records())
    output = Advantages(batch.reward, {"target": batch.reward / 2}, [None] * 9 + [np.ones(3)])
    monkeypatch.setitem(ESTIMATORS._all, "mine", lambda batch, *, result: result)
    assert assign("mine", batch, result=output) is output
    np.testing.assert_array_equal(estimate("mine", batch, result=output), batch.reward)
    bare = assign("mine", batch, result=batch.step)
    assert bare.values.dtype == np.float64
    assert (dict(bare.extras), bare.tokens) == ({}, None)
    for wrong, message in [
        (batch.reward[1:], r"advantages of shape \(9,\), expected \(10,\)"),
        (np.where(batch.reward == 3, np.nan, 1.0), "advantages of row 3 is nan"),
        (Advantages(batch.reward, {"target": np.ones(2)}), "target of shape"),
        (Advantages(batch.reward, tokens=[None]), "tokens of 1 rows, expected 10"),
        (Advantages(batch.reward, tokens=[None] * 9 + [np.array([np.inf])]), "tokens of row 9"),
    ]:
        with pytest.raises(ValueError, match=message):
            estimate("mine", batch, result=wrong)


def test_pairs_of_key_and_group_get_a_label_each_also_when_all_hashes_collide():
    generator = np.random.default_rng(0)
    groups = generator.integers(5, size=300)
    golden = 0x9E3779B97F4A7C15
    colliding = np.array([-group * golden % 2**64 for group in groups.tolist()], dtype=np.uint64).view(np.int64)
    for keys in (generator.integers(40, size=300), generator.integers(2**62, size=300), colliding):
        pairs = np.unique(np.stack([keys, groups]), axis=1, return_inverse=True)[1].ravel()
        labels = pair_labels(keys, groups)
        assert len(np.unique(labels)) == labels.max() + 1
        assert len(np.unique(np.stack([labels, pairs]), axis=1).T) == labels.max() + 1 == pairs.max() + 1
    assert pair_labels(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).tolist() == []
