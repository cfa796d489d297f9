"""Answers as text: what was chosen comes back word for word, and of a free answer only what ends it is left out."""

import unicodedata

import numpy as np
import pytest

from hgpo_gym.memory.prompts import PromptTemplate
from hgpo_gym.trainers.policies import Request, Sampling
from hgpo_gym.trainers.policies.language_model import LanguageModelPolicy
from tests.chat_models import STYLES, chat_model

FORM = PromptTemplate.named("instruct")
HARD = (
    "click[3-9x40mm bdc .350 legend]",
    "click[i 'm fine !]",
    unicodedata.normalize("NFD", "click[café 2 x]"),
    "open the </s><|im_end|> door",
    "say <|eot_id|><think>",
)
TEXTS = [FORM.first, *map(FORM.write_answer, ("walk on", "open the red door"))] * 3


@pytest.fixture(scope="module", params=STYLES)
def chat(request):
    return chat_model(request.param, TEXTS)


def test_a_constrained_answer_is_the_text_that_was_chosen_word_for_word(chat):
    """Also where tags are special tokens, characters are normalised, and spaces would be cleaned up."""
    model, tokenizer = chat
    policy = LanguageModelPolicy(model, tokenizer, constrain="admissible")
    answers = tuple(map(FORM.write_answer, HARD))
    asked = [Request("Hall.", answers, seed=(n,)) for n in range(80)]
    responses = policy.generate(asked, Sampling(temperature=100, max_new_tokens=8))  # any of them
    assert {response.text for response in responses} == set(answers)
    assert all(FORM.read(response.text).in_form and not response.cut_off for response in responses)


def test_of_two_answers_with_the_same_tokens_the_first_is_said(chat):
    model, tokenizer = chat
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    policy = LanguageModelPolicy(model, tokenizer, constrain="admissible")
    same = policy.encode_answer(composed).tolist() == policy.encode_answer(decomposed).tolist()
    assert same == (tokenizer.backend_tokenizer.normalizer is not None)
    asked = [Request("Hall.", (decomposed, composed, "go"), seed=(n,)) for n in range(40)]
    said = {response.text for response in policy.generate(asked, Sampling())}
    assert said == ({decomposed, "go"} if same else {decomposed, composed, "go"})


def test_a_free_answer_keeps_all_but_the_token_that_ends_it(chat):
    """Answers as the model might have written them: they are read from the tokens that were drawn."""
    model, tokenizer = chat
    policy = LanguageModelPolicy(model, tokenizer)
    written = "<think>it 's red .</think><action>open the red door</action>"
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    (sequence,) = policy.begin([Request("Hall.")], Sampling(max_new_tokens=100))
    for token in (*ids, tokenizer.eos_token_id):
        assert not sequence.done
        sequence.append(token, -1.0)
    assert sequence.done
    (response,) = policy.responses([sequence])
    assert response.text == written
    assert FORM.read(response.text) == ("open the red door", True)
    np.testing.assert_array_equal(response.tokens.token_ids, [*ids, tokenizer.eos_token_id])
    count = policy.tokens_within(response.tokens, len("<think>it 's red .</think>"))
    assert tokenizer.convert_ids_to_tokens(ids[count]) == "<action>"
