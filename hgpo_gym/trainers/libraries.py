"""Keep the messages of frameworks out of a user's terminal."""

import logging
import os
import sys
import warnings

FRAMEWORKS = "transformers|torch|peft|accelerate|bitsandbytes|tokenizers|huggingface_hub|vllm"


def quiet_libraries(threads: int | None) -> None:
    """Set torch's CPU threads and silence the messages that frameworks write for programmers. These are progress
    bars, deprecation warnings and hints about kernels. TRANSFORMERS_VERBOSITY and PYTHONWARNINGS bring them back."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.warnoptions:
        for category in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=rf"({FRAMEWORKS})(\.|$)")
    # Do not import transformers here: a table's run need not wait for it. It reads these variables on import.
    transformers = sys.modules.get("transformers")
    if transformers is None:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    else:
        transformers.utils.logging.disable_progress_bar()
    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        if transformers is None:
            os.environ["TRANSFORMERS_VERBOSITY"] = "error"
        else:
            transformers.utils.logging.set_verbosity_error()
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
