"""Language models: loaded from a folder or the hub, or made from scratch for a small environment."""

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers  # it imports its parts at their first use: a table policy needs none of them
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from hgpo_gym.extras import install_command
from hgpo_gym.plain_text import first_of
from hgpo_gym.policies.language_part import freeze_towers
from hgpo_gym.policies.likelihood import head_logits
from hgpo_gym.suggest import unknown_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

QUANTIZATIONS = ("nf4",)

GENERIC_TOKENIZERS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Tokenizer classes that `tokenizer.json` describes completely, such as those of `train_tokenizer`."""

END_OF_TEXT = "<|endoftext|>"

_NO_TOKENIZER = (
    "model.path={} has no tokenizer: expected tokenizer.json beside config.json. Copy the tokenizer's files there from "
    "the model that it was trained from."
)


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    path: str, *, device: str = "auto", dtype: str = "float32", quantization: str | None = None
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Return a causal language model and its tokenizer, from a local folder or the Hugging Face hub.

    Dropout and the routers' noise are off, also in training, so that the likelihood is that of the distribution from
    which a response was drawn.

    Args:
        path: a folder that holds `config.json`, or a hub name like `Qwen/Qwen2.5-1.5B-Instruct`.
        device: `auto` chooses a GPU if there is one.
        dtype: the format of the weights, `float32` or `bfloat16`.
        quantization: `nf4` keeps the weights of linear layers in 4 bits, and computes in `dtype`.

    Raises:
        ValueError: logits other than those of its output embeddings, see `head_logits`; no tokenizer, or one with
            tokens for which the model has no embedding; a model with its own code.
        FileNotFoundError: the path looks local and holds no model.
        OSError: transformers cannot load it, for example because the hub cannot be reached.
        ModuleNotFoundError: quantization without bitsandbytes.
    """
    if dtype not in DTYPES:
        raise ValueError(unknown_name("model.dtype", dtype, DTYPES))
    source, looks_local = _source_of(path)
    # trust_remote_code must be given: without it, transformers asks in a terminal whether to run the model's code.
    options: dict[str, Any] = {"dtype": DTYPES[dtype], "trust_remote_code": False}
    if quantization is not None:
        options |= {
            "quantization_config": _quantization_config(quantization, DTYPES[dtype]),
            "device_map": {"": resolve_device(device)},
        }
    with _loading_errors_named(path, looks_local):
        tokenizer = _load_tokenizer(source, path)
        model: PreTrainedModel = transformers.AutoModelForCausalLM.from_pretrained(source, **options)
    _check_embedding(model, tokenizer, path)
    if quantization is None:
        model = _on(model, device)
    _switch_off_noise(model)
    freeze_towers(model)
    _check_head(model)
    return model, tokenizer


def load_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """Return the tokenizer of a model. Raises as `load_model`."""
    source, looks_local = _source_of(path)
    with _loading_errors_named(path, looks_local):
        return _load_tokenizer(source, path)


def _source_of(path: str) -> tuple[str, bool]:
    """Return the path or name for transformers, and True for a local folder. Raises FileNotFoundError."""
    looks_local = path.startswith((".", "/", "~")) or Path(path).exists()
    folder = Path(path).expanduser().resolve()
    if looks_local and not (folder / "config.json").exists():
        if (folder / "adapter_config.json").exists():
            raise FileNotFoundError(f"{path} holds an adapter alone. 'hgpo-gym export' makes a whole model of a run.")
        raise FileNotFoundError(
            f"No model in {path}: expected config.json there. Make one with 'hgpo-gym warmstart', or name a hub model."
        )
    return str(folder) if looks_local else path, looks_local


@contextmanager
def _loading_errors_named(path: str, looks_local: bool) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "" if looks_local else " A folder that holds the model needs no network: model.path=FOLDER."
        raise OSError(f"model.path={path} cannot be loaded: {str(error).strip()}{remedy}") from error
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"model.path={path} has code of its own (auto_map in its configuration), which is never run here. "
                f"Choose a model of an architecture that transformers {transformers.__version__} has itself."
            ) from error
        if "backend tokenizer" in str(error):
            raise ValueError(_NO_TOKENIZER.format(path)) from error
        raise


