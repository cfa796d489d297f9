"""Policies on a real model made from scratch: constraints, log-probabilities, seeds, and no work for the dead."""

import copy
import importlib.util
import json
import re
from dataclasses import replace
from itertools import combinations

import gymnasium
import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, Phi3Config

from hgpo_gym.config.compose import load_run
from hgpo_gym.envs import ENVIRONMENTS, TextEnv, TextVectorEnv, Turn, register
from hgpo_gym.extras import install_command
from hgpo_gym.memory import ContextWrapper, PromptTemplate, make_memory
from hgpo_gym.policies import ExpertPolicy, RandomPolicy, Request, Sampling
from hgpo_gym.policies.batching import length_sorted_batches
from hgpo_gym.policies.engines import engine_settings
from hgpo_gym.policies.huggingface import load_model, make_tiny_model, save_model, train_tokenizer
from hgpo_gym.policies.language_model import LanguageModelPolicy
from hgpo_gym.policies.likelihood import likelihood, score
from hgpo_gym.policies.trie import TokenTrie
from hgpo_gym.rollouts.collect import collect
from hgpo_gym.rollouts.evaluation import Evaluation, evaluate
from hgpo_gym.rollouts.player import Player
from hgpo_gym.rollouts.rollout import EpisodeOutcome
from hgpo_gym.rollouts.teams.base import Solo
from hgpo_gym.rollouts.transcripts import from_rollout, load, save

ACTIONS = ("walk on", "walk off", "open red door", "open blue door", "go back")
PROMPTS = ["You are in a hall.", "You stand at a signpost. It says: take the red door.\n> walk on\n", "Hall."]


@pytest.fixture(scope="module")
def tiny():
    tokenizer = train_tokenizer([*PROMPTS, *ACTIONS] * 3, 400)
    return make_tiny_model(tokenizer, hidden_size=32, layers=2, heads=2, seed=0, device="cpu"), tokenizer


@pytest.fixture
def policy(tiny):
    return LanguageModelPolicy(*tiny, constrain="admissible")


def requests(count=12, responses=ACTIONS):
    return [Request(PROMPTS[n % 3], responses, seed=(7, n)) for n in range(count)]


def test_the_trie_allows_exactly_the_given_sequences():
    trie = TokenTrie([(1, 2), (1, 2, 3), (4, 5, 6)], end_of_text=0)
    assert trie.allowed(0).tolist() == [1, 4]
    after_2 = trie.child(trie.child(0, 1), 2)
    assert trie.allowed(after_2).tolist() == [0, 3]
    assert [tokens.tolist() for tokens in trie.along([1, 2, 0])] == [[1, 4], [2], [0, 3]]
    assert trie.forced(0) == []
    assert trie.forced(trie.child(0, 4)) == [5, 6, 0]
    assert set(trie.deciding) == {3, 4, 5, 6}
    assert set(TokenTrie([(1, 2), (3, 1), (3, 1, 4)], end_of_text=0).deciding) == {2, 4}  # 1 decides at first only


@pytest.mark.promise("Constrained responses are admissible actions.")
def test_constrained_responses_are_admissible_and_their_probabilities_sum_to_one(policy, tiny):
    responses = policy.generate(requests(), Sampling())
    assert {response.text for response in responses} <= set(ACTIONS)
    model, _ = tiny
    prompt_ids = policy.encode_prompts([PROMPTS[0]])[0]
    total = 0.0
    by_text = {}
    for seed in range(200):
        (response,) = policy.generate([Request(PROMPTS[0], ACTIONS, seed=(seed,))], Sampling())
        by_text[response.text] = response.tokens
        if len(by_text) == len(ACTIONS):
            break
    for record in by_text.values():
        np.testing.assert_array_equal(record.prompt_ids, prompt_ids)
        total += np.exp(likelihood(model, [record]).logprobs.sum().item())
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.promise("Log-probabilities of responses are those that the loss computes.")
def test_recorded_log_probabilities_are_those_the_loss_computes(policy, tiny):
    for sampling in (Sampling(), Sampling(temperature=0.5)):
        records = [response.tokens for response in policy.generate(requests(), sampling)]
        with_choice = [record for record in records if len(record.choices)]
        scored = score(policy, with_choice, temperature=sampling.temperature, max_batch_tokens=64)
        for record, logprobs in zip(with_choice, scored, strict=True):
            np.testing.assert_allclose(record.logprobs[record.choices], logprobs, atol=2e-5)


