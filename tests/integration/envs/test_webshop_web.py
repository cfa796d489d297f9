"""The shop in a browser: the same pages, steps and rewards as the environment's, over HTTP and in Chromium."""

import http.client
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from hgpo_gym.envs.registration import make
from hgpo_gym.envs.webshop.env import WebShopEnv
from hgpo_gym.envs.webshop.generation import write_catalogue
from hgpo_gym.envs.webshop.shop.pages import TEXT, page_pieces
from hgpo_gym.envs.webshop.web.server import ShoppingSession, ShopServer
from tests.support.commands import run
from tests.support.threads import at_work

OPTIONS = {"split": "generated", "max_episode_steps": 15}


@pytest.fixture(autouse=True)
def cache(webshop_cache, monkeypatch):
    monkeypatch.setenv("HGPO_GYM_CACHE", str(webshop_cache))


def serving(**options):
    server_options = {name: options.pop(name) for name in ("seed", "task_id", "port") if name in options}
    server = ShopServer(partial(make, "hgpo_gym/WebShop-v0", **(OPTIONS | options)), **server_options)
    return at_work(server)


@pytest.fixture
def server():
    with serving() as running:
        yield running


class Markup(HTMLParser):
    """The texts of a page, its buttons by what they send, and what it refers to."""

    def __init__(self, html):
        super().__init__()
        self.texts, self.buttons, self.links, self.tags = [], {}, [], set()
        self._button = None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.add(tag)
        self.links += [given[name] for name in ("href", "src", "action") if given.get(name)]
        if tag == "button" and given.get("name") == "action":
            self._button = given["value"]
            self.buttons[self._button] = given

    def handle_data(self, data):
        if data.strip():
            self.texts.append(" ".join(data.split()))


class Browser:
    """Requests with the cookie of a session."""

    def __init__(self, server):
        self._address = server.server_address
        self.cookie = ""

    def request(self, method, path, body="", **headers):
        connection = http.client.HTTPConnection(*self._address)
        headers = {"Cookie": self.cookie, "Content-Type": "application/x-www-form-urlencoded", **headers}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        if response.headers["Set-Cookie"]:
            self.cookie = response.headers["Set-Cookie"].partition(";")[0]
        return response, content

    def look(self):
        response, html = self.request("GET", "/")
        assert response.status == 200
        return Markup(html)

    def send(self, path="/act", **form):
        response, _ = self.request("POST", path, urlencode(form))
        assert (response.status, response.headers["Location"]) == (303, "/")
        return self.look()


def first_product(page):
    return next(action for action in page.buttons if action.startswith("click[gen"))


def goal_of(page):
    return page.texts[page.texts.index("Your goal:") + 1]


def test_a_goal_can_be_met_by_pressing_buttons(server):
    browser = Browser(server)
    browser.look()
    page = browser.look()
    env = WebShopEnv(split="generated", expert=True)
    _, info = env.reset(seed=0)
    assert goal_of(page) == " ".join(info["task"].split())
    terminated = False
    while not terminated:
        action = info["expert_action"]
        if action.startswith("search["):
            page = browser.send(query=action[7:-1])
        else:
            assert action in page.buttons
            page = browser.send(action=action)
        _, reward, terminated, _, info = env.step(action)
    assert reward == 10
    assert page.texts[page.texts.index("Score") : page.texts.index("Score") + 4] == ["Score", "1.000", ", reward", "10"]
    assert page.buttons == {}
    goal = env.state.goal
    for text in (", ".join(goal.attributes), f"at most ${goal.price_limit:.2f}", "100%"):
        assert text in page.texts


