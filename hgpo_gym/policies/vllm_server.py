"""Client of a vLLM server, on this machine or on another that shares a folder with it.

Start the server before the run, with any model of the same architecture:

    VLLM_SERVER_DEV_MODE=1 VLLM_USE_V2_MODEL_RUNNER=0 vllm serve MODEL --tokens-only \\
        --logprobs-mode processed_logprobs --hf-overrides '{"tie_word_embeddings": false}' \\
        --worker-extension-cls hgpo_gym.policies.vllm_worker.TrainerWeights \\
        --logits-processors hgpo_gym.policies.vllm_constraint:AdmissibleResponses

on a CPU also with `--dtype float32 --no-enable-chunked-prefill --max-num-batched-tokens` as long as its longest prompt
(see `VllmEngine` for the reasons). Without `engine.constrain` leave out the logits processor. The server gets weights
through a folder, such as one in /dev/shm: vLLM's transfer between processes needs GPUs on both sides (NCCL or CUDA
IPC).
"""

import json
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo_gym.network import goes_by_proxy
from hgpo_gym.policies.vllm_engine import save_weights
from hgpo_gym.policies.vllm_requests import CONSTRAINT, SCORING, WORKER, Completion, Stopped

if TYPE_CHECKING:
    import torch

UNTIED = "tie_word_embeddings"
PATIENCE = 0.02
"""Seconds that `step` waits for a response before it returns to the environments."""


class VllmServer:
    """Engine on a vLLM server.

    Args:
        url: of the server, like `http://localhost:8000`.
        folder: for weights, which the server reads; None makes one in the temporary directory.
        connections: the number of concurrent requests.
        timeout: seconds to wait for a response before TimeoutError ends the run.
        constrained: True if requests may restrict responses to a trie.

    Raises:
        ConnectionError: no server listens at `url`.
        TimeoutError: the server does not respond.
        ValueError: the server was started without a required flag.
    """

    def __init__(self, url: str, folder: str | None, connections: int, *, timeout: float, constrained: bool):
        self.takes_adapter = False
        self._url, self._timeout = url.rstrip("/"), timeout
        # None stands for the proxies in environment variables.
        proxies: dict[str, str] | None = None if goes_by_proxy(url) else {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        self._temporary = tempfile.TemporaryDirectory(prefix="hgpo_gym-weights-") if folder is None else None
        self._folder = Path(self._temporary.name if self._temporary else folder)  # type: ignore[arg-type]
        self._pool = ThreadPoolExecutor(connections)
        self._open: dict[Future[Any], str] = {}
        self._versions = count()
        model = self._check(constrained)
        self.max_model_len: int = model["max_model_len"]
        self.dtype = str(model.get("dtype", "auto")).removeprefix("torch.")

    def submit(
        self,
        name: str,
        prompt_ids: list[int],
        parameters: Mapping[str, Any],
        stopped: Stopped | None = None,  # noqa: ARG002 - a server sends whole responses only
    ) -> None:
        body = {"token_ids": prompt_ids, "sampling_params": dict(parameters)}
        self._open[self._pool.submit(self._ask, "/inference/v1/generate", body)] = name

    def step(self) -> list[Completion]:
        done, _ = wait(self._open, timeout=PATIENCE, return_when=FIRST_COMPLETED)
        return [_completion(self._open.pop(future), future.result()) for future in done]

    def load(self, weights: "Iterable[tuple[str, torch.Tensor]]", tied_head: str | None) -> list[str]:
        folder = self._folder / str(next(self._versions))
        folder.mkdir(parents=True)
        path = folder.resolve() / "model.safetensors"
        save_weights(weights, path)
        arguments = {"path": str(path), "tied_head": tied_head}
        response = self._ask("/collective_rpc", {"method": "load_trainer_weights", "kwargs": arguments})
        shutil.rmtree(folder)
        return sorted(set().union(*response["results"]))

    def logprobs(self, token_ids: list[int]) -> list[float]:
        response = self._ask("/inference/v1/generate", {"token_ids": token_ids, "sampling_params": dict(SCORING)})
        by_position = response["prompt_logprobs"][1:]
        return [by_token[str(token)]["logprob"] for by_token, token in zip(by_position, token_ids[1:], strict=True)]

    def load_adapter(self, folder: Path) -> None:
        """Raise NotImplementedError: a server gets merged weights."""
        raise NotImplementedError

    def forget(self) -> None:
        """Cancel queued requests, wait for running ones, and reset the prefix cache."""
        for future in self._open:
            future.cancel()
        wait(self._open)
        self._open.clear()
        if not self._ask("/reset_prefix_cache", {})["success"]:
            raise RuntimeError(
                f"The vLLM server at {self._url} does not reset its prefix cache: does another client use it?"
            )

    def wake(self, part: str) -> None:
        """See `InferenceEngine`: its memory is its own."""

    def sleep(self) -> bool:
        """See `InferenceEngine`: its memory is its own."""
        return False

    def _check(self, constrained: bool) -> dict[str, Any]:
        """Return the server's description of its model. Raises ValueError if the server lacks a required flag."""
        config = self._ask("/server_info?config_format=json")["vllm_config"]
        model: dict[str, Any] = config["model_config"]
        # A flag that the server does not report shows only in the first load of weights.
        worker = config.get("parallel_config", {}).get("worker_extension_cls", WORKER)
        flags = {
            "--logprobs-mode processed_logprobs": model["logprobs_mode"] == "processed_logprobs",
            "--hf-overrides '{\"tie_word_embeddings\": false}'": model["hf_overrides"].get(UNTIED) is False,
            f"--worker-extension-cls {WORKER}": worker == WORKER,
            f"--logits-processors {CONSTRAINT}": not constrained or CONSTRAINT in (model["logits_processors"] or ()),
        }
        if missing := [flag for flag, is_set in flags.items() if not is_set]:
            raise ValueError(f"The vLLM server at {self._url} was started without {' '.join(missing)}.")
        return model

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                return json.load(response)
        except TimeoutError:
            raise self._no_response(path) from None
        except urllib.error.HTTPError as error:
            hint = " Was it started with VLLM_SERVER_DEV_MODE=1 and --tokens-only?" if error.code == 404 else ""
            raise RuntimeError(
                f"The vLLM server at {self._url} answers {path} with {error.code}: {error.read().decode()}{hint}"
            ) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._no_response(path) from None
            raise ConnectionError(
                f"No vLLM server at engine.server={self._url} ({error.reason}): start one as {__name__} says."
            ) from None

    def _no_response(self, path: str) -> TimeoutError:
        return TimeoutError(
            f"The vLLM server at {self._url} has not answered {path} for {self._timeout:g} seconds. Look at its log; "
            "raise engine.server_timeout if its responses take longer."
        )


def _completion(name: str, response: Mapping[str, Any]) -> Completion:
    (choice,) = response["choices"]
    return Completion(name, choice["token_ids"], [token["logprob"] for token in choice["logprobs"]["content"]])