def test_free_text_is_recorded_token_by_token(tiny):
    free = LanguageModelPolicy(*tiny, constrain="none")
    for response in free.generate(requests(4), Sampling(max_new_tokens=6)):
        record = response.tokens
        assert len(record.token_ids) <= 6
        assert record.allowed is None
        (scored,) = score(free, [record], temperature=1.0, max_batch_tokens=10_000)
        np.testing.assert_allclose(record.logprobs, scored, atol=2e-5)
        assert tiny[1].decode(record.token_ids, skip_special_tokens=True) == response.text


@pytest.mark.promise("A response depends on its seed, not on what it is generated with.")
def test_a_response_depends_on_its_seed_and_not_on_its_batch(tiny):
    together = LanguageModelPolicy(*tiny, constrain="admissible").generate(requests(), Sampling())
    apart = LanguageModelPolicy(*tiny, constrain="admissible", max_batch_tokens=1).generate(requests(), Sampling())
    assert [response.text for response in together] == [response.text for response in apart]
    other = [Request(request.prompt, ACTIONS, seed=(8, n)) for n, request in enumerate(requests())]
    texts = [
        response.text for response in LanguageModelPolicy(*tiny, constrain="admissible").generate(other, Sampling())
    ]
    assert texts != [response.text for response in together]


def test_sampling_follows_the_models_distribution(policy, tiny):
    """Frequencies over 2,000 seeds against the exact probabilities; greedy takes the likeliest first token."""
    many = policy.generate([Request(PROMPTS[0], ACTIONS, seed=(n,)) for n in range(2000)], Sampling())
    records = {response.text: response.tokens for response in many}
    for text, record in records.items():
        probability = np.exp(record.logprobs.sum())
        frequency = np.mean([response.text == text for response in many])
        assert abs(frequency - probability) < 4 * np.sqrt(probability * (1 - probability) / 2000)
    greedy = policy.generate(requests(), Sampling(temperature=0))
    assert len({response.text for response in greedy[::3]}) == 1


def test_top_p_leaves_out_unlikely_tokens(tiny):
    policy = LanguageModelPolicy(*tiny, constrain="none")
    seeds = [Request(PROMPTS[0], seed=(n,)) for n in range(300)]
    first = {int(response.tokens.token_ids[0]) for response in policy.generate(seeds, Sampling(1.0, 0.1, 1))}
    model, _ = tiny
    with torch.inference_mode():
        logits = model(torch.from_numpy(policy.encode_prompts([PROMPTS[0]])[0])[None]).logits[0, -1]
    ordered = torch.softmax(logits.double(), -1).sort(descending=True)
    count = int((ordered.values.cumsum(0) < 0.1).sum()) + 1
    assert first <= set(ordered.indices[:count].tolist())


def test_a_single_admissible_action_needs_no_model(policy, monkeypatch):
    monkeypatch.setattr(policy.model, "get_decoder", lambda: pytest.fail("the model was asked"))
    (response,) = policy.generate([Request("Hall.", ("walk on",))], Sampling())
    assert response.text == "walk on"
    assert len(response.tokens.choices) == 0
    assert (response.tokens.logprobs == 0).all()


def test_a_loaded_tokenizer_splits_text_as_the_saved_one_did(tmp_path):
    tokenizer = train_tokenizer(["go to cabinet 1", "go to cabinet 12 then to shelf 2"] * 5, 300)
    save_model(make_tiny_model(tokenizer, hidden_size=16, layers=1, heads=2, seed=0), tokenizer, tmp_path)
    _, loaded = load_model(str(tmp_path))
    assert "\u01201" in tokenizer.get_vocab()  # a blank and the digit as one token, which some loaders undo
    for text in ("go to cabinet 1", "shelf 12, cabinet 2\n>", "e\u0301 häß"):
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert loaded.decode(loaded(text)["input_ids"]) == text


