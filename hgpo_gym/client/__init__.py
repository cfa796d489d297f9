"""Environments that are played over HTTP, on a server of `hgpo-gym serve`. Needs the extra `server`.

It imports nothing of the server: what both know is the text that goes over the wire.
"""

from hgpo_gym.client.connection import RemoteError, SessionLostError
from hgpo_gym.client.env import RemoteTextEnv

__all__ = ["RemoteError", "RemoteTextEnv", "SessionLostError"]
