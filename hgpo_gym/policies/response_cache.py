"""Responses kept in a file, so that an interrupted evaluation continues without paying for them again."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path

from hgpo_gym.files import content_key, writing
from hgpo_gym.policies.base import MeteredResponse, Request, Sampling


class ResponseCache:
    """Responses by prompt, seed and sampling. Every new one is written to the file at once.

    Args:
        path: a file of JSON lines. Damaged lines are skipped, as is a last line that a kill cut short.
    """

    def __init__(self, path: Path):
        self.path = path
        self._responses: dict[str, MeteredResponse] = {}
        with writing(path):  # fails now, before anything is paid for
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        content = path.read_bytes()
        # A kill while writing leaves a last line without a line break.
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            try:
                digest, (key, *response) = json.loads(line)
            except (ValueError, TypeError):
                digest, key, response = "", "", []
            if digest == content_key([key, *response]):
                self._responses[key] = MeteredResponse(*response)
            else:
                warnings.warn(f"A response in {path} is not what was written: it is asked for again.", stacklevel=2)
        if whole != content:
            path.write_bytes(whole)

    def __len__(self) -> int:
        return len(self._responses)

    def recall(self, request: Request, sampling: Sampling) -> MeteredResponse | None:
        """Return the earlier response, or None."""
        return self._responses.get(_key(request, sampling))

    def keep(self, request: Request, sampling: Sampling, response: MeteredResponse) -> None:
        key = _key(request, sampling)
        self._responses[key] = response
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([content_key([key, *response]), [key, *response]]) + "\n")

    def forget(self) -> None:
        """Remove the file: later requests are sent again."""
        self._responses = {}
        self.path.unlink(missing_ok=True)


def _key(request: Request, sampling: Sampling) -> str:
    return content_key([request.whole_text, request.seed, asdict(sampling)])