def test_every_page_says_what_the_environment_says_and_offers_the_same_actions():
    shop = make("hgpo_gym/WebShop-v0", **OPTIONS, show_attributes=True, queries="suggested")
    session = ShoppingSession(shop, seed=0)
    env = shop.unwrapped
    asin = env.catalogue.search(env.state.goal.instruction)[0].lower()
    value = next(iter(env.catalogue.product(env.catalogue.number(asin.upper())).options.values()))[0]
    first = shop.get_wrapper_attr("_last_turn").admissible_actions[0]
    walk = [first, "click[next >]", "click[< prev]", f"click[{asin}]", f"click[{value}]"]
    for page in ("description", "features", "reviews", "attributes"):
        walk += [f"click[{page}]", "click[< prev]"]
    for action in (None, *walk, "click[< prev]"):
        if action:
            session.act(action)
        markup, state = Markup(session.page()), env.state
        turn = shop.get_wrapper_attr("_last_turn")
        assert turn.action_valid
        assert sorted(markup.buttons) == sorted(turn.admissible_actions)
        shown = " ".join(markup.texts)
        for piece in page_pieces(state, env.catalogue, show_attributes=True):
            if piece.kind == TEXT and not piece.text.startswith("Instruction:"):
                assert " ".join(piece.text.split()) in shown, piece
        chosen = [button for button, given in markup.buttons.items() if given.get("aria-pressed") == "true"]
        assert chosen == ([f"click[{value}]"] if state.options and state.page == "item" else [])


def test_each_browser_has_a_goal_and_keeps_it(server):
    browsers = [Browser(server) for _ in range(3)]
    goals = [goal_of(browser.look()) for browser in browsers]
    assert len(set(goals)) == 3
    browsers[0].send(query="shampoo")
    assert [goal_of(browser.look()) for browser in browsers] == goals
    assert "Search" not in browsers[0].look().texts
    assert "Search" in browsers[1].look().texts


def test_all_sessions_begin_with_the_goal_that_was_asked_for():
    task_id = WebShopEnv(split="generated").task_ids[7]
    with serving(task_id=task_id) as server:
        goals = {goal_of(Browser(server).look()) for _ in range(2)}
    assert len(goals) == 1


def test_sessions_act_side_by_side(server):
    def shop(browser):
        goal = goal_of(browser.look())
        for _ in range(4):
            page = browser.send(query="shampoo")
            page = browser.send(action=first_product(page))
            assert "Buy Now" in page.texts
            page = browser.send("/new")
            assert goal_of(page) != goal
            goal = goal_of(page)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(shop, [Browser(server) for _ in range(6)]))


def test_steps_run_out():
    with serving(max_episode_steps=2) as server:
        browser = Browser(server)
        browser.look()
        browser.send(query="shampoo")
        page = browser.send(action="click[next >]")
        assert "Out of steps." in page.texts
        assert "Step 2 of 2" in page.texts
        assert "Out of steps." in browser.send(query="shampoo").texts


@pytest.mark.parametrize("action", ["click[nothing like it]", "dance", "search[]", "click[<script>]"])
def test_an_impossible_request_is_an_error_and_changes_nothing(server, action):
    browser = Browser(server)
    browser.look()
    page = browser.send(action=action)
    assert "That is not possible on this page." in page.texts
    assert "Search" in page.texts


@pytest.mark.parametrize("query", ["[a] shampoo", "shampoo\r\nclick[x]", "<b>shampoo</b>", "shampoo & 'soap' \"bar\""])
def test_any_query_can_be_typed(server, query):
    browser = Browser(server)
    browser.look()
    assert any(re.match("Page 1", text) for text in browser.send(query=query).texts)


def test_markup_in_the_data_is_text(tmp_path):
    bad = "<script>alert('x')</script><img src=//evil.example/x>"
    folder = write_catalogue(tmp_path / "shop", seed=0, products=20)
    fields = r'("(?:name|full_description|value|instruction)": "|"small_description": \["|"customization_options": {")'
    for file in folder.iterdir():
        file.write_text(re.sub(fields, lambda found: found[1] + bad, file.read_text()))
    session = ShoppingSession(make("hgpo_gym/WebShop-v0", data=folder, split="all"), seed=0)
    for action in ("search[water]", None, "click[features]", "click[< prev]", "click[description]", "click[< prev]"):
        session.act(action or first_product(Markup(session.page())))
        html = session.page()
        assert html.count("&lt;script&gt;") >= 2  # the goal, and what the page is about
        assert not Markup(html).tags & {"script", "img"}
    chosen = next(button for button in Markup(session.page()).buttons if "<script>" in button)
    session.act(chosen)
    assert Markup(session.page()).buttons[chosen]["aria-pressed"] == "true"


