"""The keys and values of responses in progress: rows of different lengths that all end in the same column."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers.cache_utils import Cache, DynamicLayer

ROOM = 32
"""The number of spare columns that are allocated at a time."""


class ReadLayer(DynamicLayer):
    """A layer's keys and values of prompts, in the format in which attention computes.

    Under autocast, a model's rotary embedding makes float32 keys. They would take twice the memory, and autocast would
    cast them at every token.
    """

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns, and return all keys and values."""
        device = key_states.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            key_states, value_states = key_states.to(dtype), value_states.to(dtype)
        return super().update(key_states, value_states, *args, **kwargs)


class GrowingLayer(DynamicLayer):
    """A layer's keys and values with spare columns: a new token is written in place, while `DynamicLayer` copies all.

    Args:
        keys, values: [rows, heads, columns, width]; the first `used` columns are in use.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, used: int):
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._keys, self._values = keys, values
        self._use(used)

    @property
    def storage(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values with their spare columns."""
        return self._keys, self._values

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ARG002 - the signature of transformers
        **kwargs: Any,  # noqa: ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns, and return all keys and values."""
        start, end = self._used, self._used + key_states.shape[2]
        # Room for several tokens at once: growing copies all columns.
        if end > self._keys.shape[2]:
            self._keys, self._values = (_with_room(states, end + ROOM) for states in (self._keys, self._values))
        self._keys[:, :, start:end] = key_states
        self._values[:, :, start:end] = value_states
        return self._use(end)

    def _use(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._used = columns
        self.keys, self.values = keys, values = self._keys[:, :, :columns], self._values[:, :, :columns]
        return keys, values


class Rows(NamedTuple):
    """Rows of a cache.

    Attributes:
        cache: the cache that the model filled.
        rows: int64[R], the rows, with repetitions.
        ends: int64[R], the column after the last that belongs to the row.
    """

    cache: Cache
    rows: torch.Tensor
    ends: torch.Tensor


def join(parts: Sequence[Rows], columns: int) -> Cache:
    """Return one cache with the rows of all parts. Each row holds the `columns` columns before its end, or as many as
    it has.

    Columns before a row's first one hold arbitrary finite numbers: masking them is enough.
    """
    layers: list[Any] = []  # Cache takes a list of several kinds of layers
    for matching_layers in zip(*(part.cache.layers for part in parts), strict=True):
        all_keys, all_values = zip(*map(states_of, matching_layers), strict=True)
        keys, values = _join_states(all_keys, parts, columns), _join_states(all_values, parts, columns)
        layers.append(GrowingLayer(keys, values, columns))
    return Cache(layers=layers)


def states_of(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a layer's keys and values [rows, heads, columns, width], with spare columns."""
    return layer.storage if isinstance(layer, GrowingLayer) else (layer.keys, layer.values)


def _join_states(states: Sequence[torch.Tensor], parts: Sequence[Rows], columns: int) -> torch.Tensor:
    """Return float[rows, heads, columns + ROOM, width]."""
    _, heads, _, width = states[0].shape
    counts = [heads * (columns + ROOM) * len(part.rows) for part in parts]
    joined = states[0].new_empty(sum(counts), width)
    for source, part, target in zip(states, parts, joined.split(counts), strict=True):
        # Selecting from a flat list of columns is several times faster than indexing by row and column.
        places = _places(part, heads, source.shape[2], columns)
        torch.index_select(source.reshape(-1, width), 0, places, out=target)
    return joined.view(-1, heads, columns + ROOM, width)


def _places(part: Rows, heads: int, width: int, columns: int) -> torch.Tensor:
    """Return int64[R * heads * (columns + ROOM)]: the indices of the columns before the ends, in a flat list of all
    rows, heads and columns. The spare columns get any valid index."""
    device = part.rows.device
    # Right-aligned: the last token of every row lands in the same column, whatever the row's length.
    token_columns = part.ends[:, None] - columns + torch.arange(columns + ROOM, device=device)
    heads_of_rows = part.rows[:, None] * heads + torch.arange(heads, device=device)
    # Clamped to valid columns: attention masks those before the first token, new tokens overwrite the spare ones.
    return (heads_of_rows[:, :, None] * width + token_columns.clamp(0, width - 1)[:, None, :]).flatten()


def _with_room(states: torch.Tensor, columns: int) -> torch.Tensor:
    rows, heads, used, width = states.shape
    grown = states.new_empty(rows, heads, columns, width)
    grown[:, :, :used] = states
    return grown
