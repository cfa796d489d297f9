"""A table as a policy: one logit for each context and admissible action.

Nothing is approximated or shared between contexts, and training takes seconds, so that many seeds are affordable. A
response is one token, whose id is the hash of its text. The prompt is one token too, the context. Update, losses and
checkpoints therefore work on it as on any policy.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from hgpo_gym.memory.keys import hash_text, link
from hgpo_gym.policies.base import (
    Distributions,
    Likelihood,
    Request,
    Response,
    Sampling,
    TokenRecord,
    check_has_choices,
)
from hgpo_gym.policies.sampling import draw, pad, read_likelihood, uniform_numbers

_FILE = "table.safetensors"


class TableFullError(ValueError):
    """More contexts and actions than the table has logits for."""


class LogitTable(torch.nn.Module):
    """Logits by 64-bit id, 0 for an id that was never trained on.

    In training mode a new id gets a logit; in evaluation mode it does not, so that evaluation leaves no trace. The
    parameter has its full size from the start, so that the optimiser's state never has to grow.

    Args:
        capacity: the most logits.
    """

    def __init__(self, capacity: int):
        super().__init__()
        if capacity < 1:
            raise ValueError(f"model.capacity={capacity}: must be at least 1.")
        self.logits = torch.nn.Parameter(torch.zeros(1 + capacity))  # entry 0 belongs to all unknown ids, and stays 0
        self._places: dict[int, int] = {}

    @property
    def capacity(self) -> int:
        return len(self.logits) - 1

    def __len__(self) -> int:
        """Return the number of logits in use."""
        return len(self._places)

    def forward(self, ids: np.ndarray) -> torch.Tensor:
        """Return the logits float32[N] of ids uint64[N].

        Raises:
            TableFullError: in training mode, with more ids than `capacity`.
        """
        places = self._places
        if self.training:
            # Rows are given in order of first use, so that the order of the saved ids restores them.
            found = [places.setdefault(id, len(places) + 1) for id in ids.tolist()]
            if len(places) > self.capacity:
                raise TableFullError(
                    f"The table is full: model.capacity={self.capacity} logits, one for each context and action. "
                    "Set it higher, or let the policy see less (model.level)."
                )
        else:
            found = [places.get(id, 0) for id in ids.tolist()]
        return self.logits.index_select(0, torch.tensor(found))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state: the ids in use int64[len(self)], in order, and the logits."""
        ids = np.array(list(self._places), dtype=np.uint64).view(np.int64)
        return {"ids": torch.from_numpy(ids), "logits": self.logits.detach()}

    @classmethod
    def from_tensors(cls, ids: torch.Tensor, logits: torch.Tensor) -> "LogitTable":
        """Return the table with these `tensors`."""
        table = cls(len(logits) - 1)
        table.load_tensors(ids, logits)
        return table

    def load_tensors(self, ids: torch.Tensor, logits: torch.Tensor) -> None:
        """Restore the `tensors` of a table with the same capacity."""
        self.logits.data.copy_(logits)
        self._places = {id: place for place, id in enumerate(ids.numpy().view(np.uint64).tolist(), start=1)}


