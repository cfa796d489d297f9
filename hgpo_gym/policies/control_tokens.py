"""Control tokens, such as `<|im_end|>`: those of the chat template stay, and text that spells one stays text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hgpo_gym.policies.chat_template import render

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ANSWER = "answer 7391"


class ControlTokens:
    """The control tokens of a tokenizer: its special tokens, and added tokens that its chat template writes.

    Args:
        tokenizer: any.
        chat_template_kwargs: what else its chat template is told.

    Attributes:
        end_of_turn: the one that the chat template puts after an answer; None where it puts none.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", chat_template_kwargs: Mapping[str, Any] | None = None):
        self._tokenizer, self._chat_template_kwargs = tokenizer, dict(chat_template_kwargs or {})
        answered = self._rendered({"role": "assistant", "content": _ANSWER})
        rendered = answered + self._rendered(add_generation_prompt=True)
        # Whitespace is an added token of Gemma's, which templates write as text.
        self._texts = {
            number: token.content
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.special or (token.content in rendered and not token.content.isspace())
        }
        self._texts.pop(tokenizer.unk_token_id, None)  # any text may hold what the tokenizer does not know
        self._ids = np.array(sorted(self._texts), dtype=np.int64)
        # Now, since splitting is a state of the tokenizer, which other threads may use later.
        self._as_text = {number: self._encoded_as_text(number, text) for number, text in self._texts.items()}
        after = tokenizer(answered.partition(_ANSWER)[2], add_special_tokens=False)["input_ids"]
        self.end_of_turn: int | None = next((after[place] for place in self.places(after)), None)

    def places(self, ids: Sequence[int]) -> np.ndarray:
        """int64: where control tokens stand."""
        return np.flatnonzero(np.isin(ids, self._ids))

    def spelled_out(self, ids: Sequence[int], literal_text: str, *, before: int = 0, after: int = 0) -> list[int]:
        """The tokens with plain text in place of control tokens.

        Args:
            ids: the tokens of a text.
            literal_text: what the prompt template says; control tokens that it names, such as tags, stay.
            before: so many of the first control tokens stay.
            after: so many of the last.
        """
        written, places = list(ids), self.places(ids)
        for place in reversed(places[before : len(places) - after]):
            if self._texts[token := written[place]] not in literal_text:
                written[place : place + 1] = self._as_text[token]
        return written

    def _rendered(self, *answers: dict[str, str], **options: Any) -> str:
        """A conversation as the chat template writes it; empty without one, and where it puts no answers."""
        if self._tokenizer.chat_template is None:
            return ""
        turns = [{"role": "user", "content": "prompt 7391"}, *answers]
        try:
            return render(self._tokenizer, turns, self._chat_template_kwargs, **options)
        except ValueError:
            return ""

    def _encoded_as_text(self, number: int, text: str) -> list[int]:
        options = {"add_special_tokens": False, "split_special_tokens": True}
        ids, line = (self._tokenizer(one, **options)["input_ids"] for one in (f"\n{text}", "\n"))
        if ids[: len(line)] == line:  # SentencePiece puts a space before what it encodes by itself
            ids = ids[len(line) :]
        if number not in ids:
            return ids
        # Added tokens that are not special are not split.
        return [token for part in (text[:1], text[1:]) for token in self._tokenizer(part, **options)["input_ids"]]
