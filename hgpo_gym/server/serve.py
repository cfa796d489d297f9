"""The command `hgpo-gym serve`: its arguments and its server."""

import argparse
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hgpo_gym.extras import requires_extra
from hgpo_gym.network import is_loopback
from hgpo_gym.server.limits import LIMITS, Limits, argument

TOKEN_VARIABLE = "HGPO_GYM_SERVER_TOKEN"
_SHORTEST_TOKEN = 16


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    command.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; other than localhost, a token is required"
    )
    command.add_argument("--port", type=int, default=8000, help="0 chooses a free one (8000)")
    command.add_argument(
        "--env",
        dest="environments",
        action="append",
        nargs="+",
        default=[],
        metavar=("ID", "OPTION=VALUE"),
        help="offer this environment with these options; OPTION=[A,B] lets clients choose. May be given several times; "
        "without it, all registered ones are offered with their defaults",
    )
    command.add_argument(
        "--token-file", type=Path, metavar="FILE", help=f"a token a line, one for each client (or ${TOKEN_VARIABLE})"
    )
    for limit in LIMITS:
        assert isinstance(limit.default, int | float)
        command.add_argument(
            argument(limit.name),
            type=type(limit.default),
            default=limit.default,
            metavar="N",
            help=f"{limit.metadata['help']} ({limit.default})",
        )
    command.add_argument(
        "--access-log", action="store_true", help="a line for each request, without anything that was sent"
    )


def serve(parsed: argparse.Namespace) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        ModuleNotFoundError: the extra `server` is not installed.
        OSError: the address is not available, or the data of an environment is missing.
        ValueError: invalid arguments.
    """
    with requires_extra("server", "The server"):
        import uvicorn

        from hgpo_gym.server.app import create_app
        from hgpo_gym.server.connections import connections_of
        from hgpo_gym.server.offers import make_offers

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    limits = Limits(**{limit.name: getattr(parsed, limit.name) for limit in LIMITS})
    tokens = read_tokens(parsed.token_file, os.environ.get(TOKEN_VARIABLE))
    if not tokens and not is_loopback(parsed.host):
        raise ValueError(
            f"--host {parsed.host} can be reached from other machines, so clients need a token: give --token-file FILE "
            f"or set {TOKEN_VARIABLE}."
        )
    with _listen(parsed.host, parsed.port) as listening:
        offers = make_offers(parsed.environments)
        app = create_app(offers, limits, tokens, access_log=parsed.access_log)
        config = uvicorn.Config(
            app,
            http=connections_of(limits.connections),  # h11 limits the size of headers
            ws="none",
            proxy_headers=False,  # else a client could forge its address
            server_header=False,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,  # it would contain paths with session ids, which are secret
            timeout_graceful_shutdown=10,
        )
        logging.info(
            "Serving %s on http://%s:%d (see /docs)%s",
            ", ".join(offers),
            f"[{parsed.host}]" if ":" in parsed.host else parsed.host,
            listening.getsockname()[1],
            "" if tokens else ", to this machine, without a token",
        )
        with suppress(KeyboardInterrupt):  # the normal end of the server
            uvicorn.Server(config).run(sockets=[listening])
        logging.info("Stopped.")


def read_tokens(file: Path | None, variable: str | None) -> list[str]:
    """Return the tokens of a file, one per line, or the token of the environment variable.

    Raises:
        OSError: the file cannot be read.
        ValueError: both are given, the file has no token, or a token is too short or not ASCII.
    """
    if file and variable:
        raise ValueError(f"Both --token-file and {TOKEN_VARIABLE} give tokens: leave out one of them.")
    tokens: Sequence[str] = [variable] if variable else []
    if file:
        tokens = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        if not tokens:
            raise ValueError(f"{file} has no token: write one a line.")
    for number, token in enumerate(tokens, start=1):
        if len(token) < _SHORTEST_TOKEN or not token.isascii() or any(map(str.isspace, token)):
            raise ValueError(
                f"Token {number} must have {_SHORTEST_TOKEN} or more ASCII characters and no space; this makes one: "
                "python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return list(tokens)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise OSError(f"Cannot serve on {host}, port {port} ({error}): choose another --host or --port.") from error
    # asyncio sets this only on sockets that it makes. Without it every response waits 40 ms for the client's TCP.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
