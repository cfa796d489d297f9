"""Chat templates with tools, in the styles of Qwen 2.5 (Hermes), Llama 3.1 and Mistral; each an own, short text."""

QWEN = """\
{%- if tools %}<|im_start|>system
Functions:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
Call one within <tool_call></tool_call>.<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """\
{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{% if loop.first and tools %}Respond with {"name": function, "parameters": arguments}. Functions:
{% for tool in tools %}{{ tool | tojson(indent=4) }}

{% endfor %}{% endif %}{{ m.content | trim }}{% for call in m.tool_calls or [] %}\
{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}\
{% endfor %}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
MISTRAL = """\
{{ bos_token }}{% for m in messages %}{% if m.role == "user" %}\
{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST] {{ m.content }}[/INST]\
{% elif m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}\
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\
{% endfor %}]{{ eos_token }}{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"""

TEMPLATES = {
    "hermes": ("qwen", QWEN, ("<tool_call>", "</tool_call>")),
    "llama3_json": ("llama", LLAMA, ("<|python_tag|>",)),
    "mistral": ("llama", MISTRAL, ("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]", "[/INST]")),
}
"""By `prompt.tool_format`: the style of the tokenizer, see `chat_models`, the template, and its special tokens."""
