"""`hgpo-gym data` against a real server on this machine, with real games; and the index that lists a folder's games."""

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hgpo_gym.envs.alfworld import splits
from hgpo_gym.envs.alfworld.data import dataset
from hgpo_gym.envs.alfworld.games.files import TASK_TYPES, game_files
from hgpo_gym.envs.alfworld.splits import find_games
from hgpo_gym.envs.download import DownloadError, check_archive, fetch, only_process
from tests.support import ROOT, commands
from tests.support.threads import at_work

JSON_ZIP, GAMES_ZIP = (archive.name for archive in dataset.ARCHIVES)
GAME, TRAJECTORY = "game.tw-pddl", "traj_data.json"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "cache"))
    # As in a new process: nothing is remembered.
    monkeypatch.setattr(splits, "_catalogue", splits._catalogue.__wrapped__)
    monkeypatch.setattr(splits, "_list_games", splits._list_games.__wrapped__)


def run(capsys, *arguments):
    """Exit status, standard output and standard error of `hgpo-gym data alfworld`."""
    return commands.run(capsys, "data", "alfworld", *arguments)


def released(alfworld_data, split, count):
    return game_files(alfworld_data / "json_2.1.1" / split)[:: 140 // count][:count]


# ---- fetching


@pytest.fixture
def release(alfworld_data, tmp_path):
    """A folder with both archives, as alfworld publishes them: four games of one split, two of another, and others."""
    chosen = [*released(alfworld_data, "valid_seen", 4), *released(alfworld_data, "valid_train", 2)]
    folder = tmp_path / "release"
    folder.mkdir()
    unsolvable = json.dumps({**json.loads(chosen[0].read_text()), "solvable": False})
    # Not compressed, so that a file has more bytes than one read of a connection gives.
    with zipfile.ZipFile(folder / JSON_ZIP, "w") as trajectories, zipfile.ZipFile(folder / GAMES_ZIP, "w") as texts:
        for file in chosen:
            place = file.parent.relative_to(alfworld_data)
            trajectories.write(file.with_name(TRAJECTORY), place / TRAJECTORY)
            texts.write(file, place / GAME)
        trajectories.write(chosen[0].with_name(TRAJECTORY), "json_2.1.1/valid_seen/without-a-game/trial/traj_data.json")
        for task in ("look_at_obj_in_light-Book-None-DeskLamp-1", "pick_and_place_simple-AppleSliced-None-Fridge-1"):
            trajectories.write(chosen[0].with_name(TRAJECTORY), f"json_2.1.1/valid_seen/{task}/trial/{TRAJECTORY}")
            texts.writestr(f"json_2.1.1/valid_seen/{task}/trial/{GAME}", unsolvable)
    return folder


@pytest.fixture
def whole_release(release, monkeypatch):
    """The release, and that its six games are all that is expected."""
    counts = {split: dict.fromkeys(TASK_TYPES, 0) for split in dataset.GAMES}
    with zipfile.ZipFile(release / GAMES_ZIP) as archive:
        for name in archive.namelist():
            _, split, task, trial, _ = name.split("/")
            counts[split][task.partition("-")[0]] += trial != "trial"
    monkeypatch.setattr(dataset, "GAMES", counts)
    return release


class Server(ThreadingHTTPServer):
    """Serves a folder.

    Attributes:
        log: `(file name, Range or None)` of each request.
        breaks: number of bytes after which the next connections are broken, first to last.
        ranges: whether parts of a file can be asked for.
    """

    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.log, self.breaks, self.ranges = folder, [], [], True
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        expected = self.headers["Range"]
        if self.path.startswith("/moved/"):  # as GitHub does with the files of a release
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
            return
        self.server.log.append((self.path.lstrip("/"), expected))
        file = self.server.folder / self.path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        start = int(re.fullmatch(r"bytes=(\d+)-", expected)[1]) if expected and self.server.ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + self.server.breaks.pop(0) if self.server.breaks else len(content)
        with contextlib.suppress(ConnectionError):  # of a client that was killed
            self.wfile.write(content[start:end])
        self.close_connection = True

    def log_message(self, *_):
        pass


def serving(folder):
    return at_work(Server(folder))


def test_missing_games_are_fetched_and_can_be_found(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    with serving(whole_release) as server:
        status, out, err = run(capsys, "--to", to, "--mirror", server.url, "--any-digest")
        assert (status, err) == (0, "")
        assert server.log == [(JSON_ZIP, None), (GAMES_ZIP, None)]
    assert "Missing games: 6." in out
    assert "New games: 6; there already: 0." in out
    assert re.search(r"^all +0/0 +4/4 +0/0 +2/2$", out, flags=re.MULTILINE)
    assert "is valid, but not the known file of that name: its SHA-256 is " in out
    assert len(find_games(to, "valid_seen").task_ids) == 4
    assert {path.name for path in to.iterdir()} == {"json_2.1.1", "archives"}
    assert {path.name for path in (to / "archives").iterdir()} == {JSON_ZIP, GAMES_ZIP}
    status, out, err = run(capsys, "--to", to, "--mirror", "http://127.0.0.1:1", "--any-digest")
    assert (status, err) == (0, "")  # nothing is missing: no server is asked
    assert "Missing" not in out


def test_an_unknown_archive_is_refused_unless_allowed(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    with serving(whole_release) as server:
        status, _, err = run(capsys, "--to", to, "--mirror", server.url)
        assert status == 2
        assert f"{JSON_ZIP} is valid, but not the known file of that name: its SHA-256 is " in err
        assert "take it by --any-digest" in err
        assert game_files(to) == []
        assert list((to / "archives").iterdir()) == []
        run(capsys, "--to", to, "--mirror", server.url, "--any-digest")
        game_files(to)[0].unlink()
        assert run(capsys, "--to", to, "--mirror", server.url)[0] == 2  # nor is it taken from where it lies
        assert len(game_files(to)) == 5


def test_a_damaged_game_is_restored_from_the_archives(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    with serving(whole_release) as server:
        run(capsys, "--to", to, "--mirror", server.url, "--any-digest")
    game = game_files(to)[2]
    intact = game.read_bytes()
    game.write_bytes(intact[:1000])
    status, out, _ = run(capsys, "--to", to, "--check")
    assert status == 1
    assert f"1 damaged:\n  {game} is not a valid ALFWorld game: it is not JSON" in out
    status, out, err = run(capsys, "--to", to, "--mirror", "http://127.0.0.1:1", "--any-digest")
    assert (status, err) == (0, "")
    assert "New games: 1; there already: 5." in out
    assert game.read_bytes() == intact


@pytest.mark.parametrize("ranges", [True, False], ids=["from there", "from the beginning"])
def test_a_broken_download_is_resumed(whole_release, ranges, tmp_path, capsys):
    requested = [None, "bytes=200000-", "bytes=300000-"]
    with serving(whole_release) as server:
        server.ranges = ranges
        server.breaks = [200_000, 100_000 if ranges else 300_000]
        status, _, err = run(capsys, "--to", tmp_path / "data", "--mirror", f"{server.url}/moved", "--any-digest")
        assert (status, err) == (0, "")
        assert server.log == [*((JSON_ZIP, expected) for expected in requested), (GAMES_ZIP, None)]
    for name in (JSON_ZIP, GAMES_ZIP):
        assert (tmp_path / "data" / "archives" / name).read_bytes() == (whole_release / name).read_bytes()


def test_a_server_that_breaks_without_an_end_is_given_up_and_nothing_is_lost(whole_release, tmp_path, capsys):
    part = tmp_path / "data" / "archives" / f"{JSON_ZIP}.part"
    with serving(whole_release) as server:
        server.breaks = [200_000, 0]
        status, _, err = run(capsys, "--to", tmp_path / "data", "--mirror", server.url, "--any-digest")
        assert status == 2
        assert f"Cannot fetch {server.url}/{JSON_ZIP}: the connection broke off. The same command continues" in err
        assert part.read_bytes() == (whole_release / JSON_ZIP).read_bytes()[:200_000]
        status, _, err = run(capsys, "--to", tmp_path / "data", "--mirror", server.url, "--any-digest")
        assert (status, err) == (0, "")
        assert server.log[2:] == [(JSON_ZIP, "bytes=200000-"), (GAMES_ZIP, None)]


@pytest.mark.parametrize("surplus", [b"", b"more than the file has"], ids=["all of it", "more than that"])
def test_a_part_that_is_no_shorter_than_the_file(whole_release, surplus, tmp_path, capsys):
    """A kill between the last byte and the new name leaves all of it; more is not of this file."""
    part = tmp_path / "data" / "archives" / f"{JSON_ZIP}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes((whole_release / JSON_ZIP).read_bytes() + surplus)
    with serving(whole_release) as server:
        status, _, err = run(capsys, "--to", tmp_path / "data", "--mirror", server.url, "--any-digest")
        assert (status, err) == (0, "")
        again = [(JSON_ZIP, None)] if surplus else []
        assert server.log == [(JSON_ZIP, f"bytes={part_size(whole_release, surplus)}-"), *again, (GAMES_ZIP, None)]
    assert not part.exists()


def part_size(release, surplus):
    return (release / JSON_ZIP).stat().st_size + len(surplus)


def flip_a_byte(file, position):
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


def test_a_damaged_archive_is_named_removed_and_fetched_again(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    intact = (whole_release / GAMES_ZIP).read_bytes()
    flip_a_byte(whole_release / GAMES_ZIP, 5000)
    with zipfile.ZipFile(whole_release / GAMES_ZIP) as archive:
        first = archive.namelist()[0]
    with serving(whole_release) as server:
        status, _, err = run(capsys, "--to", to, "--mirror", server.url, "--any-digest")
        assert status == 2
        assert f"{GAMES_ZIP}.part is not a valid zip file: {first}: Bad CRC-32" in err
        assert f"It came from {server.url}/{GAMES_ZIP} and was removed" in err
        assert {path.name for path in (to / "archives").iterdir()} == {JSON_ZIP}
        assert game_files(to) == []
        (whole_release / GAMES_ZIP).write_bytes(intact)
        assert run(capsys, "--to", to, "--mirror", server.url, "--any-digest")[0] == 0


def test_any_damage_to_an_archive_is_a_value_error(tmp_path):
    file, choice = tmp_path / "some.zip", random.Random(0)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"folder/{number}", choice.randbytes(300))
    intact, errors = file.read_bytes(), []
    for _ in range(200):
        damaged = bytearray(intact)
        damaged[choice.randrange(len(intact))] ^= choice.randrange(1, 256)
        file.write_bytes(damaged if choice.random() < 0.8 else intact[: choice.randrange(len(intact))])
        try:
            check_archive(file, lambda *_: None)
        except ValueError as error:
            errors.append(str(error))
    assert len(errors) > 160  # the others are in dates, attributes and the like
    assert {message.partition(" zip file: ")[0] for message in errors} == {f"{file} is not a valid"}


def test_an_archive_that_unpacks_without_end_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("bomb", bytes(2**28 + 1))
    with pytest.raises(ValueError, match="unpacks to 268,435,457 bytes, more than 100 times its size"):
        check_archive(tmp_path / "bomb.zip", pytest.fail)


def test_a_server_that_sends_too_much_is_given_up(whole_release, tmp_path):
    with serving(whole_release) as server:
        url, target = f"{server.url}/{JSON_ZIP}", tmp_path / JSON_ZIP
        with pytest.raises(DownloadError, match="sends more than 100,000 bytes"):
            fetch(url, target, pytest.fail, lambda *_: None, max_bytes=100_000)
    assert target.with_name(f"{JSON_ZIP}.part").stat().st_size == 0


@pytest.mark.parametrize("length", ["9" * 5000, "-5", "three"])
def test_a_length_that_is_none_is_not_believed(length, tmp_path):
    def send(listening):
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc".encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=send, args=(listening,)).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/file"
        fetch(url, tmp_path / "file", lambda _: None, lambda *_: None, max_bytes=100)
    assert (tmp_path / "file").read_bytes() == b"abc"


def test_an_archive_that_was_damaged_since_is_named_and_fetched_again(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    with serving(whole_release) as server:
        run(capsys, "--to", to, "--mirror", server.url, "--any-digest")
        flip_a_byte(to / "archives" / GAMES_ZIP, 5000)
        status, out, _ = run(capsys, "--to", to, "--check")
        assert status == 1
        assert f"1 damaged:\n  {to / 'archives' / GAMES_ZIP}" in out
        assert run(capsys, "--to", to, "--mirror", server.url, "--any-digest")[0] == 0
        assert server.log == [(JSON_ZIP, None), (GAMES_ZIP, None), (GAMES_ZIP, None)]


def test_without_network_the_message_names_the_address_and_the_remedy(tmp_path, capsys):
    status, out, err = run(capsys, "--to", tmp_path / "data", "--mirror", "http://127.0.0.1:1/releases/")
    assert status == 2
    assert "Missing games: 4,027." in out
    assert f"Cannot fetch http://127.0.0.1:1/releases/{JSON_ZIP}: " in err
    assert "Connection refused" in err
    assert "'hgpo-gym data alfworld --from FOLDER' with the folder that has the two files, or json_2.1.1" in err
    for archive in dataset.ARCHIVES:
        assert archive.url in err


def test_two_processes_do_not_change_a_folder_at_once(tmp_path, capsys):
    with only_process(tmp_path):
        status, _, err = run(capsys, "--to", tmp_path, "--mirror", "http://127.0.0.1:1")
    assert status == 2
    assert f"Another hgpo-gym data is at work in {tmp_path}: wait until it is done." in err


# ---- taking games from folders and archives


def test_games_are_copied_from_a_folder(alfworld_data, tmp_path, capsys):
    split = alfworld_data / "json_2.1.1" / "valid_seen"
    status, out, err = run(capsys, "--from", split, "--to", tmp_path / "data")
    assert (status, err) == (0, "")
    assert re.search(r"^all +0/3,553 +140/140 +0/134 +0/200$", out, flags=re.MULTILINE)
    copied, source = (find_games(folder, "valid_seen") for folder in (tmp_path / "data", alfworld_data))
    assert copied.task_ids == source.task_ids
    for task_id in source.task_ids[::20]:
        assert copied.games[task_id].file.read_bytes() == source.games[task_id].file.read_bytes()
    status, out, err = run(capsys, "--from", split, "--to", tmp_path / "data")
    assert (status, err) == (0, "")
    assert "New games: 0;" in out


def test_games_are_extracted_from_archives(release, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "a"))
    status, out, err = run(capsys, "--from", release)
    assert (status, err) == (0, "")
    assert "New games: 6; there already: 0." in out
    one_by_one = ["--from", release / JSON_ZIP, "--from", release / GAMES_ZIP]
    status, out, err = run(capsys, *one_by_one, "--to", tmp_path / "b" / "json_2.1.1")
    assert (status, err) == (0, "")
    assert find_games(tmp_path / "b", "valid_train").task_ids == find_games(tmp_path / "a", "valid_train").task_ids
    assert len(game_files(tmp_path / "b")) == 6  # alfworld does not play the others
    assert {path.name for path in (tmp_path / "b" / "json_2.1.1").iterdir()} == {"valid_seen", "valid_train"}


def test_of_several_versions_of_the_games_the_newest_is_used(release, tmp_path, capsys):
    newest = release / "json_2.1.10_tw-pddl.zip"  # 2.1.3 is of release 0.4.2
    (release / GAMES_ZIP).rename(newest)
    for older in (GAMES_ZIP, "json_2.1.3_tw-pddl.zip"):
        (release / older).write_bytes(b"not even read")
    status, out, err = run(capsys, "--from", release, "--to", tmp_path)
    assert (status, err) == (0, "")
    assert sorted(re.findall("Taking (.*)[.]", out)) == sorted(map(str, [release / JSON_ZIP, newest]))
    assert "New games: 6; there already: 0." in out


def test_an_added_game_goes_into_the_existing_split(alfworld_data, tmp_path, capsys):
    run(capsys, "--from", alfworld_data / "json_2.1.1" / "valid_seen", "--to", tmp_path)
    lost = game_files(tmp_path)[7]
    lost.unlink()
    notes = tmp_path / "json_2.1.1" / "valid_seen" / "notes.txt"
    notes.write_text("mine")
    status, out, err = run(capsys, "--from", alfworld_data / "json_2.1.1" / "valid_seen", "--to", tmp_path)
    assert (status, err) == (0, "")
    assert "New games: 1; there already: 139." in out
    assert lost.exists()
    assert notes.read_text() == "mine"


def test_damaged_games_are_named_and_left_out(release, tmp_path, capsys):
    run(capsys, "--from", release, "--to", tmp_path / "source")
    cut, lonely, *_ = game_files(tmp_path / "source" / "json_2.1.1" / "valid_seen")
    cut.write_bytes(cut.read_bytes()[:1000])
    lonely.with_name(TRAJECTORY).unlink()
    status, out, _ = run(capsys, "--from", tmp_path / "source", "--to", tmp_path / "data")
    assert status == 1
    assert "New games: 4; there already: 0." in out
    assert "2 damaged and left out:" in out
    cut_place, lonely_place = (file.relative_to(tmp_path / "source" / "json_2.1.1") for file in (cut, lonely))
    assert f"{cut_place}: it is not JSON" in out
    assert f"{lonely_place}: there is no {TRAJECTORY} beside it" in out
    assert len(find_games(tmp_path / "data", "valid_seen").task_ids) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "nowhere does not exist"),
        ("empty", r"No ALFWorld games in .*empty: expected <split>/<task>/<trial>/game.tw-pddl and traj_data.json"),
        ("no.zip", r"no.zip is not a valid zip file: its list of members: File is not a zip file"),
    ],
)
def test_sources_without_games_are_explained(source, message, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.zip").write_text("not a zip file")
    status, _, err = run(capsys, "--from", tmp_path / source, "--to", tmp_path / "data")
    assert status == 2
    assert re.search(message, err)


def test_two_archives_with_the_same_game_are_not_mixed(release, tmp_path, capsys):
    other = release / "json_other_tw-pddl.zip"  # no version in its name, or the newest would be taken
    other.write_bytes((release / GAMES_ZIP).read_bytes())
    status, _, err = run(capsys, "--from", release, "--to", tmp_path / "data")
    assert status == 2
    assert f"{release / GAMES_ZIP} and {other} both have json_2.1.1/valid_seen/" in err


KILLED_WHILE_INSTALLING = """
import contextlib, os, signal, sys
from pathlib import Path
from hgpo_gym.envs.alfworld.data.dataset import ALFWorldData
class Killer:
    line = print
    @contextlib.contextmanager
    def stage(self, description, *, lines=True):
        def tick(done, *_):
            if description == "Installing valid_train" and done == 50:
                os.kill(os.getpid(), signal.SIGKILL)
        yield tick
ALFWorldData(Path(sys.argv[2]), Killer()).take([Path(sys.argv[1])])
"""


def test_a_process_killed_while_it_installs_leaves_nothing_that_looks_complete(alfworld_data, tmp_path, capsys):
    command = [sys.executable, "-c", KILLED_WHILE_INSTALLING, str(alfworld_data), str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    assert len(find_games(tmp_path, "valid_seen").task_ids) == 140
    with pytest.raises(ValueError, match="Unknown split 'valid_trai'"):  # of those that are there
        find_games(tmp_path, "valid_trai")
    with pytest.raises(FileNotFoundError):
        find_games(tmp_path, "valid_train")
    status, out, err = run(capsys, "--from", alfworld_data, "--to", tmp_path)
    assert (status, err) == (0, "")
    assert "New games: 200; there already: 140." in out
    assert {path.name for path in (tmp_path / "json_2.1.1").iterdir()} == {"valid_seen", "valid_train"}


# ---- looking and compiling


def test_check_changes_nothing(release, tmp_path, capsys):
    status, out, err = run(capsys, "--to", tmp_path / "data", "--check")
    assert (status, err) == (1, "")
    assert re.search(r"^all +0/3,553 +0/140 +0/134 +0/200$", out, flags=re.MULTILINE)
    assert not (tmp_path / "data").exists()
    run(capsys, "--from", release, "--to", tmp_path / "data")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    status, out, err = run(capsys, "--to", tmp_path / "data", "--check")
    assert (status, err) == (1, "")
    assert "Missing games: 4,021." in out
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_check_is_for_itself(tmp_path, capsys):
    status, _, err = run(capsys, "--to", tmp_path, "--check", "--compile")
    assert status == 2
    assert "--check changes nothing: leave out --from, --mirror and --compile." in err


def test_every_game_is_compiled_once_and_those_that_cannot_are_named(whole_release, tmp_path, capsys):
    to = tmp_path / "data"
    run(capsys, "--from", whole_release, "--to", to)
    strange = game_files(to)[0]
    content = json.loads(strange.read_text())
    strange.write_text(json.dumps({**content, "pddl_domain": content["pddl_domain"] + "(another-rule)"}))
    status, out, _ = run(capsys, "--to", to, "--compile")
    assert status == 1
    assert f"Compiled games in {tmp_path}/cache/alfworld: new 5; there already: 0." in out
    assert f"1 not compiled:\n  {strange}: The game's PDDL domain is not one that the native engine knows" in out
    entries = list((tmp_path / "cache" / "alfworld").glob("*/*.json"))
    assert len(entries) == 5
    entries[0].write_bytes(entries[0].read_bytes()[:-10])
    strange.write_text(json.dumps(content))
    status, out, err = run(capsys, "--to", to, "--compile")
    assert (status, err) == (0, "")
    assert "new 2; there already: 4." in out


def test_the_command_needs_neither_torch_nor_hydra(tmp_path):
    code = (
        "import sys; from hgpo_gym.cli.main import main\n"
        f"try: main(['data', 'alfworld', '--check', '--to', {str(tmp_path)!r}])\n"
        "except SystemExit as exit: assert exit.code == 1\n"
        "heavy = {'torch', 'transformers', 'hydra', 'textworld', 'alfworld', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---- the index of a folder


@pytest.fixture
def linked(alfworld_data, tmp_path):
    """A folder with the 140 games of valid_seen as links, each of which can be replaced."""
    folder = tmp_path / "games" / "valid_seen"
    source = alfworld_data / "json_2.1.1" / "valid_seen"
    for game in game_files(source):
        place = folder / game.parent.relative_to(source)
        place.mkdir(parents=True)
        for file in (game, game.with_name(TRAJECTORY)):
            (place / file.name).symlink_to(file)
    return folder.parent


def rename_problem(game, name):
    """Change a game's text, and so its id, keeping its size and modification time."""
    stat, text = game.stat(), game.read_text()
    changed = re.sub(
        r"\(problem (\w+)", lambda match: f"(problem {name:{len(match[1])}.{len(match[1])}}", text, count=1
    )
    assert changed != text
    game.unlink()
    game.write_text(changed)
    os.utime(game, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert game.stat().st_size == stat.st_size


def index_file():
    (file,) = Path(os.environ["HGPO_GYM_CACHE"], "alfworld", "folders").iterdir()
    return file


def listed(data):
    return find_games(data, "valid_seen").task_ids


def test_only_new_and_changed_files_are_read_again(linked):
    before = listed(linked)
    changed, removed, *_ = game_files(linked)
    rename_problem(changed, "another")
    assert listed(linked) == before  # size and time are as they were: it was not read
    os.utime(changed)
    after = listed(linked)
    assert len(set(before) - set(after)) == len(set(after) - set(before)) == 1
    removed.unlink()
    assert len(listed(linked)) == 139
    new = removed.parent.parent / "new trial"
    removed.parent.rename(new)
    (new / GAME).write_bytes(changed.read_bytes().replace(b"(problem another", b"(problem andmore"))
    assert len(listed(linked)) == 140
    assert len(json.loads(index_file().read_bytes().partition(b"\n")[2])) == 140


def test_a_changed_trajectory_is_read_again(linked):
    listed(linked)
    trajectory = game_files(linked)[0].with_name(TRAJECTORY)
    content = trajectory.read_bytes()
    trajectory.unlink()
    with pytest.raises(ValueError, match=f"there is no {TRAJECTORY} beside it"):
        listed(linked)
    trajectory.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{trajectory} is not a valid ALFWorld game: it is not JSON"):
        listed(linked)
    trajectory.write_bytes(content)
    assert len(listed(linked)) == 140


def test_a_damaged_index_is_ignored(linked):
    before = listed(linked)
    file = index_file()
    intact = file.read_bytes()
    stale = intact.replace(intact.split()[2], b"0" * 16, 1)
    for damaged in (b"", intact[: len(intact) // 2], intact.replace(b"look_at", b"cook_at"), stale, b"\xff" * 100):
        file.write_bytes(damaged)
        assert listed(linked) == before
        assert file.read_bytes() == intact


def test_several_processes_list_a_folder_at_once(linked):
    code = (
        "import sys; from hgpo_gym.envs.alfworld.splits import find_games\n"
        "print(find_games(sys.argv[1], 'valid_seen').task_ids)"
    )
    command = [sys.executable, "-c", code, str(linked)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    outputs = {process.communicate()[0].strip() for process in processes}
    assert outputs == {str(listed(linked))}
    assert [path.name for path in index_file().parent.iterdir()] == [index_file().name]


def test_an_index_that_cannot_be_written_is_done_without(linked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HGPO_GYM_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="HGPO_GYM_CACHE"):
        assert len(listed(linked)) == 140
