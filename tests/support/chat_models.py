"""Tiny models from scratch with tokenizers, templates and ends of responses as Qwen2.5 (base) and Llama 3 have them."""

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hgpo_gym.adapters.single_episode import SingleEpisode
from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.policies.huggingface import save_model

TAGS = ("<think>", "</think>", "<action>", "</action>")
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
STYLES = {
    "qwen": {
        "special": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "template": CHATML,
        "normalizer": normalizers.NFC(),
        "options": {"eos_token": "<|endoftext|>"},
    },
    "llama": {
        "special": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "template": HEADERS,
        "normalizer": None,
        "options": {
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|end_of_text|>",
            "clean_up_tokenization_spaces": True,
        },
    },
}


def byte_level_tokenizer(texts, size, special, *, splits=(), normalizer=None, **options):
    """A byte-level BPE tokenizer; `splits` come before its bytes. Without any it merges spaces, line breaks and words.
    Prompts begin with `bos_token`, if there is one."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    if bos := options.get("bos_token"):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=options["eos_token"], **options)


def chat_tokenizer(style, texts, tags=TAGS, size=400):
    """A tokenizer in the style, whose tags are special tokens."""
    parts = STYLES[style]
    made = byte_level_tokenizer(
        texts, size, (*parts["special"], *tags), splits=[pre_tokenizers.Split(Regex(WORDS), "isolated")],
        normalizer=parts["normalizer"], chat_template=parts["template"], **parts["options"],
    )  # fmt: skip
    assert set(tags) <= {token.content for token in made.added_tokens_decoder.values() if token.special}
    return made


def chat_model(style, texts, *, tags=TAGS, hidden_size=32, layers=1, size=400):
    """A model with such a tokenizer, random weights drawn from seed 0."""
    tokenizer = chat_tokenizer(style, texts, tags, size)
    kind = {"qwen": transformers.Qwen2Config, "llama": transformers.LlamaConfig}[style]
    config = kind(
        vocab_size=len(tokenizer), hidden_size=hidden_size, intermediate_size=4 * hidden_size, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=8192, initializer_range=hidden_size**-0.5,
        tie_word_embeddings=True, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config), tokenizer


def save_for_maze(style, folder):
    """A model of the style that has words for the maze and for `prompt=instruct`, as a folder to be loaded."""
    episode, form = SingleEpisode("hgpo_gym/SignpostMaze-v0", split="all"), PromptTemplate.named("instruct")
    texts = [form.literal_text]
    for task in episode.env.unwrapped.task_ids[:4]:
        texts.append(episode.begin(task))
        for action in ("walk on", "walk on", "open red door", "go back"):
            texts += [episode.act(action), *map(form.write_response, episode.admissible_actions)]
    model, tokenizer = chat_model(style, texts * 3, hidden_size=64, layers=2, size=800)
    save_model(model, tokenizer, folder)