class TabularPolicy:
    """Draws an admissible action by a softmax over its logits in the context.

    The context is the task and the deepest existing context key up to `level`: at the first step of an episode that is
    level 0, the observation alone.

    Args:
        model: the logits.
        level: past observations that the policy can see, at most the K of the context keys.
    """

    def __init__(self, model: LogitTable, level: int):
        self.model, self.level = model, level

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Response]:
        """Return one response for each request, in order. Each depends on its own seed, not on the batch.

        Raises:
            CannotRespondError: a request without admissible actions.
            ValueError: a request without context keys.
        """
        for request in requests:
            check_has_choices(request.allowed_responses, request.role, "tabular policy")
        contexts = np.array([self._context(request) for request in requests], dtype=np.int64)
        responses = [_responses(request.allowed_responses) for request in requests]
        chosen, logprobs = np.zeros(len(requests), dtype=np.int64), np.zeros(len(requests), dtype=np.float32)
        # A single choice has probability 1: nothing is drawn, and its log-probability is 0.
        free = [row for row, (texts, _) in enumerate(responses) if len(texts) > 1]
        if free:
            self.model.eval()
            logits, _ = self._logits(contexts[free], [responses[row][1] for row in free])
            uniforms = uniform_numbers([requests[row].seed for row in free], 1)[:, 0]
            tokens, drawn = draw(logits, sampling, uniforms)
            chosen[free], logprobs[free] = tokens.numpy(), drawn.numpy()
        return [
            Response(
                texts[chosen[row]],
                TokenRecord(contexts[row : row + 1], ids[chosen[row], None], logprobs[row : row + 1], (ids,)),
            )
            for row, (texts, ids) in enumerate(responses)
        ]

    def likelihood(self, records: Sequence[TokenRecord], *, temperature: float) -> Likelihood:
        """Return the likelihood, see `TrainablePolicy`. In training mode, new contexts get their logits."""
        logprobs, entropy = self.read_distributions(records, read_likelihood, temperature=temperature)
        return Likelihood(logprobs, entropy, torch.arange(len(records)))

    def read_distributions(
        self,
        records: Sequence[TokenRecord],
        reader: Callable[[Distributions], tuple[torch.Tensor, ...]],
        *,
        temperature: float,
    ) -> tuple[torch.Tensor, ...]:
        contexts = np.concatenate([record.prompt_ids for record in records])
        tokens = np.concatenate([record.token_ids for record in records])
        allowed_ids = [ids for record in records for ids in (record.allowed or ())[:1] if ids is not None]
        logits, allowed = self._logits(contexts, allowed_ids)
        columns = torch.from_numpy((allowed == tokens[:, None]).argmax(axis=1))
        # Each logit is one parameter: linear in 1.
        return reader(Distributions(logits / temperature, columns, torch.ones(len(records), 1), temperature))

    state_size = None

    def states(
        self,
        records: Sequence[TokenRecord],
        response_lengths: Sequence[int],  # noqa: ARG002 - of StateReader; a response is one token, nothing comes after it
        *,
        max_batch_tokens: int,  # noqa: ARG002 - of StateReader
        precision: str,  # noqa: ARG002 - of StateReader
    ) -> np.ndarray:
        """Return the contexts, int64[N], see `StateReader`."""
        return np.array([record.prompt_ids[0] for record in records], dtype=np.int64)

    def updated(self) -> None:
        """Do nothing: the policy generates with the model itself."""

    def save(self, folder: Path, weights: dict[str, torch.Tensor] | None = None) -> None:
        """Write one file, which `load` reads."""
        folder.mkdir(parents=True)
        save_file({**self.model.tensors(), **(weights or {}), "level": torch.tensor(self.level)}, folder / _FILE)

    @classmethod
    def load(cls, folder: Path) -> "TabularPolicy":
        """Return the policy that was saved in `folder`. Raises FileNotFoundError if there is none."""
        if not (folder / _FILE).exists():
            raise FileNotFoundError(f"No table in {folder}: expected {_FILE}, as runs with model=tabular leave it.")
        saved = load_file(folder / _FILE)
        return cls(LogitTable.from_tensors(saved["ids"], saved["logits"]), int(saved["level"]))

    def _context(self, request: Request) -> int:
        if not request.context_keys:
            raise ValueError("A tabular policy acts on context keys: the environment needs a ContextWrapper.")
        deepest = next(key for key in reversed(request.context_keys[: self.level + 1]) if key)
        return _mix(request.task, deepest)

    def _logits(self, contexts: np.ndarray, responses: Sequence[np.ndarray]) -> tuple[torch.Tensor, np.ndarray]:
        """Return the logits float32[N, A] of the responses in each context, -inf beyond a context's responses, and
        their ids."""
        response_ids, valid = pad(responses)
        # Only real responses get an id: a padded one would add a row to the table.
        ids = link(np.repeat(contexts, valid.sum(axis=1)).view(np.uint64), response_ids[valid].view(np.uint64))
        logits = torch.full(valid.shape, float("-inf"))
        return logits.masked_scatter(torch.from_numpy(valid), self.model(ids)), response_ids


@lru_cache(maxsize=100_000)
def _responses(responses: tuple[str, ...]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the distinct responses and their token ids int64[A]."""
    distinct = tuple(dict.fromkeys(responses))
    return distinct, np.array([hash_text(response) for response in distinct], dtype=np.uint64).view(np.int64)


@lru_cache(maxsize=100_000)
def _mix(task: str, key: int) -> int:
    return int(link(np.array([hash_text(task)], dtype=np.uint64), np.array([key]).view(np.uint64)).view(np.int64)[0])
