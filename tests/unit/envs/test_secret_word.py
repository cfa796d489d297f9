"""SecretWord: its marks, what it refuses, its expert."""

from collections import Counter

import pytest

from hgpo_gym.envs.secret_word import Language, SecretWordEnv, consistent_words, marks

SHORT = {"correct": "c", "misplaced": "m", "absent": "-"}


@pytest.mark.parametrize(
    ("secret", "guess", "expected"),
    [
        ("bado", "bado", "cccc"),
        ("bado", "kelu", "----"),
        ("bado", "doba", "mmmm"),
        ("bado", "baba", "cc--"),  # there is one b and one a, and both are found
        ("baba", "bado", "cc--"),
        ("dabo", "bada", "mcm-"),
    ],
)
def test_marks_by_hand(secret, guess, expected):
    assert "".join(SHORT[mark] for mark in marks(secret, guess)) == expected


def test_a_letter_is_never_found_more_often_than_the_word_has_it():
    words = Language(2, "bd", "ae").words()
    assert len(words) == 16
    for secret in words:
        for guess in words:
            found = Counter(
                letter for letter, mark in zip(guess, marks(secret, guess), strict=True) if mark != "absent"
            )
            assert found == Counter(secret) & Counter(guess)


def test_the_possible_words_are_those_that_would_have_been_answered_alike():
    language = Language(2, "bdkl", "aei")
    possible = consistent_words(language, "lake", ("bada", "kale"))
    assert possible == tuple(
        word
        for word in language.words()
        if all(marks(word, guess) == marks("lake", guess) for guess in ("bada", "kale"))
    )
    assert "lake" in possible
    assert len(possible) < 10


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("b a d", "'b a d' is not a word here: it has 3 letters, not 4. "),
        ("zaba", "'zaba' is not a word here: letter 1 must be one of b d k l. "),
        ("a b a b", "'a b a b' is not a word here: letter 1 must be one of b d k l. "),
        ("x" * 1000, "'" + "x" * 40 + "...' is not a word here: it has 1000 letters, not 4. "),
    ],
)
def test_a_guess_that_is_no_word_is_refused_with_the_reason_and_changes_nothing(action, reason):
    env = SecretWordEnv(expert=True)
    env.reset(seed=0, options={"task_id": "bade"})
    before, *_ = env.step("bili")
    observation, reward, terminated, _, info = env.step(action)
    assert observation == reason + before
    assert (reward, terminated, info["action_valid"], info["admissible_actions"]) == (0.0, False, False, ())
    assert env.step("BADE")[1:3] == (10.0, True)


def test_the_last_guess_loses_and_names_the_word():
    env = SecretWordEnv(guesses=2)
    env.reset(options={"task_id": "bade"})
    env.step("kiki")
    observation, reward, terminated, _, info = env.step("l i l i")
    assert observation == "l absent, i absent, l absent, i absent. No guess is left: the word was b a d e."
    assert (reward, terminated, info["won"], info["action_valid"]) == (0.0, True, False, True)


def test_the_expert_wins_every_word_and_does_not_always_say_the_same():
    env = SecretWordEnv(split="all", expert=True)
    openings = set()
    for number, task_id in enumerate(env.task_ids):
        _, info = env.reset(seed=number, options={"task_id": task_id})
        openings.add(info["expert_action"])
        terminated = False
        while not terminated:
            _, _, terminated, _, info = env.step(info["expert_action"])
        assert info["won"], task_id
    assert len(openings) > 50


def test_the_splits_are_fixed_and_apart():
    splits = {split: SecretWordEnv(split=split).task_ids for split in ("train", "test", "all")}
    assert [len(splits[split]) for split in ("train", "test", "all")] == [96, 48, 144]
    assert set(splits["train"]) | set(splits["test"]) == set(splits["all"])
    assert splits["test"][:3] == ("baba", "badi", "bake")
