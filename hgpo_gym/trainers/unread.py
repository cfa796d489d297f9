"""Refuse settings that a run does not read, where it takes the parsed settings to know that."""

from collections.abc import Iterable

from hgpo_gym.trainers.settings import RunSettings


def check_read(overrides: Iterable[str], runs: Iterable[RunSettings]) -> None:
    """Raise ValueError if overrides of a command line name settings that none of its runs reads."""
    keys = [override.partition("=")[0].lstrip("+~") for override in overrides]
    unread = [_unread(keys, run) for run in runs]
    for key in keys:
        if unread and all(key in reasons for reasons in unread):
            raise ValueError(f"{key} is not read: {unread[0][key]}. Leave it out.")


def _unread(keys: Iterable[str], run: RunSettings) -> dict[str, str]:
    """Return those of the keys that the run does not read, each with the reason."""
    source, from_scratch = run.warmstart.source, run.model.is_language_model and not run.resolved["model"].get("path")
    reasons: dict[str, str] = {}
    if run.learner.name == "sb3":
        updates = ("trainer.learning_rate", "trainer.mini_batch_size", "trainer.update_epochs")
        reasons |= dict.fromkeys((*updates, "objective", "correction"), f"algo={run.algo.name} has its own, algo.*")
    if source == "none":
        # A model made from scratch also builds its vocabulary from the episodes.
        names = ("epochs", "learning_rate", "batch_size", "loss", *(() if from_scratch else ("episodes",)))
        reasons |= {f"warmstart.{name}": "warmstart.source=none imitates nothing" for name in names}
    if source != "expert":
        reasons["warmstart.random_actions"] = f"warmstart.source={source} is no expert"
    if not from_scratch:
        sizes = ("hidden_size", "layers", "heads", "vocabulary_size")
        reasons |= {f"tiny.{name}": "no model is made from scratch by model=tiny" for name in sizes}
    return {key: why for key in keys for known, why in reasons.items() if key == known or key.startswith(f"{known}.")}
