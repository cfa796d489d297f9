"""Tool calls as actions: the functions that a model may call, and how calls are written and read.

Qwen and Hermes write a call as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, Llama 3 as
`{"name": ..., "parameters": {...}}`, perhaps after `<|python_tag|>`, Mistral as `[TOOL_CALLS] [{...}]`. All are read;
`prompt.tool_format` chooses which one is written.
"""

import json
import re
import string
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from hgpo_gym.memory.readings import Reading
from hgpo_gym.suggest import unknown_name

MALFORMED_CALL = "Malformed call: "
"""The start of the action of a response whose call cannot be read. The rest is the reason. `Memory` puts both before
the next observation."""


class Format(NamedTuple):
    """How a call is written: the texts around its JSON, and the field of its arguments."""

    before: str
    after: str
    arguments: str = "arguments"


FORMATS = {
    "hermes": Format("<tool_call>\n", "\n</tool_call>"),
    "llama3_json": Format("", "", "parameters"),
    "mistral": Format("[TOOL_CALLS] [", "]"),
}
"""The formats, by the names of vLLM's `--tool-call-parser`."""
_TAGS = {"<tool_call>": "</tool_call>", "[TOOL_CALLS]": "", "<|python_tag|>": ""}
"""What begins a call, and what ends it."""
_LONGEST_SHOWN = 60
"""Characters of a name that the message on a malformed call repeats."""
_DECODER = json.JSONDecoder()
_NOT_JSON = (ValueError, RecursionError)
"""What the decoder raises: numbers of too many digits are a plain ValueError, deep nesting is a RecursionError."""


def write_call(name: str, arguments: Mapping[str, str] | str, format: Format = FORMATS["hermes"]) -> str:
    """Return a call as text; its arguments are an object or the JSON of one."""
    call = {"name": name, format.arguments: arguments}
    return format.before + json.dumps(call, ensure_ascii=False) + format.after


class Tools(NamedTuple):
    """The functions that a request offers.

    Attributes:
        schemas: a JSON list in the form of OpenAI's `tools`, for a chat template.
        instructions: the same as text, for the start of a prompt without such a template.
    """

    schemas: str
    instructions: str


class Functions:
    """The functions by which a model acts. Their arguments are texts.

    Args:
        functions: of each its `name`; its `action`, the text of the action with an {argument} for each argument; its
            `description`; and optionally the descriptions of its `arguments`, by name.
        format: the name of the format in which calls are written, see `FORMATS`.

    Attributes:
        tags: what may begin and end a call.

    Raises:
        ValueError: no function, a function without an action, an unknown field, argument or format.
    """

    def __init__(self, functions: Sequence[Mapping[str, Any]], format: str = "hermes"):
        if format not in FORMATS:
            raise ValueError(unknown_name("prompt.tool_format", format, FORMATS))
        if not functions:
            raise ValueError("prompt.functions is empty: a response with a {call} needs a function to call.")
        self._format = FORMATS[format]
        self.tags = " ".join([*_TAGS, *_TAGS.values()])
        self._functions = {fields["name"]: _Function(**fields) for fields in map(_checked, functions)}

    @cached_property
    def schemas(self) -> list[dict[str, Any]]:
        """Return the functions in the form of OpenAI's `tools`."""
        return [{"type": "function", "function": function.schema()} for function in self._functions.values()]

    @cached_property
    def offered(self) -> Tools:
        """Return the functions as a request offers them."""
        schemas = json.dumps(self.schemas, ensure_ascii=False)
        first = next(iter(self._functions.values()))
        example = self._written(first.name, dict.fromkeys(first.placeholders, "..."))
        return Tools(
            schemas,
            f"You act by calling a function. The functions, as JSON schemas:\n{schemas}\n"
            f"End your response with exactly one call, in this form:\n{example}\n\n",
        )

    def write(self, action: str) -> str:
        """Return the call that means this action, by the first function that can express it.

        Raises:
            ValueError: no function can.
        """
        for function in self._functions.values():
            if (arguments := function.arguments_of(action)) is not None:
                return self._written(function.name, arguments)
        raise ValueError(
            f"prompt.functions: none of {', '.join(self._functions)} can express the action {action!r}: add a function."
        )

    def _written(self, name: str, arguments: Mapping[str, str]) -> str:
        return write_call(name, arguments, self._format)

    def read(self, response: str) -> Reading:
        """Return the action of the call in a response, in any of the formats. Text before the call is ignored.

        The action of a malformed call is `MALFORMED_CALL` and the reason.
        """
        try:
            return Reading(self.action(_only_call(response)), in_form=True)
        except ValueError as error:
            return Reading(MALFORMED_CALL + str(error), in_form=False)

    def action(self, call: Mapping[str, Any]) -> str:
        """Return the action of a call with `name`, and `arguments` or `parameters`: an object, or its JSON.

        Raises:
            ValueError: the message names the mistake, for the model.
        """
        name = call.get("name")
        if not isinstance(name, str) or name not in self._functions:
            raise ValueError(unknown_name("tool", str(name)[:_LONGEST_SHOWN], self._functions))
        function = self._functions[name]
        arguments = call.get("arguments", call.get("parameters"))
        form = f"Expected {json.dumps(dict.fromkeys(function.placeholders, '...'))}."
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except _NOT_JSON as error:
                raise ValueError(f"The arguments are not JSON ({error}). {form}") from None
        for placeholder in function.placeholders:
            if not isinstance(arguments, dict) or not isinstance(arguments.get(placeholder), str):
                raise ValueError(f"The arguments have no {placeholder} that is a string. {form}")
        values = arguments if isinstance(arguments, dict) else {}
        if unknown := sorted(values.keys() - function.placeholders):
            raise ValueError(f"Unknown arguments: {', '.join(unknown)[:_LONGEST_SHOWN]}. {form}")
        return function.action.format(**values).strip()


