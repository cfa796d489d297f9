"""Environments that are played over HTTP, on a server of `hgpo-gym serve`. Needs the extra `server`.

The client imports nothing of the server: both share only the format of the messages.
"""

from hgpo_gym.client.connection import RemoteError, SessionLostError
from hgpo_gym.client.env import RemoteTextEnv

__all__ = ["RemoteError", "RemoteTextEnv", "SessionLostError"]
