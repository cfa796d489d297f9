"""A flipped bit in the cache: a damaged file is named, set aside and made anew with the same content."""

import random

import pytest

from benchmarks.attack import flips
from hgpo_gym import digests


@pytest.mark.promise("What is damaged in the cache is named and made anew.")
@pytest.mark.smoke
@pytest.mark.parametrize("kind", flips.KINDS)
def test_a_flipped_bit_changes_nothing_silently(kind, tmp_path):
    outcomes = flips.flip(kind, 3, tmp_path)
    assert outcomes["other content"] == 0


@pytest.mark.smoke
def test_every_flip_in_a_folder_of_the_cache_is_found(tmp_path):
    def fill(folder):
        (folder / "inner").mkdir()
        (folder / "inner" / "one").write_bytes(bytes(range(64)))
        (folder / "two").write_text("two")

    folder = digests.cached_folder(tmp_path / "kept", fill)
    choice = random.Random(0)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 3  # the manifest too
    for file in files * 20:
        intact = file.read_bytes()
        damaged = bytearray(intact)
        damaged[choice.randrange(len(intact))] ^= 1 << choice.randrange(8)
        file.write_bytes(damaged)
        assert digests.find_damage(folder, "cache kept") is not None
        file.write_bytes(intact)
    assert digests.find_damage(folder, "cache kept") is None


@pytest.mark.smoke
def test_a_damaged_folder_is_named_and_set_aside(tmp_path):
    folder = digests.cached_folder(tmp_path / "kept", lambda folder: (folder / "file").write_text("sound"))
    (folder / "file").write_text("other")
    digests._damage_once.cache_clear()
    with pytest.warns(
        UserWarning, match=r"kept is damaged: file \(5 bytes\) is not what was written. It is now .*made"
    ):
        digests.cached_folder(folder, lambda folder: (folder / "file").write_text("sound"))
    assert (folder / "file").read_text() == "sound"
    assert (tmp_path / "unsound_kept_1" / "file").read_text() == "other"
