"""Transcripts of episodes, word for word: as sections of a page or a terminal, and as files."""

from collections.abc import Sequence
from pathlib import Path

from hgpo_gym.analysis.report.blocks import Block, Chapter, Code, Column, Paragraph, Section, Table, Value
from hgpo_gym.analysis.report.write import write_html
from hgpo_gym.rollouts.conversations import Exchange, RecordedEpisode, write
from hgpo_gym.rollouts.failures import SavedFailure

NO_ACTION = "no action was found in it"


def write_transcripts(conversations: Sequence[RecordedEpisode], folder: Path, title: str) -> Path:
    """Write `transcripts.jsonl`, a line for each episode, and `transcripts.html` into a folder, created if missing.

    Returns the page. Raises NotWrittenError if the disk is full.
    """
    write(conversations, folder / "transcripts.jsonl")
    page = folder / "transcripts.html"
    write_html(
        title,
        [Chapter("", "", transcript_sections(conversations))],
        f"{len(conversations)} episodes by hgpo-gym.",
        page,
    )
    return page


def transcript_sections(conversations: Sequence[RecordedEpisode]) -> list[Section]:
    """Return a table of the episodes, and a folded section for each of them."""
    return [
        episodes(conversations),
        *(conversation(episode, number) for number, episode in enumerate(conversations, start=1)),
    ]


def episodes(conversations: Sequence[RecordedEpisode]) -> Section:
    """Return a table of the episodes, a line each."""
    rows: list[tuple[Value, ...]] = [
        (
            number,
            episode.task_id,
            "won" if episode.won else "not won",
            len(episode.exchanges),
            sum(not exchange.action for exchange in episode.exchanges),
            sum(exchange.truncated for exchange in episode.exchanges),
        )
        for number, episode in enumerate(conversations, start=1)
    ]
    columns = (
        Column("episode", "whole"),
        Column("task"),
        Column("result"),
        Column("responses", "whole"),
        Column("without an action", "whole"),
        Column("truncated", "whole"),
    )
    caption = "Without an action: the prompt's action_pattern finds none. Truncated: by rollout.max_new_tokens."
    return Section("Episodes", [Table("episodes", caption, columns, tuple(rows))])


def conversation(episode: RecordedEpisode, number: int, *, folded: bool = True) -> Section:
    """Return all prompts and responses of an episode."""
    blocks: list[Block] = [Paragraph(f"Task: {episode.task}")]
    for step, exchange in enumerate(episode.exchanges, start=1):
        blocks += exchanged(exchange, f"{number}.{step}")
    result = "won" if episode.won else "not won"
    return Section(f"Episode {number}: {episode.task_id}, {result}", blocks, folded=folded)


def failed_episodes(failures: Sequence[tuple[int, str, SavedFailure]]) -> Section:
    """Return a table of the attempts whose environment failed, a line each: the error, and when it came up."""
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
        for number, (iteration, phase, failure) in enumerate(failures, start=1)
    ]
    columns = (
        Column("number", "whole"),
        Column("task"),
        Column("error"),
        Column("then"),
        Column("in"),
        Column("iteration", "whole"),
        Column("attempt", "whole"),
        Column("responses", "whole"),
    )
    caption = "Given up: the task's group was left out, or the episode of an evaluation counted as not won."
    return Section("Episodes whose environment failed", [Table("failures", caption, columns, tuple(rows))])


def failed_episode(iteration: int, phase: str, failure: SavedFailure, number: int, *, folded: bool = True) -> Section:
    """Return the conversation of a failed episode, and the error."""
    transcript = conversation(failure.conversation, number)
    blocks: list[Block] = [*transcript.blocks, Paragraph(failure.error), Code(failure.traceback)]
    title = f"Failure {number}: {failure.conversation.task_id}, {phase} of iteration {iteration}"
    return Section(title, blocks, folded=folded)


def exchanged(exchange: Exchange, name: str) -> list[Block]:
    """Return a prompt, its response, and the action and reward that followed."""
    parsed_action = f"action: {exchange.action}" if exchange.action else NO_ACTION
    notes = [parsed_action, *(["truncated"] if exchange.truncated else []), f"reward {exchange.reward:g}"]
    return [
        Paragraph(f"Prompt of {name}:"),
        Code(exchange.prompt),
        Paragraph(f"Response of {name} ({'; '.join(notes)}):"),
        Code(exchange.response),
    ]