def long_episode(steps, room="A room."):
    """The request of a player who has done the same many times."""
    template, memory = PromptTemplate.named("instruct"), make_memory(window=None)
    for _ in range(steps):
        memory.observe(room)
        memory.record("go left")
    info = {
        "context": memory.observe(room), "context_keys": np.zeros(1), "observation": room,
        "admissible_actions": ("go left",), "task": "Find it.",
    }  # fmt: skip
    prompt = template.render("Find it.", info["context"])
    return Player((0,), prompt, info, Solo()).request(template)


def read(policy, request):
    """The text that the policy reads, and whether it is reported as cut."""
    (sequence,) = policy.begin([request], Sampling())
    assert len(sequence.prompt_ids) <= policy.max_prompt_tokens
    return policy.tokenizer.decode(sequence.prompt_ids), sequence.prompt_cut


def test_a_long_prompt_loses_its_oldest_steps_and_keeps_its_task(tiny):
    request, whole = long_episode(9), LanguageModelPolicy(*tiny, constrain="none")
    assert read(whole, request) == (request.prompt, False)
    lengths = [len(whole.encode_prompts([prompt])[0]) for prompt in request.shorter]
    assert lengths == sorted(lengths, reverse=True)
    assert "The last 6" in request.shorter[2]
    assert read(LanguageModelPolicy(*tiny, max_prompt_tokens=lengths[2], constrain="none"), request) == (
        request.shorter[2],
        True,
    )
    assert read(LanguageModelPolicy(*tiny, max_prompt_tokens=lengths[2] - 1, constrain="none"), request) == (
        request.shorter[3],
        True,
    )
    assert read(LanguageModelPolicy(*tiny, max_prompt_tokens=lengths[-1], constrain="none"), request) == (
        request.shorter[-1],
        True,
    )


def test_a_prompt_that_is_too_long_without_any_step_keeps_its_task_and_its_end(tiny):
    text, cut = read(
        LanguageModelPolicy(*tiny, max_prompt_tokens=200, constrain="none"), long_episode(3, room="A room. " * 200)
    )
    assert cut
    assert text.startswith("You act in a text world, one action at a time.\nYour task: Find it.")
    assert text.endswith("inside <action> </action>.")


def test_what_is_imitated_is_cut_as_what_is_asked(tiny):
    lengths = [len(ids) for ids in LanguageModelPolicy(*tiny, constrain="none").encode_prompts(long_episode(9).shorter)]
    for limit in (lengths[2], lengths[-1] - 5, 7_000):
        policy = LanguageModelPolicy(*tiny, max_prompt_tokens=limit, constrain="none")
        (sequence,) = policy.begin([long_episode(9)], Sampling())
        (record,) = policy.records([long_episode(9)], ["<action>go left</action>"])
        np.testing.assert_array_equal(record.prompt_ids, sequence.prompt_ids)
        assert record.prompt_cut == sequence.prompt_cut == (limit < 7_000)


def test_texts_without_a_task_lose_their_beginning(tiny):
    policy = LanguageModelPolicy(*tiny, max_prompt_tokens=5, constrain="none")
    full = LanguageModelPolicy(*tiny, constrain="none").encode_prompts([PROMPTS[1]])[0]
    np.testing.assert_array_equal(policy.encode_prompts([PROMPTS[1]])[0], full[-5:])
    (sequence,) = policy.begin([Request(PROMPTS[1], task="A task that it does not show.")], Sampling())
    np.testing.assert_array_equal(sequence.prompt_ids, full[-5:])


def test_a_chat_template_gets_its_arguments(tiny):
    model, tokenizer = copy.deepcopy(tiny)
    tokenizer.chat_template = "{{ messages[0]['content'] }}{% if not enable_thinking %} /no_think{% endif %}"
    policy = LanguageModelPolicy(model, tokenizer, chat_template_kwargs={"enable_thinking": False}, constrain="none")
    assert tokenizer.decode(policy.encode_prompts(["Hall."])[0]) == "Hall. /no_think"


