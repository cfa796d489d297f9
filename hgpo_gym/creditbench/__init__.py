"""A benchmark of credit assignment: groups of episodes whose true advantages are known, and scores of methods.

    from hgpo_gym import creditbench

    print(creditbench.score(lambda batch: batch.reward, name="rewards"))

Scoring needs NumPy alone. The probes are made once, from seeds, into the cache: three minutes. `sample()` has a few of
them at once.
"""

from hgpo_gym.creditbench.data import DIGEST, Probe
from hgpo_gym.creditbench.probes import probes, sample
from hgpo_gym.creditbench.scores import Score, score, score_file, write_template

__all__ = ["DIGEST", "Probe", "Score", "probes", "sample", "score", "score_file", "write_template"]
