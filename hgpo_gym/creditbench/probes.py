"""The probes of a seed, from the cache or made now."""

from functools import partial
from pathlib import Path

from hgpo_gym.creditbench.data import DIGEST, VERSION, Probe, digest, read, write
from hgpo_gym.digests import cached_folder
from hgpo_gym.files import cache_dir


def probes(seed: int = 0) -> list[Probe]:
    """Return the probes of a seed, from the cache or made now. Seed 0 has the public ones.

    Raises:
        ValueError: those of seed 0 are not the ones of this version.
    """
    folder = cached_folder(cache_dir() / "creditbench" / f"version-{VERSION}-seed-{seed}", partial(_write, seed))
    found = read(folder / "probes.npz")
    if seed == 0 and digest(found) != DIGEST:
        raise ValueError(
            f"The probes in {folder} have the digest {digest(found)}, and version {VERSION} has {DIGEST}. Delete the "
            "folder, and report it if they differ again."
        )
    return found


def _write(seed: int, folder: Path) -> None:
    from hgpo_gym.creditbench.making import make_probes  # and with it environments, which scoring does not need

    write(make_probes(seed), folder / "probes.npz")
