"""Play an environment by hand, and show the context keys of the memory."""

import argparse
import contextlib
import errno
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hgpo_gym.cli.errors import mistakes_explained
from hgpo_gym.envs.registration import make
from hgpo_gym.memory.context import Context
from hgpo_gym.plain_text import for_terminal
from hgpo_gym.trainers.settings import PlaySettings

WEBSHOP = "hgpo_gym/WebShop-v0"
HELP = (
    "Type an action or its number; /reset begins a new episode, /help says this again, /quit (or Ctrl-D) ends.\n"
    "The table: earlier steps, as episode.step, that share this context: what is seen (level 0), also what was seen "
    "before (level 1), and so on."
)


def play(config: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Run `hgpo-gym play`, in the terminal or in a browser."""
    with mistakes_explained():
        settings, task_id = PlaySettings.parse(config), config["task_id"]
        if parsed.web:
            play_in_browser(settings, task_id, parsed.port)
        else:
            play_in_terminal(settings, task_id)


def play_in_terminal(settings: PlaySettings, task_id: str | None = None, console: Console | None = None) -> None:
    """Read actions from standard input until it ends.

    After every turn a table shows the earlier steps of this session with the same context, for each level of the
    context keys. Credit assignment would compare this step with them.
    """
    console = console or Console()
    env = make(settings.env.id, **settings.env.options)
    memory = settings.memory.make()
    steps_by_key: list[defaultdict[int, list[str]]] = [defaultdict(list) for _ in range(memory.history_length + 1)]
    console.print(HELP, style="dim")
    episode = 0
    reset_options = {} if task_id is None else {"task_id": task_id}
    while True:
        episode += 1
        observation, info = env.reset(seed=settings.seed if episode == 1 else None, options=reset_options)
        memory.reset()
        console.rule(Text(for_terminal(f"episode {episode}: {info['task_id']}")))
        console.print(for_terminal(f"Task: {info['task']}"), style="bold", markup=False, highlight=False)
        ended = False
        while not ended:
            context = memory.observe(observation, info["admissible_actions"])
            _show(console, context, steps_by_key, f"{episode}.{context.step + 1}")
            action = _ask(console, context.admissible_actions)
            if action is None:
                env.close()
                return
            if action == "/reset":
                break
            observation, reward, terminated, truncated, info = env.step(action)
            memory.record(action)
            ended = terminated or truncated
            if not info["action_valid"]:
                console.print("(not a valid action here; /help)", style="yellow")
            if ended:
                console.print(for_terminal(observation), markup=False, highlight=False)
                result = "won" if info["won"] else "out of steps" if truncated else "lost"
                console.print(f"The episode is over: {result}, reward {reward:g}.", style="bold")


def play_in_browser(settings: PlaySettings, task_id: str | None, port: int) -> None:
    """Serve WebShop's pages on this machine until Ctrl-C.

    Raises:
        ValueError: another environment, or an invalid port.
        OSError: the port is in use.
    """
    if settings.env.id != WEBSHOP:
        raise ValueError(f"--web serves {WEBSHOP}, not {settings.env.id}: add env=webshop, or leave out --web.")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port {port}: a port is a number from 0 (any free one) to {(1 << 16) - 1}.")
    from hgpo_gym.envs.webshop.web.server import ShopServer

    try:
        server = ShopServer(partial(make, settings.env.id, **settings.env.options), port, settings.seed, task_id)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            error.errno, f"Port {port} is taken: choose another by --port, or --port 0 for a free one"
        ) from error
    with server, contextlib.suppress(KeyboardInterrupt):
        Console().print(f"Open {server.url} (Ctrl-C ends).", highlight=False)
        server.serve_forever()


def _show(console: Console, context: Context, steps_by_key: list[defaultdict[int, list[str]]], name: str) -> None:
    console.print()
    console.print(for_terminal(context.observation), markup=False, highlight=False)
    for number, action in enumerate(context.admissible_actions, start=1):
        console.print(for_terminal(f"  {number}. {action}"), markup=False, highlight=False)
    table = Table(title=f"step {name}", title_justify="left", show_edge=False, pad_edge=False)
    for column in ("level", "context key", "same context at"):
        table.add_column(column)
    for level, key in enumerate(context.keys.tolist()):
        if key == 0:
            table.add_row(str(level), "-", "too early: no such history yet")
            continue
        # Keys are int64; the mask prints them as unsigned.
        table.add_row(str(level), f"{key & (1 << 64) - 1:016x}", ", ".join(steps_by_key[level][key]) or "nowhere yet")
        steps_by_key[level][key].append(name)
    console.print(table, style="dim")


def _ask(console: Console, admissible: tuple[str, ...]) -> str | None:
    """Return the typed action, `/reset`, or None at the end. Other commands are answered here and cost no step."""
    while True:
        try:
            text = console.input("> ", markup=False).strip()
        except EOFError:
            return None
        if text == "/quit":
            return None
        if text == "/reset" or not text.startswith("/") or text in admissible:
            break
        console.print(HELP if text == "/help" else f"There is no {text}. {HELP}", style="dim", markup=False)
    if text.isdigit() and 1 <= int(text) <= len(admissible):
        return admissible[int(text) - 1]
    return text
