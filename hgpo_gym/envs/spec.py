"""`spec` of an environment: Gymnasium's record of how it was made."""

import os
from typing import Any

from gymnasium.envs.registration import EnvSpec


class PortableSpec:
    """Descriptor of an `EnvSpec` that writes paths among its options as text, so that `to_json` can write them."""

    def __get__(self, env: Any, kind: type | None = None) -> EnvSpec | None:
        return None if env is None else vars(env).get("_spec")

    def __set__(self, env: Any, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec.kwargs = {name: _portable(value) for name, value in spec.kwargs.items()}
        vars(env)["_spec"] = spec


def _portable(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return type(value)(map(_portable, value)) if type(value) in (list, tuple) else value
