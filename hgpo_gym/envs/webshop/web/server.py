"""Web server of the shop for people: the pages of the environment as HTML, each session with its own goal.

It serves only this machine, sends no requests, and needs no scripts. Every button is an action of the environment, so
that a person has the same shop, the same steps and the same reward as an agent.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import gymnasium
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.shop.pages import DONE, ITEM, RESULTS, SEARCH, SUB_PAGES, ShopState
from hgpo_gym.envs.webshop.shop.rules import SEARCH_TEMPLATE

TEMPLATES = Path(__file__).with_name("templates")
_COOKIE = "webshop_session"
_MOST_SESSIONS = 256
_LONGEST_FORM = 1 << 16
_POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_FILES = {SEARCH: "search.html", RESULTS: "results.html", ITEM: "item.html", DONE: "end.html"}


class Part(NamedTuple):
    """Part of a score: the goal, the share of it that was met, and its weight."""

    name: str
    target: str
    met: float
    weight: str


class ShoppingSession:
    """Session of a person: an episode, and those after it.

    Args:
        env: a `WebShopEnv`, with or without wrappers; nobody else may use it.
        seed: of the goals.
        task_id: the first goal; None draws it.
    """

    def __init__(self, env: gymnasium.Env[str, str], seed: int, task_id: str | None = None):
        self.lock = threading.Lock()
        self._env = env
        shop = env.unwrapped
        assert isinstance(shop, WebShopEnv)
        self._shop = shop
        self.new_goal(seed=seed, options={"task_id": task_id} if task_id else None)

    def new_goal(self, **reset: Any) -> None:
        """Begin an episode."""
        _, self._info = self._env.reset(**reset)
        self._steps, self._reward, self._over, self._notice = 0, 0.0, False, ""

    def act(self, action: str) -> None:
        """Take a step, if the episode is running."""
        if self._over:
            return
        _, reward, terminated, truncated, self._info = self._env.step(action)
        self._steps += 1
        self._reward, self._over = float(reward), terminated or truncated
        self._notice = "" if self._info["action_valid"] else "That is not possible on this page."

    def page(self) -> str:
        """Return the present page as HTML."""
        state, spec = self._shop.state, self._env.spec
        file = "end.html" if self._over else _FILES.get(state.page, "reading.html")
        actions = self._info["admissible_actions"]
        return (
            _templates()
            .get_template(file)
            .render(
                state=state,
                goal=state.goal,
                catalogue=self._shop.catalogue,
                steps=self._steps,
                most_steps=spec.max_episode_steps if spec else None,
                notice=self._notice,
                suggestions=[action for action in actions if action != SEARCH_TEMPLATE],
                pages=[page for page in SUB_PAGES if f"click[{page}]" in actions],
                reward=self._reward,
                parts=_parts(state),
            )
        )


def _parts(state: ShopState) -> list[Part]:
    if not state.score:
        return []
    goal, parts = state.goal, state.score.parts
    rows = [Part("kind of product", goal.name, parts["r_type"], "factor")]
    if goal.attributes:
        rows.append(Part("attributes", ", ".join(goal.attributes), parts["r_att"], f"{parts['w_att']:.3f}"))
    if goal.options:
        goal_options = ", ".join(f"{name}: {value}" if name else value for name, value in goal.options)
        rows.append(Part("options", goal_options, parts["r_option"], f"{parts['w_option']:.3f}"))
    rows.append(Part("price", f"at most ${goal.price_limit:.2f}", float(parts["r_price"]), f"{parts['w_price']:.3f}"))
    return rows


@cache
def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


class ShopServer(ThreadingHTTPServer):
    """Server of the shop on 127.0.0.1. A cookie identifies the session of a browser. If there are many, the oldest are
    forgotten.

    Args:
        make_env: makes the environment of a session.
        port: 0 takes a free one.
        seed: of the first session's goals; each later session takes the next.
        task_id: the goal that every session begins with; None draws one.

    Attributes:
        url: where to point the browser.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True

    def __init__(
        self, make_env: Callable[[], gymnasium.Env[str, str]], port: int = 0, seed: int = 0, task_id: str | None = None
    ):
        self._make_env, self._seed, self._task_id = make_env, seed, task_id
        self._sessions: OrderedDict[str, ShoppingSession] = OrderedDict()
        self._lock = threading.Lock()
        # At once, so that a mistake in the options shows before anything is served.
        self._first: ShoppingSession | None = self._make_session()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def session(self, token: str) -> tuple[str, ShoppingSession]:
        """Return the session with a token, or a new one with its token."""
        with self._lock:
            if token not in self._sessions:
                token = secrets.token_urlsafe(16)
                self._sessions[token] = self._first or self._make_session()
                self._first = None
                if len(self._sessions) > _MOST_SESSIONS:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(token)
            return token, self._sessions[token]

    def _make_session(self) -> ShoppingSession:
        self._seed += 1
        return ShoppingSession(self._make_env(), self._seed - 1, self._task_id)


class _Handler(BaseHTTPRequestHandler):
    server: ShopServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self._is_local():
            return
        path = urlsplit(self.path).path
        if path == "/":
            token, session = self.server.session(self._token())
            with session.lock:
                page = session.page()
            self._send(HTTPStatus.OK, page, "text/html", token)
        elif path == "/style.css":
            self._send(HTTPStatus.OK, (TEMPLATES / "style.css").read_text(), "text/css")
        else:
            self._send(HTTPStatus.NOT_FOUND, "There is nothing here: go to /.", "text/plain")

    def do_POST(self) -> None:
        if not self._is_local():
            return
        form = self._form()
        if form is None:
            return
        path = urlsplit(self.path).path
        if path not in ("/act", "/new"):
            self._send(HTTPStatus.NOT_FOUND, "There is nothing here: go to /.", "text/plain")
            return
        token, session = self.server.session(self._token())
        with session.lock:
            if path == "/new":
                session.new_goal()
            else:
                session.act(_action(form))
        self._send(HTTPStatus.SEE_OTHER, "", "text/plain", token)

    def _is_local(self) -> bool:
        """Return whether the request's host name is local, and refuse it if not: other sites may have a name that leads
        to this machine."""
        host = self.headers.get("Host", "").partition(":")[0]
        if host in ("127.0.0.1", "localhost"):
            return True
        self._send(HTTPStatus.FORBIDDEN, f"Open {self.server.url} instead.", "text/plain")
        return False

    def _form(self) -> Mapping[str, str] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LONGEST_FORM:
            self.close_connection = True  # what was sent is not read
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too much.", "text/plain")
            return None
        fields = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"), keep_blank_values=True)
        return {name: values[-1] for name, values in fields.items()}

    def _token(self) -> str:
        cookies = (cookie.strip().partition("=") for cookie in self.headers.get("Cookie", "").split(";"))
        return next((value for name, _, value in cookies if name == _COOKIE), "")

    def _send(self, status: HTTPStatus, body: str, kind: str, token: str = "") -> None:
        content = body.encode("utf-8", "replace")  # products may hold lone surrogates
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _POLICY)
        if status == HTTPStatus.SEE_OTHER:
            self.send_header("Location", "/")
        if token:
            self.send_header("Set-Cookie", f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""


def _action(form: Mapping[str, str]) -> str:
    """Return the action of a pressed button or of typed text, without the brackets that would split the action
    elsewhere."""
    if "action" in form:
        return form["action"]
    query = " ".join(form.get("query", "").translate({ord("["): " ", ord("]"): " "}).split())
    return f"search[{query}]"
