"""The generated splits: games for a machine without any download, made on first use and kept in the cache."""

from pathlib import Path

from hgpo_gym.digests import cached_folder
from hgpo_gym.files import cache_dir
from hgpo_gym.progress import progress_bar

GENERATED_SPLITS = {"generated": range(2_000), "generated_test": range(10_000_000, 10_000_140)}
"""The seeds of each split: for training, and held out. 2,000 games take 80 MB and about 10 seconds, once."""


def generated_folder(split: str) -> Path:
    """Return the folder of a generated split, in ALFWorld's layout. Changed code makes a new one.

    Args:
        split: one of `GENERATED_SPLITS`.

    Raises:
        ModuleNotFoundError: the alfworld package is missing.
    """
    from hgpo_gym.envs.alfworld.generation import games

    def fill(folder: Path) -> None:
        with progress_bar() as report_progress:
            words = f"Making the games of ALFWorld's split {split}, once"
            games.write_games(folder, GENERATED_SPLITS[split], lambda done, total: report_progress(done, total, words))

    return cached_folder(cache_dir() / "alfworld" / "generated" / f"{split}-{games.fingerprint()}", fill)