class _Function:
    def __init__(self, name: str, action: str, description: str = "", arguments: Mapping[str, str] | None = None):
        self.name, self.action, self._description = name, action, description
        self.placeholders = [field for _, field, *_ in string.Formatter().parse(action) if field is not None]
        self._arguments = arguments or {}
        if wrong := [field for field in self.placeholders if not field.isidentifier()]:
            raise ValueError(f"prompt.functions, {name}: {{{wrong[0]}}} is no name of an argument.")
        if unknown := sorted(self._arguments.keys() - set(self.placeholders)):
            raise ValueError(f"prompt.functions, {name}: {action!r} has no argument {{{unknown[0]}}}.")
        parts = [
            re.escape(text) + ("" if field is None else "(.+?)" if field not in self.placeholders[:index] else ".+?")
            for index, (text, field, *_) in enumerate(string.Formatter().parse(action))
        ]
        self._pattern = re.compile("".join(parts), re.DOTALL)

    def schema(self) -> dict[str, Any]:
        properties = {
            name: {"type": "string"} | ({"description": self._arguments[name]} if name in self._arguments else {})
            for name in self.placeholders
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        return {"name": self.name, "description": self._description, "parameters": parameters}

    def arguments_of(self, action: str) -> dict[str, str] | None:
        """Return the arguments by which this function means the action; None if it cannot."""
        match = self._pattern.fullmatch(action)
        return None if match is None else dict(zip(self.placeholders, match.groups(), strict=True))


def _checked(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    known = ("name", "action", "description", "arguments")
    for field in fields:
        if field not in known:
            raise ValueError(unknown_name(f"field of prompt.functions {dict(fields)}", field, known))
    for field, example in (("name", "search"), ("action", "search[{query}]")):
        if not isinstance(fields.get(field), str):
            raise ValueError(f"prompt.functions {dict(fields)} has no {field}: write a text, such as {example!r}.")
    return fields


def _only_call(response: str) -> dict[str, Any]:
    """Return the one call of a response. Raises ValueError, with a message for the model."""
    text = response.rpartition("</think>")[2]
    tag = min((tag for tag in _TAGS if tag in text), key=text.index, default="")
    written = text.partition(tag)[2].strip() if tag else text.strip()
    if not tag and not written.startswith("{"):
        raise ValueError("You called no function.")
    try:
        call, end = _DECODER.raw_decode(written)
    except _NOT_JSON as error:
        raise ValueError(f"The call is not JSON ({error}).") from None
    rest = written[end:].strip().removeprefix(_TAGS.get(tag, "")).strip()
    if isinstance(call, list) and len(call) == 1:
        (call,) = call
    if isinstance(call, list) or (rest and rest.lstrip("; ").startswith(tag or "{")):
        raise ValueError("Call exactly one function.")
    if rest:
        raise ValueError("Text follows the call: end with the call.")
    if not isinstance(call, dict):
        raise ValueError("The call is no JSON object.")
    return call