def test_what_a_chat_template_refuses_is_an_error_at_the_start(tiny):
    model, tokenizer = copy.deepcopy(tiny)
    with pytest.raises(ValueError, match=r"engine.chat_template_kwargs=.* has no chat template"):
        LanguageModelPolicy(model, tokenizer, chat_template_kwargs={"enable_thinking": False}, constrain="none")
    tokenizer.chat_template = "{{ raise_exception('Say who you are first.') }}"
    with pytest.raises(ValueError, match=r"The chat template of .* refuses .*: Say who you are first\."):
        LanguageModelPolicy(model, tokenizer, constrain="none")


CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}"
BEGINS = "{% if add_generation_prompt %}<assistant>{% endif %}"
IN_PARTS = "{% for m in messages %}{% for part in m.content %}{{ part['text'] }}{% endfor %}{% endfor %} assistant:"


def test_a_chat_template_that_does_not_put_a_prompt_is_refused_with_a_remedy(tiny):
    """Most of them failed without an error: equal prompts, a prompt twice, or an end before the response."""
    model, tokenizer = copy.deepcopy(tiny)
    tokenizer.name_or_path = "tokenizer_name"
    for template, refusal in (
        (IN_PARTS, r"puts a prompt 0 times .* It reads prompts in parts alone, as for images\."),
        ("<user>{{ messages[0].role }}<assistant>", r"puts a prompt 0 times into the user's turn, and not once\. Set"),
        ("{{ messages[0].content }} Again: {{ messages[0].content }} assistant:", "puts a prompt 2 times"),
        ("{{ messages[0].content | upper }} assistant:", "puts a prompt 0 times"),
        (CHATML, r"ends a prompt with <\|endoftext\|> \(0\), which ends responses .* \(add_generation_prompt\)"),
        ("{{ 'user: ' + messages[0].name }}", "UndefinedError: .* has no attribute 'name'"),
        ("{{ 'user: ' + messages[0].get('name') }}", "TypeError: can only concatenate str"),
        ("{{ {}['a'].b }}{% endfor %}", "TemplateSyntaxError"),
        (
            {"chat": CHATML + BEGINS, "tool_use": CHATML},
            "several chat templates, chat, tool_use, and none is called def",
        ),
    ):
        tokenizer.chat_template = template
        with pytest.raises(ValueError, match=f"(?s)tokenizer_name.*{refusal}") as refused:
            LanguageModelPolicy(model, tokenizer, constrain="none")
        assert "engine.chat_template_kwargs" in str(refused.value)
    policy = LanguageModelPolicy(model, tokenizer, chat_template_kwargs={"chat_template": "chat"}, constrain="none")
    assert tokenizer.decode(policy.encode_prompts(["Hall."])[0]) == "<user>Hall.<|endoftext|><assistant>"


def test_a_tokenizer_that_appends_an_end_appends_none_to_prompts(tiny):
    """As `add_eos_token=True` leaves it: without a chat template every prompt had ended before its response."""
    model, tokenizer = copy.deepcopy(tiny)
    plain = tokenizer("Hall.")["input_ids"]
    for single, expected in (("$A <|endoftext|>", plain), ("<|endoftext|> $A <|endoftext|>", [0, *plain])):
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=single, special_tokens=[("<|endoftext|>", 0)]
        )
        assert LanguageModelPolicy(model, tokenizer, constrain="none").encode_prompts(["Hall."])[0].tolist() == expected


THINKS = "{{ messages[0]['content'] }}{% if add_generation_prompt %}\n<think>\n{% endif %}"
THOUGHT = "{{ messages[0]['content'] }}{% if add_generation_prompt %}\n<think>\n\n</think>\n\n{% endif %}"


@pytest.mark.parametrize(("template", "prefix"), [(THINKS, "</think><action>"), (THOUGHT, "<action>")])
@pytest.mark.parametrize("reading", ["strict", "published"])
def test_a_thought_that_the_chat_template_begins_is_part_of_the_response(tiny, template, prefix, reading):
    """As those of DeepSeek-R1 and of Qwen3 do, with thinking disabled."""
    model, tokenizer = copy.deepcopy(tiny)
    tokenizer.chat_template = template
    prompt = replace(PromptTemplate.named("instruct"), response_reading=reading)
    responses = tuple(map(prompt.write_response, ACTIONS))
    policy = LanguageModelPolicy(model, tokenizer, constrain="admissible")
    for response in policy.generate(requests(responses=responses), Sampling(max_new_tokens=64)):
        assert response.text.startswith(prefix)
        assert response.opened + response.text in responses
        action, in_form = prompt.read(response.text, opened=response.opened)
        assert action in ACTIONS
        assert in_form
    assert prompt.read("a\n</think>\n\n<action>go back</action>", opened="<think>") == ("go back", True)
    bare = PromptTemplate.named("bare")
    assert bare.read("go back", opened="<think>") == bare.read("go back")


