"""Limits on a client's use of a server."""

from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Limits:
    """Limits on a client's use of a server. Each is an argument of `hgpo-gym serve`, with this help.

    Raises:
        ValueError: a limit is not above 0.
    """

    sessions: int = field(default=256, metadata={"help": "sessions open at once"})
    sessions_per_client: int = field(
        default=64, metadata={"help": "of them, by one token or, without tokens, one address"}
    )
    idle_timeout: float = field(default=600.0, metadata={"help": "seconds after which an unused session is closed"})
    time_limit: float = field(default=60.0, metadata={"help": "seconds; what takes an environment longer is given up"})
    threads: int = field(default=8, metadata={"help": "in which environments run; one client has at most half of them"})
    body: int = field(default=1 << 20, metadata={"help": "bytes of a request"})
    connections: int = field(default=768, metadata={"help": "open at once; further ones are closed"})
    episode: int = field(
        default=1 << 21, metadata={"help": "characters of an episode's actions, each counted as 100 at least"}
    )

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{argument(name)} {value}: must be above 0.")

    @property
    def requests_per_client(self) -> int:
        """Return the most requests of one client at once: a step in every session, and a repetition of each."""
        return 2 * self.sessions_per_client


LIMITS = fields(Limits)


def argument(name: str) -> str:
    """Return the command-line argument of a limit."""
    return f"--{name.replace('_', '-')}"
