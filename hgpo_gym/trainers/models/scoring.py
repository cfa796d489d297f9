"""Shared code of the models that choose among admissible actions. They train in one process and imitate only if
asked to."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeInt

from hgpo_gym.files import cache_dir, content_key, make_whole, source_digest, writing
from hgpo_gym.policies import scoring
from hgpo_gym.policies.base import Request, TokenRecord
from hgpo_gym.policies.scoring import ScoringPolicy
from hgpo_gym.rollouts.transcripts import Transcript
from hgpo_gym.section import SettingsSection
from hgpo_gym.trainers.models.admissible import check_chooses
from hgpo_gym.trainers.models.sizes import Threads
from hgpo_gym.trainers.warm_start import imitation
from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate, worth_imitating
from hgpo_gym.trainers.warm_start.imitation import imitate

if TYPE_CHECKING:
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.settings import ModelSections


class ScoringModel(SettingsSection):
    """Settings of a kind of model that chooses among actions.

    Attributes:
        policy: the class of its policies.
        made_by: the modules that make its policies, apart from those that all kinds share.
    """

    is_language_model: ClassVar[bool] = False
    writes_text: ClassVar[bool] = False
    has_states: ClassVar[bool] = False
    policy: ClassVar[type[ScoringPolicy]]
    made_by: ClassVar[Sequence[ModuleType]]

    seed: NonNegativeInt
    threads: Threads | None

    @abstractmethod
    def new(self) -> ScoringPolicy:
        """Return an untrained policy."""

    @property
    def imitates(self) -> bool:
        """Return False: this kind imitates only if the settings ask for it."""
        return False

    def check(self, run: "ModelSections", processes: int) -> None:
        if processes > 1:
            raise ValueError(f"model.kind={self.policy.kind} trains in one process: launch one, or set another model=.")
        check_chooses(run, f"{self.policy.kind} policy")

    def initial(self, run: "ModelSections", progress: "Progress") -> ScoringPolicy:
        """Return a new policy, or one that has imitated episodes. The latter is cached under a key of all that it
        depends on."""
        if run.warmstart.source == "none":
            return self.new()
        episodes, episodes_key = episodes_to_imitate(run, self.seed, progress)
        settings = {name: dict(run.resolved[name]) for name in ("model", "warmstart")}
        del settings["model"]["threads"], settings["warmstart"]["new_model"]
        made_by = source_digest(scoring, imitation, *self.made_by)
        folder = cache_dir() / "models" / content_key([made_by, settings, run.trainer.precision, episodes_key])
        with writing(folder):
            cached = folder.exists()
        if not cached:
            policy = self._imitated(run, worth_imitating(episodes, run.warmstart.source), progress)
            make_whole(folder, policy.save)
        progress.line(f"Initial weights: {folder}")
        return self.policy.load(folder)

    def load(self, run: "ModelSections", folder: Path) -> ScoringPolicy:  # noqa: ARG002 - Model
        return self.policy.load(folder)

    def _imitated(self, run: "ModelSections", episodes: list[Transcript], progress: "Progress") -> ScoringPolicy:
        policy = self.new()
        records = [record for episode in episodes for record in _records(policy, episode)]
        with progress.stage(f"Imitating {len(records):,} {run.warmstart.source} actions") as report_progress:
            loss = imitate(
                policy.model,
                records,
                run.warmstart,
                likelihood=partial(policy.likelihood, temperature=1.0),
                max_batch_tokens=run.trainer.max_batch_tokens,
                precision=run.trainer.precision,
                seed=self.seed,
                on_progress=lambda done, steps, loss: report_progress(done, steps, f"loss {loss:.3f}"),
            )
        progress.line(f"Warm start: {len(records)} actions, loss {loss:.4f} nats an action in the last epoch")
        return policy


def _records(policy: ScoringPolicy, transcript: Transcript) -> list[TokenRecord]:
    """Return the recorded actions of every step with a choice, if they were admissible."""
    # A list keeps the contexts alive, and with them the policy's memory of the episode.
    steps = list(transcript.step_contexts())
    return [
        policy.record(
            Request("", step_context.actions, choices=step_context.actions, step_context=step_context), action
        )
        for step_context, action in steps
        if len(step_context.actions) > 1 and action in step_context.actions
    ]