def test_the_longest_admissible_response_may_be_longer_than_others(policy):
    responses = tuple(f"click[a title that is rather long, in {colour}]" for colour in ("red", "blue", "green"))
    for response in policy.generate(requests(responses=responses), Sampling(max_new_tokens=4)):
        assert response.text in responses
        assert not response.truncated


def with_rotations(tokenizer, **parameters):
    config = Phi3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=0,
        max_position_embeddings=512, rope_parameters={"rope_theta": 1e4, **parameters},
        original_max_position_embeddings=parameters.get("original_max_position_embeddings", 512),
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config)


FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("rotations", "positions"),
    [({"rope_type": "default"}, 512), ({"rope_type": "longrope", **FACTORS}, 64)],
)
def test_prompts_that_may_be_longer_than_the_model_reads_are_refused(tiny, rotations, positions):
    model, tokenizer = with_rotations(tiny[1], **rotations), tiny[1]
    fits = LanguageModelPolicy(model, tokenizer, max_prompt_tokens=positions - 8, constrain="none")
    assert fits.generate([Request("Hall. " * 300)], Sampling(max_new_tokens=8))[0].tokens.prompt_cut
    message = rf"engine\.max_prompt_tokens={positions - 8} .*of 9 .* {positions} .*max_prompt_tokens={positions - 9} or"
    with pytest.raises(ValueError, match=message):
        fits.generate(requests(), Sampling(max_new_tokens=9))


def test_a_model_of_a_hub_that_is_out_of_reach_is_named_with_what_needs_no_network(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"(?s)model\.path=nobody/nothing cannot be loaded: .*model\.path=FOLDER\."):
        load_model("nobody/nothing")


def test_what_no_model_can_be_trained_from_is_named_when_it_is_loaded(tiny, tmp_path):
    """An empty tokenizer had no tokens for a prompt; a token without a row failed in the first prompt with it."""
    model, tokenizer = copy.deepcopy(tiny)
    rows = model.get_input_embeddings().num_embeddings
    tokenizer.add_special_tokens({"additional_special_tokens": ["<tag>"]})
    for kind, more in (("tag", {}), ("placeholder", {"image_token": "<tag>"})):
        save_model(model, tokenizer, tmp_path / kind)
        written = tmp_path / kind / "tokenizer_config.json"
        written.write_text(json.dumps({**json.loads(written.read_text()), **more}))
    assert len(load_model(str(tmp_path / "placeholder"), device="cpu")[1]) == rows + 1
    with pytest.raises(
        ValueError, match=rf"the embedding has {rows:,} rows, and none for the tokenizer's <tag> \({rows}"
    ):
        load_model(str(tmp_path / "tag"), device="cpu")

    model.save_pretrained(tmp_path / "alone")
    code = {"AutoConfig": "configuration_x.X", "AutoModelForCausalLM": "modeling_x.X"}
    for folder, config, message in (
        ("alone", {}, r"alone has no tokenizer: expected tokenizer\.json"),
        ("alone", {"model_type": "llama"}, r"alone has no tokenizer: expected tokenizer\.json"),
        ("tag", {"model_type": "x", "auto_map": code}, r"tag has code of its own \(auto_map"),
    ):
        config_file = tmp_path / folder / "config.json"
        config_file.write_text(json.dumps({**json.loads(config_file.read_text()), **config}))
        with pytest.raises(ValueError, match=message) as refused:
            load_model(str(tmp_path / folder), device="cpu")
        assert "\n" not in str(refused.value)
        assert "trust_remote_code" not in str(refused.value)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_the_engine_vllm_names_the_extra_that_it_needs(tiny):
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"engine=vllm needs vLLM: {install_command('vllm')}")):
        engine_settings(load_run(["engine=vllm"]).engine).policy(*tiny)


