"""The message of a command that ran out of memory: what was too large, and the settings that make it smaller."""

import errno
import re
import resource
import traceback

_SIGNS = re.compile(
    r"out of memory|(can't|cannot|unable to) allocate|not enough memory|bad_alloc|can't start new thread"
    r"|failed to map segment|std::length_error",
    re.IGNORECASE,
)
_SIZE = re.compile(
    r"tried to allocate ([\d.,]+ ?\w+)|unable to allocate ([\d.,]+ ?\w+ for an array with shape \([^)]*\))", re.I
)
_EPISODES = "rollout.num_tasks, rollout.group_size or evaluation.num_envs"
PLACES = {
    "trainers.update": ("a mini-batch of the update", "trainer.max_batch_tokens or trainer.mini_batch_size"),
    "trainers.warm_start": ("a batch of the warm start", "warmstart.batch_size"),
    "policies": ("the responses to a batch of prompts", "engine.max_batch_tokens or rollout.max_new_tokens"),
    "advantages": ("the advantages of an iteration", "rollout.num_tasks or rollout.group_size"),
    "memory": ("the history of the episodes", "memory.window or memory.history_length"),
    "envs": ("the environments", f"{_EPISODES}, and options of env that make it large"),
    "rollouts": ("the episodes of an iteration", f"{_EPISODES}, or env.max_episode_steps"),
    "runs": ("the records of a run", "rollout.num_tasks or rollout.group_size"),
    "analysis": ("the report", "the number of runs that it is of"),
    "trainers": ("the model and its optimizer", "the size of the model, or train an adapter by model.lora.rank"),
}
"""Parts of the package: what takes the memory, and the settings to lower."""


_LEAST = 1 << 30
"""Bytes of address space in which PyTorch can be imported; with fewer it aborts the process."""


def check_address_space() -> None:
    """Raise ValueError if the process is limited to less address space than importing the libraries takes."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise ValueError(
            f"{limit:,} bytes of address space are allowed, and loading PyTorch takes {_LEAST:,}. Raise the limit of "
            "the shell (ulimit -v) or of the job."
        )


def out_of_memory(error: BaseException) -> str | None:
    """Return a message that names what was too large and the settings for it; None for another error."""
    text = str(error)
    full = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    if not full and (isinstance(error, ValueError) or not _SIGNS.search(text[:2000])):
        return None
    if isinstance(error, MemoryError) and text.endswith("."):
        return text  # a sentence of this package
    what, settings = _place(error)
    size = _SIZE.search(text)
    # PyTorch's and NumPy's messages have the size; other messages are shown as they are.
    reason = f"{size[1] or size[2]} more are not available" if size else text.partition("\n")[0][:300].rstrip(".")
    notes = [note for note in getattr(error, "__notes__", []) if "\n" not in note]
    return " ".join([f"out of memory for {what}{reason and f': {reason}'}. Lower {settings}.", *notes])


def _place(error: BaseException) -> tuple[str, str]:
    """Return the entry of `PLACES` for the innermost function of this package."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = frame.f_globals.get("__name__", "").removeprefix("hgpo_gym.")
        for part, place in PLACES.items():
            if f"{module}.".startswith(f"{part}."):
                return place
    return "this command", f"{_EPISODES}, or the size of the model"