def _check_embedding(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", path: str) -> None:
    rows = int(model.get_input_embeddings().weight.size(0))  # type: ignore[operator]
    named = tokenizer.special_tokens_map
    # Text never has these tokens. Gemma 3's text-only models share the tokenizer of the multimodal ones.
    other_media = {named.get(f"{medium}_token") for medium in ("image", "audio", "video")}
    beyond = {id: token for token, id in tokenizer.get_vocab().items() if id >= rows and token not in other_media}
    if beyond:
        tokens = first_of([f"{beyond[id]} ({id})" for id in sorted(beyond)])
        raise ValueError(
            f"model.path={path}: the embedding has {rows:,} rows, and none for the tokenizer's {tokens}. "
            "Resize it, model.resize_token_embeddings(len(tokenizer)), and save the model again."
        )


def _switch_off_noise(model: "PreTrainedModel") -> None:
    """Set dropout and jitter to 0: in every module, in torch's or as its own rate, and in the configuration, where some
    layers read it."""
    for holder in (*model.modules(), model.config.get_text_config()):
        for name, value in vars(holder).items():
            noise = "drop" in name or "jitter" in name or isinstance(holder, torch.nn.Dropout)
            if noise and isinstance(value, float):
                setattr(holder, name, 0.0)


@torch.no_grad()
def _check_head(model: "PreTrainedModel") -> None:
    tokens = torch.arange(2, device=model.device)[None]
    whole = model(input_ids=tokens, use_cache=False).logits.float()
    computed = head_logits(model, model.get_decoder()(input_ids=tokens, use_cache=False).last_hidden_state)
    # Relative to the largest logit: in bfloat16 the two computations differ by rounding.
    if not torch.allclose(computed, whole, rtol=0.05, atol=0.05 * float(whole.abs().max())):
        raise ValueError(
            f"model.path: {type(model).__name__} does something else with its last hidden states than to put them "
            "through its output embeddings, scaled or capped. Policies are trained by those alone: choose another one."
        )


def _quantization_config(quantization: str, compute_dtype: torch.dtype) -> Any:
    if quantization not in QUANTIZATIONS:
        raise ValueError(unknown_name("model.quantization", quantization, QUANTIZATIONS))
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModuleNotFoundError(
            f"model.quantization={quantization} needs bitsandbytes: {install_command('bitsandbytes')}"
        )
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
    )


def checkpoint_activations(model: Any) -> None:
    """Switch on gradient checkpointing (Chen et al., 2016): in training mode each layer keeps only its input, and the
    backward pass computes the rest again. The gradients are the same.

    Raises:
        ValueError: the model has no layers that can do that.
    """
    # transformers has renamed this method; the old name still works, with a warning.
    enable = getattr(model, "activation_checkpointing_enable", None) or getattr(
        model, "gradient_checkpointing_enable", None
    )
    if enable is None:
        raise ValueError(f"trainer.gradient_checkpointing=true: {type(model).__name__} has no layers to checkpoint.")
    enable({"use_reentrant": False})


def _load_tokenizer(source: str, path: str) -> "PreTrainedTokenizerBase":
    # For some architectures, such as Qwen2, AutoTokenizer replaces the pre-tokenizer of tokenizer.json by the
    # architecture's: " 1" would be one token before saving and two after loading.
    kind = transformers.models.auto.tokenization_auto.get_tokenizer_config(source).get("tokenizer_class")
    loader = transformers.PreTrainedTokenizerFast if kind in GENERIC_TOKENIZERS else transformers.AutoTokenizer
    tokenizer = loader.from_pretrained(source, trust_remote_code=False)
    ids = tokenizer("The 2 red foxes go on.", add_special_tokens=False)["input_ids"]
    if not set(ids).difference(tokenizer.all_special_ids):  # without files, transformers makes an empty tokenizer
        raise ValueError(_NO_TOKENIZER.format(path))
    return tokenizer


def save_model(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    folder: Path,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write a plain Hugging Face folder, with `weights` in place of the model's, if given."""
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)


def resolve_device(device: str) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one. Raises ValueError if there is no such device."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError:
        raise ValueError(f"model.device={device}: no kind of device. Choose auto, cpu, cuda, or cuda:1.") from None
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"model.device={device}: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs here. Choose auto "
            "or cpu."
        )
    return resolved


def _on(model: "PreTrainedModel", device: str) -> "PreTrainedModel":
    return model.to(resolve_device(device))  # type: ignore[arg-type]  # transformers' decorator hides the signature


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> "PreTrainedTokenizerFast":
    """Return a byte-level BPE tokenizer trained on `texts`: common words are one token, and any text can be decoded
    again."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
    )


def make_tiny_model(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    hidden_size: int,
    layers: int,
    heads: int,
    seed: int,
    max_positions: int = 8192,
    device: str = "auto",
) -> "PreTrainedModel":
    """Return a Qwen2-architecture model with random weights drawn from `seed`, feed-forward width 4 x hidden_size.

    Raises:
        ValueError: `hidden_size` is not a multiple of `heads`.
    """
    if hidden_size % heads:
        raise ValueError(f"model.hidden_size={hidden_size} must be a multiple of model.heads={heads}.")
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_positions,
        # The architecture's default of 0.02 suits widths above a thousand; in a narrow model it mutes attention.
        initializer_range=hidden_size**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen2ForCausalLM(config)
    return _on(model, device)