def test_the_engine_is_chosen_by_its_kind(tiny):
    assert isinstance(engine_settings(load_run([]).engine).policy(*tiny), LanguageModelPolicy)
    with pytest.raises(ValueError, match=r"Unknown engine.kind 'vlm'. Did you mean 'vllm'\?"):
        load_run(["engine.kind=vlm"])


class Counting:
    """Wraps a policy and counts what it is asked."""

    def __init__(self, policy):
        self.policy, self.asked = policy, 0

    def generate(self, requests, sampling):
        self.asked += len(requests)
        return self.policy.generate(requests, sampling)


def maze(num_tasks, group_size, **options):
    vector = TextVectorEnv("hgpo_gym/SignpostMaze-v0", num_tasks, group_size, expert=True, **options)
    return ContextWrapper(vector, "bare", window=2, history_length=2)


def test_nothing_is_generated_for_environments_that_have_ended():
    env = maze(3, 4, sections=1, max_episode_steps=24, split="all")
    tasks = env.unwrapped.task_ids
    policy = Counting(RandomPolicy())
    rollout = collect(env, policy, Sampling(), task_ids=tasks, seeds=[(0, n) for n in range(3)])
    lengths = [episode.steps for episode in rollout.episodes]
    assert policy.asked == sum(lengths) == len(rollout.batch) < 12 * 24
    assert len(set(lengths)) > 1
    np.testing.assert_array_equal(np.bincount(rollout.batch.trajectory), lengths)