def test_pages_ask_nothing_of_other_sites(server):
    browser = Browser(server)
    pages = [browser.look(), browser.send(query="shampoo")]
    pages.append(browser.send(action=first_product(pages[-1])))
    pages.append(browser.send(action="click[buy now]"))
    for page in pages:
        assert set(page.links) <= {"/style.css", "/act", "/new"}
    response, css = browser.request("GET", "/style.css")
    assert response.headers["Content-Type"].startswith("text/css")
    assert "url(" not in css
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_only_this_machine_is_served_under_its_name(server):
    assert server.server_address[0] == "127.0.0.1"
    browser = Browser(server)
    for method in ("GET", "POST"):
        response, text = browser.request(method, "/", Host="evil.example")
        assert response.status == 403
        assert server.url in text
    assert browser.cookie == ""


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/etc/passwd", {}, 404),
        ("GET", "/../shop.html", {}, 404),
        ("POST", "/buy", {}, 404),
        ("POST", "/act", {"Content-Length": "99999999"}, 413),
        ("POST", "/act", {"Content-Length": "-1"}, 413),
        ("PUT", "/", {}, 501),
    ],
)
def test_other_requests_are_refused(server, method, path, headers, status):
    response, _ = Browser(server).request(method, path, **headers)
    assert response.status == status
    Browser(server).look()


def test_the_command_serves_until_it_is_interrupted(webshop_cache):
    command = [sys.executable, "-m", "hgpo_gym", "play", "--web", "--port", "0", "env=webshop", "env.split=generated"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
            connection = http.client.HTTPConnection("127.0.0.1", int(address[1]))
            connection.request("GET", "/")
            assert "Your goal:" in connection.getresponse().read().decode()
            connection.close()
        finally:
            process.send_signal(2)
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["env=signpost_maze"], "env=webshop"),
        (["env=webshop", "env.split=generated", "--port", "70000"], "from 0"),
        (["env=webshop", "env.split=generated", "task_id=nothing"], "nothing"),
    ],
)
def test_mistakes_are_explained(capsys, arguments, message):
    status, _, error = run(capsys, "play", "--web", *arguments)
    assert status == 2
    assert message in error


def test_a_port_in_use_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        test_mistakes_are_explained(
            capsys, ["--port", port, "env=webshop", "env.split=generated"], f"Port {port} is taken"
        )


@contextmanager
def window(browser, server, **options):
    """A window with separate cookies, at the shop."""
    with browser.new_context(**options) as context:
        context.set_default_timeout(600_000)  # machines that run tests may be slow
        page = context.new_page()
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(server.url)
        yield page


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (360, 640)], ids=["desktop", "phone"])
def test_a_person_shops_in_a_browser(server, browser, width, height):
    """From the goal to the reward; nothing goes beyond the screen's width, and nothing is asked of other machines."""
    env = WebShopEnv(split="generated", expert=True)
    _, info = env.reset(seed=0)
    with window(browser, server, viewport={"width": width, "height": height}) as page:
        assert info["task"] in page.inner_text("header")
        terminated = False
        while not terminated:
            action = info["expert_action"]
            if action.startswith("search["):
                with page.expect_navigation():  # the field has the focus
                    page.keyboard.type(action[7:-1])
                    page.keyboard.press("Enter")
            else:
                with page.expect_navigation():
                    page.locator(f'button[value="{action}"]').click()
            _, _, terminated, _, info = env.step(action)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.inner_text(".score") == "Score 1.000, reward 10"
        with page.expect_navigation():
            page.get_by_role("button", name="New goal").click()
        assert "Step 0 of 15" in page.inner_text("header")
        assert {url.split("/")[2] for url in page.asked} == {server.url.split("/")[2]}
