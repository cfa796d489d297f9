"""`model=scorer`: a softmax over scores of the admissible actions, from general features of how an action fits its
moment. Small, and quick to train."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, NonNegativeInt, model_validator

from hgpo_gym.files import cache_dir, content_key, make_whole, source_digest
from hgpo_gym.trainers.models.sizes import Threads, check_fits
from hgpo_gym.trainers.policies.base import Request, TokenRecord
from hgpo_gym.trainers.policies.scorer import episode, features, network, places, words
from hgpo_gym.trainers.policies.scorer import policy as scorer_policy
from hgpo_gym.trainers.policies.scorer.network import Network
from hgpo_gym.trainers.policies.scorer.policy import ScorerPolicy
from hgpo_gym.trainers.rollouts.transcripts import Transcript
from hgpo_gym.trainers.section import Section
from hgpo_gym.trainers.warm_start import imitation
from hgpo_gym.trainers.warm_start.episodes import episodes_to_imitate
from hgpo_gym.trainers.warm_start.imitation import imitate

if TYPE_CHECKING:
    from hgpo_gym.progress import Progress
    from hgpo_gym.trainers.settings import RunSettings


class ScorerModel(Section):
    """See `configs/model/scorer.yaml`."""

    wide: Annotated[int, Field(ge=2)]
    deep: Annotated[int, Field(ge=2)]
    hidden_size: NonNegativeInt
    novelty: float
    relevance: float
    seed: NonNegativeInt
    threads: Threads | None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        shape = f"model.wide={self.wide} with model.deep={self.deep} and model.hidden_size={self.hidden_size}"
        check_fits(self.wide + self.deep * self.hidden_size, shape)
        return self

    @property
    def imitates(self) -> bool:
        """Only where it is asked to: its first policy finds successes by itself."""
        return False

    def check(self, run: "RunSettings", processes: int) -> None:
        if processes > 1:
            raise ValueError("model.kind=scorer trains in one process: launch one, or set another model=.")
        if run.engine.options.get("constrain") == "none":
            raise ValueError("engine.constrain=none: a scorer chooses among admissible actions; set it to admissible.")

    def initial(self, run: "RunSettings", progress: "Progress") -> ScorerPolicy:
        """A new policy, or what has imitated episodes, kept in the cache under a key of all that it depends on."""
        if run.warmstart.source == "none":
            return self._new()
        episodes, episodes_key = episodes_to_imitate(run, self.seed, progress)
        settings = {name: dict(run.resolved[name]) for name in ("model", "warmstart")}
        del settings["model"]["threads"], settings["warmstart"]["new_model"]
        made_by = source_digest(episode, features, network, places, words, scorer_policy, imitation)
        folder = cache_dir() / "models" / content_key([made_by, settings, episodes_key])
        if not folder.exists():
            policy = self._imitated(
                run, [one for one in episodes if one.won or run.warmstart.source == "random"], progress
            )
            make_whole(folder, policy.save)
        progress.line(f"Initial weights: {folder}")
        return ScorerPolicy.load(folder)

    def load(self, run: "RunSettings", folder: Path) -> ScorerPolicy:  # noqa: ARG002 - Model
        return ScorerPolicy.load(folder)

    def _new(self) -> ScorerPolicy:
        return ScorerPolicy(Network(self.wide, self.deep, self.hidden_size, (-self.novelty, self.relevance), self.seed))

    def _imitated(self, run: "RunSettings", episodes: list[Transcript], progress: "Progress") -> ScorerPolicy:
        policy = self._new()
        records = [record for one in episodes for record in _records(policy, one)]
        with progress.stage(f"Warm start: imitating {len(records)} {run.warmstart.source} actions") as tick:
            loss = imitate(
                policy.model,
                records,
                run.warmstart,
                likelihood=partial(policy.likelihood, temperature=1.0),
                max_batch_tokens=run.trainer.max_batch_tokens,
                seed=self.seed,
                on_progress=lambda done, steps, loss: tick(done, steps, f"loss {loss:.3f}"),
            )
        progress.line(f"Warm start: {len(records)} actions, loss {loss:.4f} nats an action in the last epoch")
        return policy


def _records(policy: ScorerPolicy, transcript: Transcript) -> list[TokenRecord]:
    """What was done at every step that had a choice, where it was admissible."""
    steps = list(transcript.moments())  # keeps them, and with them what the policy remembers of the episode
    return [
        policy.record(Request("", moment.actions, choices=moment.actions, moment=moment), action)
        for moment, action in steps
        if len(moment.actions) > 1 and action in moment.actions
    ]
