"""Settings that do not go together are refused with the reason and a remedy, before anything is written."""

import pytest

from hgpo_gym.config.compose import load_run
from hgpo_gym.processes import Processes
from hgpo_gym.progress import Progress
from hgpo_gym.trainers.run import Run

AHEAD = "rollout.overlap=true rollout.staleness=1"
LORA = "model.lora.rank=4"
PLAN = "algo=hiper_hae prompt=plan"
TEAM = "team=planner_actor team.plans=[red,blue]"
REFUSED = {
    # Rollouts beside the update
    "model=features rollout.overlap=true": r"overlap=true with rollout\.staleness=0: .* Set rollout\.staleness=1",
    f"model=tabular {AHEAD}": r"rollout\.overlap=true: a table makes room",
    f"model=tiny algo=gae sampler=dynamic {AHEAD}": r"sampler=dynamic: it replaces groups .* algo=gae need",
    f"model=tiny algo=empg sampler=dynamic {AHEAD}": r"sampler=dynamic: .* algo=empg need the policy as the update",
    f"model=tiny engine=vllm engine.sleep_level=1 {AHEAD}": r"engine\.sleep_level=1: an engine that plays",
    f"algo=sb3_ppo {AHEAD}": r"rollout\.staleness=1: algo=sb3_ppo plays by its present weights alone",
    # Samplers
    "sampler=dynamic sampler.rounds=0": r"sampler\.rounds=0: an iteration has to play 1 round",
    "sampler=tree sampler.leaves=9": r"leaves=9: a tree has 1 \+ nodes",
    "sampler=tree rollout.group_size=5": r"rollout\.group_size=5: .* trees . leaves = 6 episodes",
    "sampler=tree rollout.group_size=6 sampler.level=3": "level=3: the context keys have levels 0 to 2",
    f"sampler=best_plan rollout.group_size=5 {TEAM}": r"group_size=5: .* trials . executions = 8 episodes",
    "algo=vineppo sampler=in_order": "needs the column 'value'.*the sampler `restarts` records it",
    "algo=vineppo shaping=cost shaping.costs={go.back:0.1}": "shaping=cost: sampler=restarts samples values of the env",
    "algo=vineppo sampler.gamma=0.5": r"algo\.gamma=1\.0, sampler\.gamma=0\.5: .*one discount",
    "algo=empg algo.base=vineppo sampler=restarts sampler.gamma=0.5": (
        r"algo\.base_options\.gamma=1\.0, sampler\.gamma=0\.5: .*vineppo need one discount"
    ),
    "algo=gae sampler=restarts sampler.share=0.5": "'gae' needs the column 'value' at every step, row 1",
    # Shaping
    "model=tiny shaping=overlong shaping.buffer=64": r"shaping\.buffer=64: choose 1 to 32 tokens",
    "model=tabular shaping=cost shaping.costs={*back:0.1}": r"'\*back' is no regular expression",
    "model=tabular shaping=milestones": "after a step, which has no 'milestone'",
    # Plans, teams and adapters
    f"{PLAN} prompt=bare": "needs the column 'boundary', which this batch does not have .*prompt=plan",
    f"{PLAN} prompt.subgoals=[]": r"subgoals=\[\]: with engine\.constrain=admissible there is nothing to choose",
    f"{PLAN} team=actor_checker team.hints=[again]": "team=actor_checker: prompt.subgoals are for an agent by itself",
    f"{TEAM} memory.similarity=0.9": r"memory\.similarity=0\.9 merges .* keys of team=planner_actor depend on messages",
    "memory=notes memory.every=3 memory.similarity=0.9": "keys of memory=notes with its role memory depend on messages",
    f"{PLAN} model=tabular": "model=tabular writes no text for the plans",
    f"{TEAM} team.weights=adapter": r"team\.weights=adapter: model\.lora\.rank=null makes no adapter\. Set a rank",
    f"{TEAM} team.weights=adapter {LORA} engine=vllm": r"engine=vllm has one set of weights\. Set engine=transformers",
    f"{TEAM} team.weights=adapter model=tabular": r"a table has no adapters\. Set team\.weights=shared",
    f"{TEAM} team.weights=adapter model=features": r"team\.weights=adapter: a features policy has no adapters\.",
    f"{TEAM} model=cnn env=sokoban": "team=planner_actor: a cnn reads the map alone",
    f"{TEAM} model=tabular algo=dr_mas algo.statistics_of=7": r"statistics_of=7: team=planner_actor has the roles",
    f"{TEAM} model=tabular algo=salt algo.base=dr_mas +algo.base_options.statistics_of=7": (
        r"algo\.base_options\.statistics_of=7: team=planner_actor has the roles 0 \(planner\), 1 \(actor\)\."
    ),
    "model.quantization=nf4": r"do not train\. Set model\.lora\.rank",
    f"{LORA} model.quantization=nf5": r"Did you mean 'nf4'\?",
    # Objectives and corrections
    "objective.dual_clip=0.5": "dual_clip=0.5: the largest ratio must be above 1",
    "objective=gbpo": "algo=gbpo, or objective=bpo for any other",
    "objective=hispo objective.delta_sequence=1 objective.delta_token=1 correction=token": (
        "objective=hispo weighs trainer against engine itself"
    ),
    "correction=token_mask correction.low=5": r"low=5, high=3\.0",
    # Policies that score actions
    "model=features engine=vllm": r"engine=vllm: a features policy needs no engine; leave out engine=\.",
    "model=features engine.constrain=none": r"constrain=none: a features policy chooses among admissible actions",
    "model=features trainer.precision=bfloat16": "precision=bfloat16: a features policy chooses in float32",
    "model=features algo=gae": "model=features gives a critic no state to read, and algo=gae needs one for",
    "model=tabular warmstart.source=random": r"warmstart\.source=random: a table starts uniform; set it to none\.",
    "model=tabular engine=vllm": r"engine=vllm: a table needs no engine; leave out engine=\.",
    "model=tabular engine.constrain=none": r"engine\.constrain=none: a table chooses among admissible actions",
    "model=tabular trainer.precision=bfloat16": "precision=bfloat16: a table chooses in float32",
    "model=tabular model.level=3": r"model\.level=3: memory\.history_length=2 makes levels 0 to 2\.",
    "model=cnn env=sokoban engine.constrain=none": "a cnn policy chooses among admissible",
    "model=cnn env=sokoban model.channels=1000000": "weights take",
    "model=cnn env=sokoban algo=gae": "model=cnn gives a critic no state to read",
    # Stable-Baselines3
    "algo=sb3_ppo objective=gspo": "objective=gspo: algo=sb3_ppo knows objective=ppo_clip alone",
    "algo=sb3_ppo prompt=plan": r"prompt\.subgoals=\['one', .*: algo=sb3_ppo writes no plans\. Choose a prom",
    # Environments
    "algo=beacon": "^algo=beacon: the column 'milestone' is .* has no 'milestone'",
}
SEVERAL = {
    (
        2,
        f"{TEAM} team.weights=adapter {LORA} distributed=ddp",
    ): "weights=adapter is for one process, 2 were launched",
}
"""The same where so many processes were launched."""


def start(words, count, run_dir):
    """Start a run with these settings in one of `count` processes."""
    processes = Processes()
    processes.count = count
    with Run(load_run([*words.split(), f"run_dir={run_dir}"]), Progress(), processes):
        pass


@pytest.mark.promise("Settings that do not go together are refused with a remedy, before anything is written.")
def test_a_run_refuses_settings_that_do_not_go_together(tmp_path, subtests):
    cases = {(1, words): message for words, message in REFUSED.items()} | SEVERAL
    for number, ((count, words), message) in enumerate(cases.items()):
        with subtests.test(words), pytest.raises(ValueError, match=message):
            start(words, count, tmp_path / str(number))
    assert list(tmp_path.iterdir()) == []
