"""What was said in episodes, word for word: as sections of a page or a terminal, and as files."""

from collections.abc import Sequence
from pathlib import Path

from hgpo_gym.analysis.report.blocks import Block, Chapter, Code, Column, Paragraph, Section, Table, Value
from hgpo_gym.analysis.report.write import write_html
from hgpo_gym.rollouts.conversations import Conversation, Exchange, write
from hgpo_gym.rollouts.failures import ToldFailure

NO_ACTION = "no action was found in it"


def write_transcripts(told: Sequence[Conversation], folder: Path, title: str) -> Path:
    """Write `transcripts.jsonl`, a line an episode, and `transcripts.html` into a folder, which is made if it is not
    there. Returns the page. Raises NotWrittenError where the disk is full."""
    write(told, folder / "transcripts.jsonl")
    page = folder / "transcripts.html"
    write_html(title, [Chapter("", "", transcript_sections(told))], f"{len(told)} episodes by hgpo-gym.", page)
    return page


def transcript_sections(told: Sequence[Conversation]) -> list[Section]:
    """A table of the episodes, and each of them, folded."""
    return [episodes(told), *(conversation(one, number) for number, one in enumerate(told, start=1))]


def episodes(told: Sequence[Conversation]) -> Section:
    """A line an episode."""
    rows: list[tuple[Value, ...]] = [
        (
            number,
            one.task_id,
            "won" if one.won else "not won",
            len(one.exchanges),
            sum(not exchange.action for exchange in one.exchanges),
            sum(exchange.cut_off for exchange in one.exchanges),
        )
        for number, one in enumerate(told, start=1)
    ]
    columns = (
        Column("episode", "whole"),
        Column("task"),
        Column("result"),
        Column("answers", "whole"),
        Column("without an action", "whole"),
        Column("cut off", "whole"),
    )
    caption = (
        "Without an action: answers in which the prompt's action_pattern finds none. Cut off: by the longest length."
    )
    return Section("Episodes", [Table("episodes", caption, columns, tuple(rows))])


def conversation(one: Conversation, number: int, *, folded: bool = True) -> Section:
    """All prompts and answers of an episode."""
    blocks: list[Block] = [Paragraph(f"Task: {one.task}")]
    for step, exchange in enumerate(one.exchanges, start=1):
        blocks += exchanged(exchange, f"{number}.{step}")
    result = "won" if one.won else "not won"
    return Section(f"Episode {number}: {one.task_id}, {result}", blocks, folded=folded)


def failed_episodes(told: Sequence[tuple[int, str, ToldFailure]]) -> Section:
    """A line an attempt at an episode whose environment failed: what happened, and when."""
    rows: list[tuple[Value, ...]] = [
        (
            number,
            failure.conversation.task_id,
            failure.error,
            "given up" if failure.failed else "played again",
            phase,
            iteration,
            failure.attempt,
            len(failure.conversation.exchanges),
        )
        for number, (iteration, phase, failure) in enumerate(told, start=1)
    ]
    columns = (
        Column("number", "whole"),
        Column("task"),
        Column("error"),
        Column("then"),
        Column("in"),
        Column("iteration", "whole"),
        Column("attempt", "whole"),
        Column("answers", "whole"),
    )
    caption = "Given up: the task's group was left out, or the episode of an evaluation counted as not won."
    return Section("Episodes whose environment failed", [Table("failures", caption, columns, tuple(rows))])


def failed_episode(iteration: int, phase: str, failure: ToldFailure, number: int, *, folded: bool = True) -> Section:
    """What was said in it, and the error."""
    said = conversation(failure.conversation, number)
    blocks: list[Block] = [*said.blocks, Paragraph(failure.error), Code(failure.traceback)]
    title = f"Failure {number}: {failure.conversation.task_id}, {phase} of iteration {iteration}"
    return Section(title, blocks, folded=folded)


def exchanged(exchange: Exchange, name: str) -> list[Block]:
    """A prompt, its answer, and what came of it."""
    read = f"action: {exchange.action}" if exchange.action else NO_ACTION
    notes = [read, *(["cut off"] if exchange.cut_off else []), f"reward {exchange.reward:g}"]
    return [
        Paragraph(f"{name} was asked:"),
        Code(exchange.prompt),
        Paragraph(f"{name} answered ({'; '.join(notes)}):"),
        Code(exchange.answer),
    ]
