"""A plugin with an environment and a memory key: three lamps to switch on.

hgpo-gym verl plugins=[examples/verl_plugin.py] env=lamps memory.key=lamps_alone prompt=instruct gpus=1
"""

import re

from hgpo_gym import KeyFunction, TextEnv, Turn, register, register_key_function


class Lamps(TextEnv):
    """Reward 10 when all lamps are on; a task names those that are on at first."""

    task_ids = ("none", "a", "ab")

    def begin_episode(self, task_id):
        self.on, self.moves = set(task_id) & set("abc"), 0
        return self.turn()

    def take_action(self, action):
        if action not in self.actions:
            return self.turn(action_valid=False)
        self.moves += 1
        self.on ^= {action[-1]}
        return self.turn(won=self.on == set("abc"))

    actions = ("press a", "press b", "press c")

    def turn(self, *, action_valid=True, won=False):
        text = f"On: {', '.join(sorted(self.on)) or 'none'}. Moves: {self.moves}."
        state = {"terminated": won, "won": won, "reward": 10.0 * won, "action_valid": action_valid}
        return Turn(text, task="Switch all lamps on.", admissible_actions=self.actions, **state)


register("lamps/Lamps-v0", Lamps, name="lamps", max_episode_steps=6, description="Three lamps.")
# Steps are equal if the same lamps are on, whatever the number of moves.
register_key_function("lamps_alone", KeyFunction(lambda observation, _actions: re.sub(r"Moves.*", "", observation)))
