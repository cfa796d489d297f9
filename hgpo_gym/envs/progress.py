"""A progress bar for what an environment makes when it is used for the first time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Tick = Callable[[int, int, str], None]
"""Called with (done, in all, what is being done)."""


@contextmanager
def progress_bar(*, in_bytes: bool = False) -> Iterator[Tick]:
    """A bar on the standard error stream, if that is a terminal; it goes when all is done."""
    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), count, TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total, words: progress.update(task, completed=done, total=total, description=words)
