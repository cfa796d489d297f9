"""Chat templates in the styles of model families, written for these tests, with tokenizers of a few hundred tokens."""

from typing import NamedTuple

from tests.support.chat_models import HEADERS, byte_level_tokenizer


class Style(NamedTuple):
    """A chat template and its control tokens; `end` ends a response."""

    template: str
    special: tuple[str, ...]
    end: str
    begin: str | None = None


STYLES = {
    "qwen2.5": Style(
        "{% if messages[0].role != 'system' %}<|im_start|>system\nHelp well.<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
        "<|im_end|>",
    ),
    "qwen3": Style(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
        "{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
        ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"),
        "<|im_end|>",
    ),
    "llama3": Style(
        HEADERS,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
        "<|begin_of_text|>",
    ),
    "gemma": Style(
        "{{ bos_token }}{% for m in messages %}"
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('not in turn') }}{% endif %}"
        "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        "<bos>",
    ),
    "mistral": Style(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]"),
        "</s>",
        "<s>",
    ),
}


def styled_tokenizer(style, texts, size=420):
    """A tokenizer without a pre-tokenizer's word borders."""
    template, special, end, begin = STYLES[style]
    return byte_level_tokenizer(texts, size, special, chat_template=template, eos_token=end, bos_token=begin)