def test_a_rollout_holds_what_happened():
    env = maze(2, 2)
    rollout = collect(env, ExpertPolicy(), Sampling(), task_ids=["red-red-blue", "green-red-red"], seeds=[(0,), (1,)])
    assert rollout.success == 1.0
    assert [episode.steps for episode in rollout.episodes] == [9] * 4
    batch = rollout.batch
    np.testing.assert_array_equal(batch.group, batch.trajectory // 2)
    assert batch.reward.sum() == 40.0
    last = [row for row in range(len(batch)) if batch.step[row] == 8]
    assert {rollout.steps[row].action for row in last} == {"open blue door", "open red door"}
    # The same hall, but another sign behind it: level 0 cannot tell the sections apart, level 2 can.
    halls = [row for row in range(len(batch)) if "hall" in rollout.steps[row].observation and batch.group[row] == 0]
    assert len(set(batch.key_groups(0)[halls])) == 1
    assert len(set(batch.key_groups(2)[halls])) == 2


def test_an_expert_with_random_actions_is_still_asked_what_it_would_have_done():
    rollout = collect(
        maze(3, 4, max_episode_steps=30),
        ExpertPolicy(random_actions=0.5),
        Sampling(),
        task_ids=["red-red-blue", "green-red-red", "blue-red-red"],
        seeds=[(n,) for n in range(3)],
    )
    assert rollout.success > 0.5
    differing = [step for step in rollout.steps if step.action != step.expert_action]
    assert 0.1 < len(differing) / len(rollout.steps) < 0.5
    transcript = from_rollout(rollout)[0]
    responses = [response for _, response in transcript.requests(make_memory(), PromptTemplate.named("brief"))]
    assert responses == [step.expert_action for step in transcript.steps]


def test_transcripts_are_saved_and_loaded(tmp_path):
    rollout = collect(maze(1, 2), RandomPolicy(), Sampling(), task_ids=["red-red-blue"], seeds=[(0,)])
    save(from_rollout(rollout), tmp_path / "episodes.jsonl")
    assert load(tmp_path / "episodes.jsonl") == from_rollout(rollout)


def test_invalid_actions_are_penalised_at_their_step(tiny):
    class Babbling(RandomPolicy):
        def generate(self, requests, sampling):
            responses = super().generate(requests, sampling)
            return [type(responses[0])("babble"), *responses[1:]]

    rollout = collect(
        maze(1, 2), Babbling(), Sampling(), task_ids=["red-red-blue"], seeds=[(0,)], invalid_action_penalty=0.1
    )
    first = rollout.batch.trajectory == 0
    assert (rollout.batch.penalty[first] == 0.1).all()
    assert (rollout.batch.penalty[~first] == 0.0).all()
    assert rollout.episodes[0].valid_steps == 0


def test_the_evaluation_plays_every_task_and_does_not_depend_on_how_many_run_side_by_side(policy):
    runs = []
    for num_envs in (4, 9):
        env = maze(num_envs, 1, split="test")
        requested = evaluate(env, Counting(policy), Sampling(temperature=0.4), range(2))
        runs.append(requested)
        assert [episode.task_id for episode in requested.episodes[1]] == list(env.unwrapped.task_ids)
    assert runs[0].episodes == runs[1].episodes
    summary = runs[0].summary()
    assert summary["episodes"] == 18
    assert summary["success"] == np.mean(summary["success_by_decoding_seed"])
    assert evaluate(maze(5, 1, split="test"), ExpertPolicy(), Sampling(), [0]).success == 1.0


class Scored(TextEnv):
    """Its last info holds a dictionary, as WebShop's does."""

    task_ids = ("one", "two", "three")

    def begin_episode(self, task_id):
        return Turn("Ready?", task="Say yes.", admissible_actions=("yes",))

    def take_action(self, action):
        return Turn("Done.", reward=1.0, terminated=True, won=True, extras={"parts": {"price": 1.0}})


def test_the_last_batch_of_an_evaluation_may_leave_environments_idle_whose_info_holds_a_dictionary():
    register("test/Scored-v0", Scored, max_episode_steps=3, description="One step.")
    try:
        env = ContextWrapper(TextVectorEnv("test/Scored-v0", num_tasks=2))
        assert evaluate(env, RandomPolicy(), Sampling(), [0]).success == 1.0
    finally:
        del ENVIRONMENTS["test/Scored-v0"], gymnasium.registry["test/Scored-v0"]


def test_the_evaluation_summary_tells_how_long_won_episodes_are():
    def run(*lengths):
        return tuple(EpisodeOutcome("id", "kind", steps < 50, 1.0, steps, steps) for steps in lengths)

    summary = Evaluation("test", (run(4, 50), run(7, 50))).summary()
    assert summary["episode_length"] == 27.75
    assert summary["won_episode_length"] == 5.5
    assert Evaluation("test", (run(50, 50),)).summary()["won_episode_length"] is None


def test_pass_at_k_is_the_mean_over_every_choice_of_k_episodes():
    def outcome(won):
        return EpisodeOutcome("id", "kind", won, float(won), 1, 1)

    won = np.random.default_rng(3).random((5, 40)) < 0.3
    evaluation = Evaluation("test", tuple(tuple(map(outcome, run)) for run in won.tolist()))
    assert list(evaluation.pass_at_k) == [1, 2, 4, 5]
    for k, chance in evaluation.pass_at_k.items():
        choices = [won[list(seeds)].any(axis=0).mean() for seeds in combinations(range(5), k)]
        assert chance == pytest.approx(np.mean(choices))
    summary = evaluation.summary()
    assert summary["pass_at_k"]["1"] == pytest.approx(summary["success"])
    assert summary["pass_at_k"]["5"] == pytest.approx(won.any(axis=0).mean())


def test_length_sorted_batches_keep_the_budget():
    lengths = [5, 1, 9, 3, 3, 20]
    batches = list(length_sorted_batches(lengths, 10))
    assert sorted(index for batch in batches for index in batch) == list(range(6))
    assert batches[0] == [5]
    assert all(len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= 10 for batch in batches)


def test_length_sorted_batches_hold_little_padding_unless_they_are_small():
    lengths = [int(length) for length in np.random.default_rng(0).integers(100, 400, size=300)]
    for batch in length_sorted_batches(lengths, 32_000):
        padded = len(batch) * max(lengths[index] for index in batch)
        assert padded <= 4_000 + 400 or sum(lengths[index] for index in batch) >= 0.9 * padded
    assert list(length_sorted_batches([9, 1], 40)) == [[0], [1]]
    assert list(length_sorted_batches([9, 1], 200)) == [[0, 1]]  # too few to be worth two passes
