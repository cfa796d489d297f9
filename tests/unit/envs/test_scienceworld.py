"""ScienceWorld: the texts of the original, and a Java virtual machine that fails, ends and is shared."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest

pytest.importorskip("scienceworld")

from hgpo_gym.envs.registration import make
from hgpo_gym.envs.scienceworld import jvm
from hgpo_gym.envs.scienceworld.actions import choices, parse, seen_actions
from hgpo_gym.envs.scienceworld.expert import Expert, translated
from hgpo_gym.envs.scienceworld.game import References, SimulatorState
from hgpo_gym.envs.scienceworld.tasks import VARIATIONS, expanded, task_ids
from tests.support.golden import load

ID = "hgpo_gym/ScienceWorld-v0"
EPISODES = load("scienceworld")["episodes"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Each test leaves no machine, folder, or thread."""
    threads = threading.active_count()
    yield
    assert jvm._MACHINES.jvm is None
    assert not folders(os.getpid())
    assert threading.active_count() == threads


def folders(pid):
    """The temporary folders of machines whose parent was `pid`; none of other processes."""
    return list(Path(tempfile.gettempdir()).glob(f"hgpo_gym-scienceworld-{pid}-*"))


def machine():
    return jvm._MACHINES.jvm.process.pid


def digest(texts):
    return [len(texts), sha256("\n".join(texts).encode()).hexdigest()[:16]]


def begin(episode):
    env = make(
        ID, split="all", simplifications=episode["simplifications"], reward="score", parity=True, expert=True,
        max_episode_steps=1000,
    )  # fmt: skip
    observation, info = env.reset(options={"task_id": f"{episode['task']}-{episode['variation']}"})
    assert (observation, info["task"]) == (episode["first"], episode["description"])
    assert digest(info["valid_actions"]) == episode["valid"]
    assert list(env.unwrapped._episode.expert.path) == episode["gold"]
    return env


def replay(episodes):
    """Play recorded episodes in turns, at random."""
    envs = [begin(episode) for episode in episodes]
    turns = [number for number, episode in enumerate(episodes) for _ in episode["steps"]]
    random.Random(0).shuffle(turns)
    waiting = [iter(episode["steps"]) for episode in episodes]
    compared = 0
    for number in turns:
        action, text, reward, score, done, _, _, *valid = next(waiting[number])
        if envs[number].unwrapped._episode.simulator.completed:
            continue  # the original goes on after the end
        observation, paid, terminated, _, info = envs[number].step(action)
        actual = observation, round(100 * paid), info["score"], terminated, digest(info["valid_actions"])
        assert actual == (text, reward, score, done, valid), (episodes[number]["task"], action)
        compared += 1
    for env in envs:
        env.close()
    return compared


@pytest.mark.promise("ScienceWorld's texts, rewards and valid actions are those recorded of the original.")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_recorded_episodes_are_reproduced_in_any_order(java):
    assert replay(EPISODES) == 253


def test_two_short_recorded_episodes(java):
    assert replay([episode for episode in EPISODES if episode["task"].startswith(("lifespan", "find-animal"))]) == 16


