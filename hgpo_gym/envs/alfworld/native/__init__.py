"""ALFWorld's games in plain Python, word for word what TextWorld says of them, at memory speed.

    engine = NativeEngine()
    engine.load(Path("game.tw-pddl"))
    state = engine.reset()                            # .feedback, .admissible_commands, .won
    state = engine.step(state.admissible_commands[0])

`compile` turns a game file into a `game.CompiledGame`, `cache` keeps those, `rules` are the actions of the PDDL
domain and `text` is the grammar. `engine.NativeEngine` plays, and `planner.shortest_plan` solves.
"""

from hgpo_gym.envs.alfworld.native.compile import compile_game
from hgpo_gym.envs.alfworld.native.engine import NativeEngine
from hgpo_gym.envs.alfworld.native.fingerprint import UnknownGameRules
from hgpo_gym.envs.alfworld.native.game import CompiledGame, WorldState
from hgpo_gym.envs.alfworld.native.planner import shortest_plan

__all__ = ["CompiledGame", "NativeEngine", "UnknownGameRules", "WorldState", "compile_game", "shortest_plan"]
