"""Control tokens, such as `<|im_end|>`: the chat template's stay, and text that spells one stays text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgpo_gym.policies.chat_template import render

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_RESPONSE = "answer 7391"
_TOOL = {
    "type": "function",
    "function": {"name": "act", "description": "", "parameters": {"type": "object", "properties": {}}},
}
_CALL = {  # Mistral's templates need an id of 9 characters
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "answer739", "type": "function", "function": {"name": "act", "arguments": {}}}],
}


class ControlTokens:
    """The control tokens of a tokenizer: special tokens, and added tokens that its chat template writes.

    Args:
        tokenizer: any.
        chat_template_kwargs: further arguments of its chat template.

    Attributes:
        end_of_turn: the token that the chat template puts after a response; None if there is none.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", chat_template_kwargs: Mapping[str, Any] | None = None):
        self._tokenizer, self._chat_template_kwargs = tokenizer, dict(chat_template_kwargs or {})
        answered = self._rendered({"role": "assistant", "content": _RESPONSE})
        rendered = answered + self._rendered(add_generation_prompt=True) + self._rendered(_CALL, tools=[_TOOL])
        # Gemma has whitespace as added tokens, but templates write it as text.
        self._texts = {
            number: token.content
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.special or (token.content in rendered and not token.content.isspace())
        }
        self._texts.pop(tokenizer.unk_token_id, None)  # any text may contain unknown characters
        self._ids = np.array(sorted(self._texts), dtype=np.int64)
        # Encode now: split_special_tokens is a state of the tokenizer, which other threads may use later.
        self._as_text = {number: self._encoded_as_text(number, text) for number, text in self._texts.items()}
        after = tokenizer(answered.partition(_RESPONSE)[2], add_special_tokens=False)["input_ids"]
        self.end_of_turn: int | None = next((after[position] for position in self.places(after)), None)

    def places(self, ids: Sequence[int]) -> np.ndarray:
        """Return the positions of control tokens, int64."""
        return np.flatnonzero(np.isin(ids, self._ids))

    def spelled_out(self, ids: Sequence[int], literal_text: str, *, before: int = 0, after: int = 0) -> list[int]:
        """Return the tokens with control tokens replaced by the tokens of their spelling.

        Args:
            ids: the tokens of a text.
            literal_text: the prompt template's text; control tokens in it, such as tags, stay.
            before: the number of first control tokens that stay.
            after: the number of last control tokens that stay.
        """
        written, positions = list(ids), self.places(ids)
        # From the end, so that replacements do not shift earlier positions.
        for position in reversed(positions[before : len(positions) - after]):
            if self._texts[token := written[position]] not in literal_text:
                written[position : position + 1] = self._as_text[token]
        return written

    def _rendered(self, *responses: dict[str, Any], **options: Any) -> str:
        """Return a conversation rendered by the chat template; empty without a template, and if it refuses assistant
        turns."""
        if self._tokenizer.chat_template is None:
            return ""
        turns = [{"role": "user", "content": "prompt 7391"}, *responses]
        try:
            return render(self._tokenizer, turns, self._chat_template_kwargs, **options)
        except ValueError:
            return ""

    def _encoded_as_text(self, number: int, text: str) -> list[int]:
        options = {"add_special_tokens": False, "split_special_tokens": True}
        ids, line = (self._tokenizer(sample, **options)["input_ids"] for sample in (f"\n{text}", "\n"))
        if ids[: len(line)] == line:  # SentencePiece adds a space before a text; the line break avoids it
            ids = ids[len(line) :]
        if number not in ids:
            return ids
        # The tokenizer never splits added tokens that are not special: encode the spelling in two parts.
        return [token for part in (text[:1], text[1:]) for token in self._tokenizer(part, **options)["input_ids"]]
