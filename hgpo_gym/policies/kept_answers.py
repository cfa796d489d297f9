"""Responses kept in a file, so that an interrupted evaluation continues without paying for them again."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path

from hgpo_gym.files import content_key, writing
from hgpo_gym.policies.base import Answer, Request, Sampling


class KeptAnswers:
    """Responses by prompt, seed and sampling. Every new one is written to the file at once.

    Args:
        path: a file of JSON lines. Damaged lines are skipped, as is a last line that a kill cut short.
    """

    def __init__(self, path: Path):
        self.path = path
        self._answers: dict[str, Answer] = {}
        with writing(path):  # fails now, before anything is paid for
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        content = path.read_bytes()
        # A kill while writing leaves a last line without a line break.
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                digest, (key, *answer) = json.loads(line)
            except (ValueError, TypeError):
                digest, key, answer = "", "", []
            if digest == content_key([key, *answer]):
                self._answers[key] = Answer(*answer)
            else:
                warnings.warn(f"An answer in {path} is not what was written: it is asked for again.", stacklevel=2)
        if whole != content:
            path.write_bytes(whole)

    def __len__(self) -> int:
        return len(self._answers)

    def recall(self, request: Request, sampling: Sampling) -> Answer | None:
        """Return the earlier response, or None."""
        return self._answers.get(_key(request, sampling))

    def keep(self, request: Request, sampling: Sampling, answer: Answer) -> None:
        key = _key(request, sampling)
        self._answers[key] = answer
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([content_key([key, *answer]), [key, *answer]]) + "\n")

    def forget(self) -> None:
        """Remove the file: later requests are sent again."""
        self._answers = {}
        self.path.unlink(missing_ok=True)


def _key(request: Request, sampling: Sampling) -> str:
    return content_key([request.prompt, request.seed, asdict(sampling)])
