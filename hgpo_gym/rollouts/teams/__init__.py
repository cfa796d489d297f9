"""Teams: several roles may respond before one action. Chosen by `team=`; `solo` is a single agent.

To add one: write its file and add its line to `TEAMS`, or, from elsewhere, call `register_team` or name it as an entry
point of the group `hgpo_gym.teams`.
"""

from hgpo_gym.registry import Choice, Registry
from hgpo_gym.rollouts.teams.actor_checker import ActorChecker
from hgpo_gym.rollouts.teams.base import Message, Solo, Team, with_outputs
from hgpo_gym.rollouts.teams.planner_actor import PlannerActor

TEAMS = Registry(
    "team",
    {
        "solo": Solo,
        "actor_checker": ActorChecker,
        "planner_actor": PlannerActor,
    },
    arguments=0,
    entry_points="hgpo_gym.teams",
)
register_team = TEAMS.register
"""Add your own team: `(name, class)`. Raises ValueError if the name is in use."""


def make_team(choice: Choice | None) -> Team | None:
    """Return the chosen team, None for no choice. Raises ValueError on an unknown name, option or value."""
    return None if choice is None else TEAMS.bind(choice)()


def roles_with_adapters(choice: Choice) -> tuple[str, ...]:
    """Return the team's roles if each has its own adapter, else an empty tuple. Raises as `make_team` does."""
    team = TEAMS.bind(choice)()
    return team.roles if team.weights == "adapter" else ()


__all__ = ["TEAMS", "Message", "Solo", "Team", "make_team", "register_team", "roles_with_adapters", "with_outputs"]
