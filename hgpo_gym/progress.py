"""Progress for a person: bars in a terminal, plain lines elsewhere."""

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from hgpo_gym.plain_text import for_terminal

ProgressCallback = Callable[[int, int, str], None]
"""Called with (done, total, a few words)."""


class Progress:
    """Shows stages of work, and lines that stay, on a console."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console()

    @contextmanager
    def stage(self, description: str, *, lines: bool = True) -> Iterator[ProgressCallback]:
        """Show a stage of work as a progress bar. Outside a terminal: a line for every twentieth of it, or none."""
        if not self.console.is_terminal:
            yield self._line_reports(description) if lines else (lambda _done, _total, _words: None)
            return
        with bars.Progress(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[words]}"),
            console=self.console,
        ) as bar:
            task = bar.add_task(description, total=None, words="")
            yield lambda done, total, words: bar.update(task, completed=done, total=total, words=for_terminal(words))

    def _line_reports(self, description: str) -> ProgressCallback:
        shown = -1

        def report_progress(done: int, total: int, words: str) -> None:
            nonlocal shown
            if (twentieth := 20 * done // total) > shown:
                shown = twentieth
                self.line(f"{description}  {done}/{total}  {words}")

        return report_progress

    def line(self, text: str) -> None:
        """Print a line that stays. A terminal breaks it between words, or between its fields (two spaces, a letter)."""
        text = for_terminal(text)
        if self.console.is_terminal:
            text = "\n".join(_wrapped(line, self.console.width) for line in text.split("\n"))
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


_BETWEEN_FIELDS = re.compile(r"(?<=\S)  +(?=[A-Za-z])")
_GLUE = "\u00a0"


def _wrapped(line: str, width: int) -> str:
    """Break a line that is too long. Paths and links stay whole, so that they can be clicked on."""
    if len(line) <= width:
        return line
    fields = _BETWEEN_FIELDS.split(line)
    if len(fields) > 1:
        line = "  ".join(field.replace(" ", _GLUE) for field in fields)
    indent = 6 * " " if len(fields) > 1 else ""
    lines = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_GLUE, " ")


class NotebookProgress(Progress):
    """Progress in a notebook: a tqdm bar, and warnings alone as lines."""

    @contextmanager
    def stage(self, description: str, *, lines: bool = True) -> Iterator[ProgressCallback]:  # noqa: ARG002
        """Show a stage of work as a tqdm bar."""
        from tqdm.auto import tqdm

        with tqdm(desc=description) as bar:

            def update(done: int, total: int, words: str) -> None:
                bar.total, bar.n = total, done
                bar.set_postfix_str(words)

            yield update

    def line(self, text: str) -> None:
        """Print warnings, and nothing else."""
        if text.startswith("Warning"):
            super().line(text)


class CallbackProgress(Progress):
    """Calls a function and prints nothing."""

    def __init__(self, callback: ProgressCallback):
        super().__init__(Console(quiet=True))
        self._callback = callback

    @contextmanager
    def stage(self, description: str, *, lines: bool = True) -> Iterator[ProgressCallback]:  # noqa: ARG002
        """Pass a stage's progress to the callback."""
        yield self._callback


def progress_for(progress: "bool | ProgressCallback") -> Progress:
    """Return the progress that a Python caller chooses: True, False, or a function of (done, total, words)."""
    if callable(progress):
        return CallbackProgress(progress)
    if not progress:
        return Progress(Console(quiet=True))
    return NotebookProgress() if Console().is_jupyter else Progress()


@contextmanager
def progress_bar(*, in_bytes: bool = False) -> Iterator[ProgressCallback]:
    """Show a bar on standard error, if that is a terminal, for work at first use. It disappears at the end."""
    count = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(bar_width=24), count, bars.TimeRemainingColumn())
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, words: bar.update(task, completed=done, total=total, description=words)
