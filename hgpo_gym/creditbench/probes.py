"""The probes of a seed, from the cache or made now."""

from functools import partial
from pathlib import Path

from hgpo_gym.creditbench.data import DIGEST, DIGESTS, VERSION, Probe, digests, read, write
from hgpo_gym.digests import cached_folder
from hgpo_gym.files import cache_dir


def probes_file(seed: int = 0) -> Path:
    """Return the file with the probes of a seed, which is made if the cache lacks it: three minutes on one core."""
    # The digest in the name keeps apart what different releases make from the same seed.
    name = f"version-{VERSION}-{DIGEST[:8]}-seed-{seed}"
    return cached_folder(cache_dir() / "creditbench" / name, partial(_write, seed)) / "probes.npz"


def probes(seed: int = 0) -> list[Probe]:
    """Return the probes of a seed, from the cache or made now. Seed 0 has the public ones.

    Raises:
        ValueError: those of seed 0 are not the ones of this version.
    """
    found = read(path := probes_file(seed))
    made = digests(found)
    wrong = ", ".join(name for name in DIGESTS if made.get(name) != DIGESTS[name])
    if seed == 0 and wrong:
        raise ValueError(
            f"{path}: the probes of {wrong} are not those of version {VERSION}. Delete the folder, and report it if "
            "they differ again."
        )
    return found


def sample() -> list[Probe]:
    """Return a few of the public probes, which come with the package: a quick trial of a method."""
    return read(Path(__file__).parent / "sample.npz")


def _write(seed: int, folder: Path) -> None:
    from hgpo_gym.creditbench.making import make_probes  # and with it environments, which scoring does not need

    write(make_probes(seed), folder / "probes.npz")
