"""Answers kept in a file, so that an evaluation that broke off goes on without asking, and paying, again."""

import json
from dataclasses import asdict
from pathlib import Path

from hgpo_gym.files import content_key
from hgpo_gym.trainers.policies.base import Answer, Request, Sampling


class KeptAnswers:
    """Answers by prompt, seed and sampling; every new one is in the file at once.

    Args:
        path: a file of JSON lines, made with the first answer. A last line that a kill cut short is left out.
    """

    def __init__(self, path: Path):
        self.path = path
        self._answers: dict[str, Answer] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            self._answers = {key: Answer(*answer) for key, *answer in map(json.loads, whole.splitlines())}
            if whole != text:
                path.write_text(whole, encoding="utf-8")

    def __len__(self) -> int:
        return len(self._answers)

    def recall(self, request: Request, sampling: Sampling) -> Answer | None:
        """The answer that was given before."""
        return self._answers.get(_key(request, sampling))

    def keep(self, request: Request, sampling: Sampling, answer: Answer) -> None:
        key = _key(request, sampling)
        self._answers[key] = answer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, *answer]) + "\n")

    def forget(self) -> None:
        """Remove the file: whoever asks next asks anew."""
        self._answers = {}
        self.path.unlink(missing_ok=True)


def _key(request: Request, sampling: Sampling) -> str:
    return content_key([request.prompt, request.seed, asdict(sampling)])