def play(kill=None, count=6, steps=4):
    """Random episodes side by side; in the middle the machine gets a signal."""
    tasks = ("grow-fruit-2", "find-animal-3", "power-component-1")
    generators = [random.Random(number) for number in range(count)]
    envs, infos, walks = [], [], []
    for number in range(count):
        simplifications, actions = (("", "valid"), ("easy", "seen"))[number % 2]
        envs.append(make(ID, split="all", simplifications=simplifications, actions=actions))
        observation, info = envs[-1].reset(options={"task_id": tasks[number % len(tasks)]})
        infos.append(info)
        walks.append([(observation, info["admissible_actions"])])
    for step in range(steps):
        for number, env in enumerate(envs):
            if kill and (step, number) == (2, count // 3):
                os.kill(machine(), kill)
            if actions := infos[number]["admissible_actions"]:
                observation, _, _, _, infos[number] = env.step(generators[number].choice(actions))
                walks[number].append((observation, infos[number]["admissible_actions"]))
    for env in envs:
        env.close()
    return walks


@pytest.mark.promise("A Java virtual machine that dies or hangs changes no text of ScienceWorld.")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_machine_that_is_killed_or_stopped_changes_no_text(java, monkeypatch):
    undisturbed = play()
    monkeypatch.setattr(jvm, "READ_TIMEOUT", 15.0)
    for number in (signal.SIGKILL, signal.SIGSTOP):
        with pytest.warns(UserWarning, match="Java virtual machine died or did not answer"):
            assert play(number) == undisturbed


@pytest.mark.slow
def test_a_snapshot_of_growing_plants_goes_on_alike(java):
    env = make(ID, tasks="grow-fruit", actions="valid").unwrapped
    env.reset(options={"task_id": "grow-fruit-3"})
    for _ in range(3):
        env.step("wait1")
    snapshot = env.snapshot()
    walks = []
    for _ in range(2):
        _, info = env.restore(snapshot)
        walk = [info["admissible_actions"]]
        for action in ("open door to kitchen", "go kitchen", "wait"):
            observation, _, _, _, info = env.step(action)
            walk += [observation, info["admissible_actions"]]
        walks.append(walk)
    env.close()
    assert walks[0] == walks[1]


ODD = (
    "", "\x00", "\ud800", "open \ud83d", "🦊" * 50, "x" * 1_000_000, "look at (((", "9" * 500, "task\ntask", "-1",
    "%s{}\\",
)  # fmt: skip


def hostile(count, admissible=()):
    """Texts that are odd, random, or now and then admissible."""
    generator = random.Random(0)
    parts = (
        "open ",
        "door",
        "focus on ",
        " to ",
        "wait",
        "\ud800",
        "\x00",
        "🦊",
        "(((",
        "\n",
        "0",
        "é",
        " in ",
        "%s",
        "\\",
    )
    yield from ODD
    for number in range(count - len(ODD)):
        if admissible and number % 200 == 0:
            yield generator.choice(admissible)
        else:
            yield "".join(generator.choices(parts, k=generator.randrange(1, 6)))


@pytest.mark.slow
@pytest.mark.parametrize(("actions", "count"), [("seen", 2_000), ("free", 300)])
def test_a_snapshot_restores_what_hostile_actions_changed(java, actions, count):
    """With `free` each of them goes to the simulator."""
    env = make(ID, tasks="boil", actions=actions, observation="full", max_episode_steps=10**6).unwrapped
    observation, info = env.reset(options={"task_id": "boil-1"})
    snapshot = env.snapshot()
    for action in hostile(count, info["admissible_actions"]):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.restore(snapshot)
    for _ in range(2):
        restored, found = env.restore(snapshot)
        assert (restored, found["admissible_actions"]) == (observation, info["admissible_actions"])
        assert env.step("look at art studio" if actions == "free" else "wait1")[4]["action_valid"]
    env.close()


@pytest.mark.slow
def test_odd_texts_are_answered_and_a_question_by_a_number(java):
    env = make(ID, split="all", max_episode_steps=1000)
    env.reset(options={"task_id": "boil-0"})
    for action in ODD:
        observation, reward, terminated, _, _ = env.step(action)
        assert isinstance(observation, str)
        assert (reward, terminated) == (0.0, False)
    observation, *_, info = env.step("open door")
    assert observation.startswith("Ambiguous request")
    observation, *_, info = env.step("0")
    assert (observation, info["action_valid"]) == ("The door is now open.", True)
    env.close()


PROGRAM = """
import os, sys, time
import hgpo_gym as hg
from hgpo_gym.envs.scienceworld import jvm
env = hg.make("hgpo_gym/ScienceWorld-v0")
env.reset(options={"task_id": "find-animal-1"})
print(jvm._MACHINES.jvm.process.pid, jvm._MACHINES.jvm._folder, flush=True)
{end}
"""
FORK = """
pid = os.fork()
if pid == 0:
    print(env.step("inventory")[0], flush=True)  # in a separate Java virtual machine
    env.close()
    os._exit(0)
os.waitpid(pid, 0)
print(env.step("inventory")[0], flush=True)
env.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise ValueError", "del env", FORK, "time.sleep(600)"])
def test_nothing_is_left_when_a_process_ends(java, end):
    program = PROGRAM.replace("{end}", end)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        pid, folder = process.stdout.readline().decode().split()
        if "sleep" in end:
            process.kill()
        output, _ = process.communicate(timeout=100)
    if end == FORK:
        first, second = output.decode().split("In your inventory")[1:]
        assert first == second
    while is_running(int(pid)):  # the test's limit of time ends this
        time.sleep(0.05)
    assert not Path(folder).exists()


def is_running(pid):
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_splits_are_the_simulators_quarters():
    sizes = {split: len(task_ids(split, None)) for split in ("train", "dev", "test", "all")}
    assert sizes == {"train": 3592, "dev": 1796, "test": 1819, "all": 7207}
    assert task_ids("dev", "identify-life-stages-2") == ("identify-life-stages-2-4", "identify-life-stages-2-5")


@pytest.mark.slow
def test_the_table_of_variations_is_the_simulators(java):
    def ask(machine):
        simulator = machine.new_simulator()
        counts = {name: simulator.getTaskMaxVariations(name) for name in VARIATIONS}
        simulator.load("boil", 0, "", False)
        return counts, [simulator.getVariationsTrain().size(), simulator.getVariationsTest().size()]

    counts, boil = jvm.run_in_jvm(ask)
    jvm.release_game(None)
    assert counts == VARIATIONS
    assert boil == [14, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"tasks": ["boill"]}, "Unknown task type of ScienceWorld 'boill'. Did you mean 'boil'"),
        ({"actions": "seeen"}, "Did you mean 'seen'"),
        ({"simplifications": "esay"}, "Unknown simplification 'esay'. Did you mean 'easy'"),
        ({"simplifications": "noElectricalAction"}, "the task type power-component needs electrical actions"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(ID, **options)


def test_without_java_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="apt-get install default-jre-headless"):
        make(ID).reset()


def test_easy_keeps_electricity_where_it_is_needed():
    assert "noElectricalAction" in expanded("easy", "boil")
    assert "noElectricalAction" not in expanded("easy", "test-conductivity")
    assert expanded("easy,openContainers", "boil").endswith(",openContainers")


def test_actions_are_read_and_those_with_seen_objects_chosen():
    assert parse("pour cup containing paint into bowl") == ("pour OBJ in OBJ", ("cup containing paint", "bowl"))
    assert parse("go to kitchen") == parse("go kitchen")
    listed = (
        "look around", "use lamp on door", "open kitchen door", "open freezer", "use lamp on pot", "connect a to b",
    )  # fmt: skip
    room, task = "A door to the kitchen. A lamp. A pot. A and b.", "Heat the pot."
    chosen = seen_actions(listed, room, task, electrical=False)
    assert chosen == ("look around", "open kitchen door", "use lamp on pot", "use lamp on door")
    assert "connect a to b" in seen_actions(listed, room, task, electrical=True)
    assert choices("Ambiguous request: ...\n0:\topen A\n1:\topen B\n") == {"0": "open A", "1": "open B"}


def test_the_expert_is_lost_after_another_action_that_takes_time():
    expert = Expert(("open door", "go kitchen"))
    assert expert.after("open door to hall", advice="open door to hall").next_action == "go kitchen"
    assert expert.after("inventory", advice="open door").next_action == "open door"
    assert expert.after("eat apple", advice="open door").next_action == ""
    state = SimulatorState("", 0, False, references=References({}, {}))
    assert translated(expert, state, ("go kitchen",))[1] == "go kitchen"  # the door is open


def test_of_objects_of_a_kind_the_expert_takes_the_one_that_its_solution_names():
    references = References(
        {"focus on adult tree": (1,), "focus on tree in pot 7": (2,)},
        {1: frozenset(("tree", "adult tree")), 2: frozenset(("tree", "tree in pot 7"))},
    )
    state = SimulatorState("", 0, False, references=references)
    choices = tuple(references.objects_of)
    for solution, expected in (("tree in pot 7", choices[1]), ("tree in the greenhouse", choices[0])):
        assert translated(Expert((f"focus on {solution}",)), state, choices)[1] == expected


def test_the_expert_connects_in_the_direction_that_is_listed():
    """Contacts are `on` a thing in the simulator, and of a foil it lists no terminals."""
    action = "connect anode in lamp to red wire terminal 1"
    references = References(
        {action: (1, 3), "connect anode in bell to red wire terminal 1": (2, 3), "connect foil to red wire": (4, 3)},
        {
            1: frozenset(("anode", "anode on lamp")),
            2: frozenset(("anode", "anode on bell")),
            3: frozenset(("red wire terminal 1",)),
            4: frozenset(("foil",)),
        },
    )
    state, choices = SimulatorState("", 0, False, references=references), tuple(references.objects_of)
    for solution, expected in (
        ("connect red wire terminal 1 to anode in lamp", action),
        ("connect red wire terminal 1 to anode in bell", choices[1]),
        ("connect foil terminal 2 to red wire terminal 1", choices[2]),
    ):
        assert translated(Expert((solution,)), state, choices)[1] == expected
    for number in range(8):  # of both directions the solution's own, whatever the hashes of texts are
        both = (f"connect foil to wire {number}", f"connect wire {number} to foil")
        assert [translated(Expert((action,)), state, both)[1] for action in both] == list(both)


def test_contacts_are_seen_where_the_task_is_electrical():
    both = ("connect anode in bell to wire terminal 1", "connect wire terminal 1 to anode in bell")
    assert seen_actions(both, "A bell. A wire.", "Ring it.", electrical=True) == both[:1]
    action = "connect anode in battery to terminal 1 in wire"
    for electrical in (True, False):
        assert (
            action in seen_actions([action], "A battery. A wire.", "Light it.", electrical=electrical)
        ) is electrical
