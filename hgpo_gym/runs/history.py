"""The rows that iterations add to the state of a run, in a file that only grows: checkpoints do not repeat them."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hgpo_gym.files import open_plain, writing


class History:
    """The rows of a run, one for each iteration, as JSON lines in a file beside the folder of its checkpoints.

    A checkpoint holds the length and the digest that the file had when it was saved. A checkpoint of a run of 10,000
    iterations therefore costs what one of a run of 10 does.

    Attributes:
        rows: a JSON object for each iteration.
    """

    def __init__(self, path: Path):
        self.path, self.rows = path, list[dict[str, Any]]()
        self._saved, self._length, self._digest = 0, 0, hashlib.sha256()

    def save(self) -> dict[str, Any]:
        """Write the rows since the last checkpoint, and return what `restore` needs. Raises NotWrittenError."""
        lines = "".join(json.dumps(row) + "\n" for row in self.rows[self._saved :]).encode()
        if lines:
            # The file is synchronised before the checkpoint that refers to it appears.
            with writing(self.path), open_plain(self.path, append=True) as file:
                # What stands behind is from a checkpoint that was not finished, or that is no longer valid.
                file.truncate(self._length)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        self._digest.update(lines)
        self._saved, self._length = len(self.rows), self._length + len(lines)
        return {"bytes": self._length, "sha256": self._digest.hexdigest()}

    def restore(self, saved: dict[str, Any]) -> bool:
        """Take the rows as they were when `save` returned `saved`. Return False if the file no longer has them."""
        content = b""
        if saved["bytes"]:
            with suppress(FileNotFoundError), open_plain(self.path, max_bytes=None) as file:
                content = file.read(min(saved["bytes"], self.path.stat().st_size))
        digest = hashlib.sha256(content)
        if digest.hexdigest() != saved["sha256"]:
            return False
        self.rows = [json.loads(line) for line in content.splitlines()]
        self._saved, self._length, self._digest = len(self.rows), len(content), digest
        return True
