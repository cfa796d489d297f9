"""Options that cannot be are refused by `make`, with the value and the remedy."""

import pytest

from hgpo_gym.envs.registration import make

ANY = [  # of every environment
    ({"render_mode": "human"}, "Unknown render_mode 'human'"),
    ({"split": "tset"}, r"Unknown split 'tset'. Did you mean 'test'\?"),
]
REFUSED = {
    "SignpostMaze": [
        *ANY,
        ({"sections": 0}, "sections=0"),
        ({"colours": 9}, "colours=9: choose 2 to 6"),
        ({"distance": -1}, "distance=-1"),
        ({"slip": 1.5}, r"slip=1.5: choose 0 to 1"),
        ({"sections": "3"}, r"sections='3' \(option of SignpostMazeEnv\): expected a whole number"),
        ({"sections": 2.5}, "sections=2.5 .* expected a whole"),
        ({"plates": "yes"}, "plates='yes' .* expected true or false"),
        ({"max_episode_steps": "20"}, "max_episode_steps='20' .* expected a whole number or null"),
        ({"colors": 3}, r"Unknown option of hgpo_gym/SignpostMaze-v0 'colors'. Did you mean 'colours'\?"),
    ],
    "AskExpert": [
        *ANY,
        ({"of": "hgpo_gym/SignpostMase-v0"}, r"of 'hgpo_gym/SignpostMase-v0'. Did you mean 'hgpo_gym/SignpostMaze-v0'"),
        ({"of": "alfworld"}, r"Unknown environment of 'alfworld'. Did you mean 'hgpo_gym/ALFWorld-v0'\?"),
        ({"of": "hgpo_gym/Taxi-v0"}, r"of='hgpo_gym/Taxi-v0' has no expert .* choose another"),
        ({"of_options": {"colors": 3}}, r"option of hgpo_gym/SignpostMaze-v0 'colors'. Did you mean 'colours'\?"),
        ({"of_options": "plates"}, r"of_options='plates' \(option of AskExpertEnv\): expected a mapping"),
        ({"of_options": {"colours": 7}}, "colours=7: choose 2 to 6"),
        ({"of_options": {"expert": True}}, "of_options has expert=True: leave it out, and set expert="),
        ({"of_options": {"render_mode": "ansi"}}, "has render_mode='ansi': leave it out, and set render_mode="),
        ({"of_options": {"max_episode_steps": 5}}, "of_options has max_episode_steps=5: leave it out"),
        ({"of_options": {"split": "all"}, "split": "test"}, "split='test' and of_options with split='all': give one"),
        ({"action": ""}, "action='': give a name without white space at its ends, such as 'ask'"),
        ({"action": "ask "}, "action='ask ': give a name"),
    ],
    "BabyAI": [
        *ANY,
        ({"level": "KeyInBox"}, "level=KeyInBox cannot be played: minigrid's bot fails at it"),
        ({"level": "GotoLocal"}, "Did you mean 'GoToLocal'"),
        ({"level": ["GoToLocal", "mixed/open", "mixed/shut"]}, "Unknown level of BabyAI 'mixed/shut'"),
        ({"style": "balrogs"}, "Did you mean 'balrog'"),
        ({"tasks": 0}, "tasks=0: must be at least 1"),
        ({"level": "UnlockLocal", "tasks": 9, "held_out": "missions", "split": "test"}, "is empty. Set split=all"),
    ],
    "FrozenLake": [
        *ANY,
        ({"size": 1}, "size=1: choose 2 to 100"),
        ({"frozen": 0.1}, r"frozen=0.1: choose 0.3 to 1"),
        ({"maps": 10**12}, "maps=1000000000000.*choose"),
        ({"size": 10**6}, "size=1000000.*choose"),
    ],
    "GymCards": [
        *ANY,
        ({"game": "Points"}, r"Unknown game 'Points'. Did you mean 'EZPoints'\?|'Points24'"),
        ({"reward": "sucess"}, r"Did you mean 'success'\?"),
        ({"arithmetic": "float"}, "Valid: exact, original"),
    ],
    "Search": [
        *ANY,
        ({"hops": [4]}, r"hops=\[4\]: choose some of \[1, 2, 3\]"),
        ({"topk": 0}, "topk=0: must be at least 1"),
        ({"passages": 10}, "passages=10: choose 100 to 100,000"),
        ({"queries": "all"}, "Unknown queries 'all'"),
        ({"retriever": "http://x"}, r"retriever=http://x needs questions of its own: set data='FILE'"),
        ({"data": "q.jsonl"}, r"q\.jsonl not found"),
    ],
    "SecretWord": [
        *ANY,
        ({"guesses": 0}, "guesses=0: must be at least 1"),
        ({"consonants": 10}, "consonants=10: choose 2 to 9"),
        ({"vowels": 1}, "vowels=1: choose 2 to 5"),
        ({"syllables": 10**12}, "syllables=1000000000000.*choose"),
    ],
    "Sokoban": [
        *ANY,
        ({"boxes": 0}, "boxes=0: must be at least 1"),
        ({"size": 4, "boxes": 2}, "size=4: 4 cells inside are too few"),
        ({"size": 4, "inner_walls": 0, "min_moves": 50, "levels": 3}, "levels=3: found 0 with size=4"),
        ({"levels": 10**12}, "levels=1000000000000.*choose"),
        ({"size": 10**6}, "size=1000000.*choose"),
    ],
    "Taxi": [*ANY, ({"starts": 10**12}, "starts=1000000000000.*choose")],
    "TextArena": [
        *ANY,
        ({"game": "Mastermnd-v0"}, r"Unknown game of textarena 'Mastermnd-v0'. Did you mean 'Mastermind-v0'\?"),
        ({"game": "TicTacToe-v0"}, "game=TicTacToe-v0: only games for one player can be played"),
        ({"game": "SpiteAndMalice-v0"}, "game=SpiteAndMalice-v0: only games for one player can be played, not for 2"),
        ({"tasks": 2}, "tasks=2: must be at least 3"),
        ({"game": "FifteenPuzzle-v0"}, "game=FifteenPuzzle-v0 cannot be played here: its last move ends in an error"),
        ({"game": "TowerOfHanoi-v0", "split": "test"}, r"is empty: 150 seeds begin in 1 way\(s\). Set split=all"),
    ],
    "TextCraft": [
        *ANY,
        ({"recipes": "mine"}, "Did you mean 'minecraft'"),
        ({"recipes": "generated", "depth": 9}, "depth=9: choose 1 to 8"),
        ({"recipes": "generated", "depth": [1, 0]}, "choose 1 to 8"),
        ({"observation": "all"}, "Unknown observation 'all'"),
    ],
}
PACKAGES = {"BabyAI": "minigrid", "Search": "bm25s", "TextArena": "textarena"}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_cannot_be_are_refused(name, subtests):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    for options, message in REFUSED[name]:
        with subtests.test(str(options)), pytest.raises((ValueError, FileNotFoundError), match=message):
            make(f"hgpo_gym/{name}-v0", **options)
