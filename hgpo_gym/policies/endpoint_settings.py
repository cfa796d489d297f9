"""The settings of `policy=openai`."""

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from hgpo_gym.section import SettingsSection


class EndpointSettings(SettingsSection):
    """See `openai` in `configs/eval.yaml`."""

    base_url: str
    model: str | None
    key_variable: str
    chat: bool
    concurrency: PositiveInt
    retries: NonNegativeInt
    timeout: PositiveFloat
    on_failure: Literal["stop", "empty"]
    token_limit: str
    send_seed: bool
    extra: dict[str, Any]
    price_input: NonNegativeFloat | None
    price_output: NonNegativeFloat | None

    @model_validator(mode="after")
    def _check(self) -> "EndpointSettings":
        if self.model is None:
            raise ValueError("openai.model=None: name the model as the endpoint does, for example openai.model=gpt-4o.")
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"openai.base_url={self.base_url}: write it like http://localhost:8000/v1.")
        if url.username or url.password:
            raise ValueError(
                "openai.base_url holds a password, which would be shown with the settings: put the key in the "
                f"environment variable {self.key_variable}."
            )
        return self
