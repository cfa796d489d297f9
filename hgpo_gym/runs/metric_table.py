"""The table of all numbers in metrics.jsonl, which the report, the health checks and the documentation read."""

from typing import NamedTuple

SHARE, COUNT, SECONDS, NATS = "share, 0 to 1", "count", "seconds", "nats"


class Metric(NamedTuple):
    """A number that a run writes in an iteration.

    Attributes:
        title: the name in tables and on axes.
        unit: the unit of its values.
        meaning: its definition, in a sentence or two.
        good, bad: values of a run that learns, and of one that does not, with their interpretation; may be empty.
    """

    title: str
    unit: str
    meaning: str
    good: str = ""
    bad: str = ""


ROLLOUT = {
    "success": Metric(
        "success",
        SHARE,
        "Episodes of the iteration's first round that were won, on training tasks at the temperature of training.",
        "It rises, with noise: of 64 episodes a share of one half is known to 6 points.",
        "0 from the start: nothing is ever rewarded. Half of its best for several iterations: training goes wrong.",
    ),
    "episode_return": Metric(
        "return", "reward", "Mean sum of an episode's rewards, before shaping and penalties.", "It rises with success."
    ),
    "episode_length": Metric(
        "episode length",
        "steps",
        "Mean steps of an episode.",
        "It falls while success rises, where the task can be done in few steps.",
        "It stays at env.max_episode_steps: no episode ends before its limit.",
    ),
    "valid_action_rate": Metric(
        "valid actions",
        SHARE,
        "Steps whose action the environment understood and admitted.",
        "Above 0.9, and 1 under engine.constrain=admissible.",
        "Below 0.5: the prompt does not fit the model, responses are truncated, or the model was never shown the form.",
    ),
    "first_round_episodes": Metric(
        "episodes of the first round",
        COUNT,
        "Episodes that success, return, length and valid actions are means of: those of the iteration's first round, "
        "of trees their chains, which are not selected.",
    ),
    "steps": Metric("steps", COUNT, "Steps of the environment that were played, in all rounds."),
    "episodes": Metric("episodes", COUNT, "Episodes that were played, in all rounds."),
    "tokens": Metric("tokens", COUNT, "Tokens of the responses that were given, in all rounds."),
    "rounds": Metric(
        "rounds",
        COUNT,
        "How often groups were played: more than once where the sampler plays others in place of uninformative ones.",
        "1 to 3.",
        "As many as the sampler allows: most groups teach nothing.",
    ),
    "groups_kept": Metric("groups kept", COUNT, "Task groups that were learned from."),
    "failed_episodes": Metric(
        "failed episodes",
        COUNT,
        "Attempts at an episode whose environment raised an error or hung, in all rounds. They are played again, "
        "rollout.max_retries times; then their group is left out.",
        "0.",
        "Above 0: hgpo-gym inspect RUN --failures shows the responses and what went wrong.",
    ),
    "prompt_tokens": Metric(
        "prompt tokens",
        "tokens",
        "Mean length of a prompt.",
        "Well below engine.max_prompt_tokens, beyond which prompts are cut.",
    ),
    "prompt_tokens_max": Metric("longest prompt", "tokens", "The length of the longest prompt, after it was cut."),
    "prompt_cached_share": Metric(
        "cached prompt tokens",
        SHARE,
        "Prompt tokens that the engine had read before, in an earlier turn or, with vLLM, in another prompt.",
        "Most of them with memory=conversation.",
        "Near 0 there: raise engine.prefix_cache_tokens, unless the chat template changes earlier turns.",
    ),
    "prompt_tokens_episode": Metric(
        "prompt tokens an episode", "tokens", "Mean over episodes of the tokens of all prompts that the model read."
    ),
    "response_tokens_episode": Metric(
        "response tokens an episode", "tokens", "Mean over episodes of the tokens that the model generated."
    ),
    "notes_length": Metric(
        "length of notes",
        "characters",
        "Mean length of the notes in force after a response, with memory=notes.",
        "Steady, well below what rollout.max_new_tokens leaves beside the action.",
        "0: the agent writes none. Steady growth: notes copy what is seen, and responses are truncated.",
    ),
    "notes_length_max": Metric("longest notes", "characters", "The length of the longest notes."),
    "prompt_cut_share": Metric(
        "cut prompts",
        SHARE,
        "Prompts that were longer than engine.max_prompt_tokens and lost their oldest past steps, their task excepted.",
        "0.",
        "Above 0: the policy does not see what it is meant to; raise engine.max_prompt_tokens or lower memory.window.",
    ),
    "switch_share": Metric(
        "switches",
        SHARE,
        "Steps at which the response takes another subgoal; where responses have a plan (prompt=plan).",
        "0.1 to 0.5: subgoals last several steps.",
        "1: every step is a segment of its own.",
    ),
    "plan_in_form_share": Metric(
        "plans in form",
        SHARE,
        "Responses whose <switch> and <subgoal> can be read. Others keep their subgoal and count as not valid.",
        "Above 0.9.",
        "Below 0.5: the model was never shown the form, or responses are truncated.",
    ),
    "response_tokens": Metric(
        "response tokens",
        "tokens",
        "Mean length of a response, with the token that ends it.",
        "Well below rollout.max_new_tokens.",
        "It grows towards rollout.max_new_tokens, or falls to a few while the prompt asks for reasoning.",
    ),
    "response_tokens_max": Metric("longest response", "tokens", "The length of the longest response."),
    "truncated_fraction": Metric(
        "truncated responses",
        SHARE,
        "Responses that ended at rollout.max_new_tokens and not by themselves; their action is mostly missing.",
        "0, or a few in a thousand.",
        "Above 0.1: raise rollout.max_new_tokens, or use shaping=overlong.",
    ),
    "actions_left_out": Metric(
        "actions left out",
        "actions a step",
        "Of Stable-Baselines3's algorithms: admissible actions beyond those that their network has an output for.",
        "0.",
    ),
}
CREDIT = {
    "advantage_mean": Metric("mean advantage", "advantage", "Mean advantage of the steps.", "Near 0."),
    "advantage_std": Metric(
        "spread of advantages",
        "advantage",
        "Standard deviation of the advantages of the steps.",
        "Below 2 or so with norm=mean_std_norm.",
        "0: nothing is learned.",
    ),
    "advantage_zero_share": Metric(
        "steps without signal",
        SHARE,
        "Steps whose advantage is exactly 0: nothing tells them from the steps that they are compared with.",
        "It rises towards 1 when the tasks are solved.",
        "Near 1 while success is low.",
    ),
    "zero_variance_groups": Metric(
        "zero-variance groups",
        SHARE,
        "Task groups in which every step's advantage is exactly 0: nothing tells their episodes, or steps, apart.",
        "Below 0.5 while there is something to learn; it rises towards 1 when the tasks are solved.",
        "Above 0.9 while success is low: tasks too hard or groups too small; try sampler=dynamic or a warm start.",
    ),
    "group_sizes": Metric(
        "sizes of groups",
        COUNT,
        "For each level of the context keys, the steps that stand in a group of 1, 2, 3 to 4, 5 to 8 and more steps.",
        "Most steps in groups of several.",
        "Most in groups of 1: at that level there is nothing to compare with.",
    ),
}
UPDATE = {
    "loss": Metric(
        "loss",
        "loss",
        "Mean over tokens of what the update makes small: objective, entropy bonus and KL loss. It is no measure of "
        "success: with the first mini-batch's weights the objective is minus the mean advantage.",
        "Small numbers around 0.",
    ),
    "kl_behaviour": Metric(
        "KL to behaviour",
        NATS,
        "Mean over tokens of KL(policy of the rollout, policy in the update), by the estimator k3: how far one "
        "update goes. A token counts 10 at most. Of Stable-Baselines3, its approximation, which has no bound.",
        "1e-5 to 0.03.",
        "Above 0.1: steps too long. Above 1: the policy that was is lost.",
    ),
    "kl_reference": Metric(
        "KL to reference",
        NATS,
        "The same to the weights that the run began with; with trainer.kl_coef above 0.",
        "It grows slowly, to 1 or less.",
        "It jumps, or grows past a few nats: raise trainer.kl_coef or lower trainer.learning_rate.",
    ),
    "entropy": Metric(
        "entropy",
        NATS,
        "Mean over tokens with a choice of the entropy of what they were drawn from.",
        "It falls slowly as success rises, and is near 0 when the tasks are solved.",
        "Near 0 while success is low: the policy always responds the same and no group has a variance.",
    ),
    "clip_fraction": Metric(
        "clip fraction",
        SHARE,
        "Tokens on which the objective's clip, mask, cap or target acted; by PPO's clip they have no gradient.",
        "0 to 0.2.",
        "Above 0.3: most of what was collected goes unused; lower trainer.learning_rate or trainer.update_epochs.",
    ),
    "optimizer_steps": Metric(
        "optimiser steps",
        COUNT,
        "One a mini-batch that has a sample with an advantage. Their number follows from that of episodes "
        "(trainer.mini_batch_episodes), unless trainer.mini_batch_size counts responses.",
        "10 to 100.",
        "Algorithms of a comparison differ much: compare them by trainer.zero_advantage=mask and "
        "trainer.mini_batch_size=null.",
    ),
    "gradient_norm": Metric(
        "gradient norm",
        "norm",
        "Mean over mini-batches of the gradient's length before trainer.max_grad_norm shortens it; 0 where there was "
        "nothing to learn from.",
        "Steady, 0.01 to a few.",
        "Ten times what it was: an update has broken something. Always far above trainer.max_grad_norm: the learning "
        "rate alone decides how far a step goes.",
    ),
    "learning_rate": Metric(
        "learning rate", "learning rate", "Of the last optimiser step; missing where there was none."
    ),
    "mismatch_mean": Metric(
        "mismatch",
        NATS,
        "Mean over tokens of |trainer's - engine's log-probability| of what was drawn, at the same weights.",
        "1e-7 in float32, below 0.02 for an engine in bfloat16.",
        "Above 0.05: the engine has other weights, or another number format.",
    ),
    "mismatch_max": Metric("largest mismatch", NATS, "The largest of them.", "", "Above 1, with mismatch_mean."),
    "mismatch_kl": Metric(
        "mismatch as KL",
        NATS,
        "KL(engine, trainer) at the same weights, by the estimator k3.",
        "Below 1e-3.",
        "Above 0.01: use a correction, or the same number format in both.",
    ),
    "importance_weight": Metric("importance weight", "ratio", "Mean weight of the correction.", "Near 1."),
    "importance_dropped": Metric(
        "tokens dropped", SHARE, "Tokens that the correction gave the weight 0.", "0.", "Above 0.1."
    ),
    "importance_capped": Metric(
        "weights capped", SHARE, "Tokens whose weight reached correction.cap.", "0.", "Above 0.1."
    ),
    "off_policy_dropped": Metric(
        "off-policy tokens", SHARE, "Tokens without a policy loss because of trainer.off_policy_limit.", "0 to 0.1."
    ),
    "capo_fisher_q99": Metric(
        "CAPO's Fisher moment",
        "moment",
        "Of objective=capo: the 0.99 quantile of the tokens' m_F, to choose tau_fisher by.",
    ),
    "capo_hessian_q99": Metric(
        "CAPO's Hessian moment",
        "moment",
        "Of objective=capo: the 0.99 quantile of the tokens' |m_H|, to choose tau_hessian by.",
    ),
    "value_loss": Metric(
        "value loss",
        "squared return",
        "Mean squared difference of the critic's value to its target, while it learns (algo=gae); of "
        "Stable-Baselines3's PPO, that of its value network.",
        "It falls when returns do not change; where success rises to one half, returns spread and it may rise.",
    ),
    "value_explained_variance": Metric(
        "variance explained by values",
        "share, at most 1",
        "1 - var(target - value) / var(target), before the critic learns from these steps.",
        "Above 0. Near 0 where an observation does not show how far the task is done; any negative number where all "
        "episodes go equally well, which leaves nothing to explain.",
        "Below 0 while success is between 0.1 and 0.9: algo.critic.learning_rate or algo.critic.epochs do not suit the "
        "task.",
    ),
    **{
        f"value_{level}_{name}": Metric(title, unit, meaning)
        for level, what in {"low": "of actions within a subgoal", "high": "of subgoals"}.items()
        for name, title, unit, meaning in (
            ("loss", f"{level} value loss", "squared return", f"value_loss of the critic {what} (algo=hiper_hae)."),
            (
                "explained_variance",
                f"variance explained by {level} values",
                "share, at most 1",
                f"value_explained_variance of the critic {what}.",
            ),
        )
    },
}
TIME = {
    "seconds_rollout": Metric(
        "rollout", SECONDS, "Playing the iteration's episodes; with rollout.overlap, waiting until they are played."
    ),
    "seconds_played": Metric(
        "rollout played ahead",
        SECONDS,
        "With rollout.overlap: what playing the episodes took, however much of it beside the update before.",
        "As long as update and evaluation; what is longer is waited for (`seconds_rollout`).",
    ),
    "seconds_advantage": Metric("advantages", SECONDS, "Credit assignment."),
    "seconds_update": Metric("update", SECONDS, "The policy update."),
    "tokens_per_second": Metric(
        "speed",
        "tokens a second",
        "Tokens of prompts and responses that were learned from, by the seconds of the iteration; of all processes.",
        "Steady.",
        "It falls from iteration to iteration: responses or environments get slower.",
    ),
    "memory_gib": Metric(
        "memory",
        "GiB",
        "The most that the main process held so far: in its GPU; without a GPU, in main memory. What "
        "vLLM holds beside torch is not in it.",
        "Some GiB below what there is.",
    ),
    "steps_so_far": Metric("steps so far", COUNT, "Steps of the environment since the run began."),
    "seconds_so_far": Metric(
        "seconds so far", SECONDS, "Of rollout, advantages and update since the run began; evaluations do not count."
    ),
}
PROGRESS = {
    "iteration": Metric("iteration", COUNT, "From 1."),
    "evaluation_success": Metric(
        "evaluation",
        SHARE,
        "Success in the evaluation after the iteration, where there was one.",
        "It follows `success`.",
        "It stays while `success` rises: training tasks are learned by heart.",
    ),
    "evaluation_drop": Metric(
        "fall in evaluation",
        "standard errors",
        "How far that success lies below the best evaluation so far, the one before training among them, in standard "
        "errors of the difference of two shares; 0 where it is the best.",
        "Below 2: chance; of many evaluations the last is now and then 3 below the best.",
        "Far above: training takes away what the policy could do. A warning comes above 3, and with more than three "
        "evaluations above what chance makes of all pairs of them, 3.7 with ten and 4.0 with twenty.",
    ),
    "evaluation_failed": Metric(
        "failed in evaluation",
        COUNT,
        "Episodes of that evaluation whose environment raised an error or hung each time, after rollout.max_retries "
        "retries. They count as not won.",
        "0.",
        "Above 0: the success is that of a policy and of an environment. hgpo-gym inspect RUN --failures shows "
        "the responses and what went wrong.",
    ),
}

SECTIONS = {
    "Progress": PROGRESS,
    "Rollout": ROLLOUT,
    "Credit assignment": CREDIT,
    "Update": UPDATE,
    "Time": TIME,
}
METRICS = {name: metric for section in SECTIONS.values() for name, metric in section.items()}
"""Every metric by its name in metrics.jsonl, TensorBoard and Weights & Biases."""
