"""verifiers (prime-rl, the Environments Hub): any registered environment as a taskset, played as a conversation.

The environment has the user's role: it sends observations, and the model replies with actions until the end. An
environment package exports the two classes, see `examples/verifiers_package`. Written for verifiers 0.4.
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.envs.registration import make

try:
    import verifiers.v1 as vf
except ModuleNotFoundError as error:
    if error.name != "verifiers":
        raise
    raise ModuleNotFoundError("hgpo_gym.adapters.verifiers needs verifiers: pip install 'verifiers>=0.4'") from error

SYSTEM_PROMPT = (
    "You act in a text world, one action at a time, until your task is done. Reason first if that helps, then end your "
    "reply with one action, word for word as it is offered, inside <action> </action>."
)


class GameTasksetConfig(vf.TasksetConfig):
    """`--env.taskset.*`"""

    env_id: str = "hgpo_gym/SignpostMaze-v0"
    """A registered environment."""
    options: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Its options, such as {"split": "train"}."""
    history_length: int = 2
    """K, the number of past observations in the context keys."""
    seed: int = 0
    """Of the start of episodes: the rollouts of a task start alike. Later chance differs."""


class GameData(vf.TaskData):
    """A task; its `id` is the environment's task id."""

    env_id: str
    options: dict[str, Any]
    history_length: int
    seed: int


class GameTask(vf.Task[GameData, vf.State, vf.TaskConfig]):
    """A task whose rewards come from the environment."""


class GameTaskset(vf.Taskset[GameTask, GameTasksetConfig]):
    """All tasks of an environment, in its order."""

    def load(self) -> Iterator[GameTask]:
        config = self.config
        settings = config.model_dump(include={"env_id", "options", "history_length", "seed"})
        env = make(config.env_id, **config.options)
        task_ids = env.get_wrapper_attr("task_ids")
        env.close()
        for task_id in task_ids:
            yield GameTask(GameData(id=task_id, system_prompt=SYSTEM_PROMPT, **settings), config.task)


class GameEnvConfig(vf.EnvConfig):
    """`--env.*`"""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime=vf.SubprocessConfig())
    """The agent: a chat without tools, on this machine."""


class GameEnv(vf.Env[GameEnvConfig]):
    """An episode of the environment.

    The reward `episode_return` is the sum of its rewards. The metric `won` is 1 if the task is solved. `info["steps"]`
    has the fields of each `EpisodeStep`, for credit assignment (`step_batch`).
    """

    async def run(self, task: GameTask, agents: vf.Agents) -> None:
        data = task.data
        episode = await asyncio.to_thread(
            SingleEpisode, data.env_id, history_length=data.history_length, **data.options
        )
        message = episode.begin(data.id, seed=data.seed, chance=secrets.randbits(31))
        async with agents.player.interaction(task) as interaction:
            while not episode.over:
                segment = await interaction.turn(message)
                if segment.terminated:
                    break
                message = episode.act(action_in(segment.last_reply))
                episode.turn += 1
        episode.env.close()
        trace = interaction.trace
        trace.record_reward("episode_return", episode.total_reward())
        trace.record_metric("won", float(episode.won))
        trace.info["steps"] = [
            step._replace(context_keys=step.context_keys.tolist(), final_keys=step.final_keys.tolist())._asdict()
            for step in episode.steps(episode.turn)
        ]


def action_in(reply: str) -> str:
    """Return the text after the last `<action>` of a reply, up to `</action>`; the whole reply without a tag."""
    return reply.rpartition("<action>")[2].partition("</action>")[0].strip()
