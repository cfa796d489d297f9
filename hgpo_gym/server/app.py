"""The routes of the server, as an ASGI application; `/docs` shows them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Route

from hgpo_gym import __version__
from hgpo_gym.envs import ENVIRONMENTS
from hgpo_gym.server import models
from hgpo_gym.server.guard import OPEN_PATHS, Guard
from hgpo_gym.server.limits import Limits
from hgpo_gym.server.offers import EnvironmentOffer
from hgpo_gym.server.problems import MEDIA_TYPE, ProblemDetails
from hgpo_gym.server.session import Session
from hgpo_gym.server.sessions import Sessions

DESCRIPTION = """Play text environments: create a session, reset it, step, close it.

What fails is answered by a problem object that names the thing, its value and a remedy. Number the turns (`turn`), and
a request whose answer was lost can be sent again without being played twice.
"""
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": models.ProblemObject, "description": "The client can fix it."},
    "5XX": {"model": models.ProblemObject, "description": "The environment failed, or the server is full."},
}
_NO_TOKEN: dict[int | str, dict[str, Any]] = {
    401: {"model": models.ProblemObject, "description": "The token is missing or not one of this server's."}
}
_TURN: dict[str, Any] = {"response_model": models.TurnResponse, "response_class": Response}


def create_app(
    offers: Mapping[str, EnvironmentOffer], limits: Limits, tokens: Sequence[str] = (), *, access_log: bool = False
) -> FastAPI:
    """Return the server as an ASGI application.

    Args:
        offers: the environments, by id.
        limits: the limits of sessions and requests.
        tokens: one for each client; without any, it answers this machine alone, by address.
        access_log: log a line for each request.
    """
    app = FastAPI(
        title="hgpo-gym serve",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan,
        redirect_slashes=False,
        redoc_url=None,
        responses=_PROBLEMS | (_NO_TOKEN if tokens else {}),
        dependencies=[Depends(HTTPBearer(auto_error=False))] if tokens else [],  # for /docs; the guard asks for it
    )
    app.state.sessions = Sessions(offers, limits)
    app.state.offers, app.state.limits = offers, limits
    app.add_middleware(
        Guard,
        tokens=tokens,
        body_limit=limits.body,
        requests_per_client=limits.requests_per_client,
        access_log=access_log,
    )
    app.add_exception_handler(ProblemDetails, _problem_response)
    app.add_exception_handler(RequestValidationError, _malformed_response)
    app.add_exception_handler(HTTPException, _http_error_response)
    _add_routes(app)
    app.openapi = partial(_document, app)  # type: ignore[method-assign] # FastAPI's own way to change it
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's description of the routes. Problems have their own content type; open paths need no token."""
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for path, methods in app.openapi_schema["paths"].items():
            for operation in methods.values():
                if path in OPEN_PATHS:
                    operation.pop("security", None)
                    operation["responses"].pop("401", None)
                for status, response in operation["responses"].items():
                    if status[0] in "45":
                        response["content"] = {MEDIA_TYPE: response["content"]["application/json"]}
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    sessions: Sessions = app.state.sessions
    closing_idle = asyncio.create_task(sessions.close_idle())
    yield
    closing_idle.cancel()
    await sessions.close_all()


def _sessions(request: Request) -> Sessions:
    return request.app.state.sessions


def _client(request: Request) -> str:
    return request.state.client


def _session(request: Request, session: str) -> Session:
    return _sessions(request).get(_client(request), session)


AllSessions = Annotated[Sessions, Depends(_sessions)]
Client = Annotated[str, Depends(_client)]
OneSession = Annotated[Session, Depends(_session)]
Offset = Annotated[int, Query(ge=0, le=2**63 - 1, description="Where the page begins.")]
PageSize = Annotated[int, Query(ge=1, le=1000, description="The most tasks on the page.")]


def _add_routes(app: FastAPI) -> None:
    offers: Mapping[str, EnvironmentOffer] = app.state.offers
    limits: Limits = app.state.limits

    @app.get("/health", tags=["server"])
    async def health(sessions: AllSessions) -> models.Health:
        """Report that the server answers. Needs no token."""
        return models.Health(status="ok", version=__version__, sessions=len(sessions), max_sessions=limits.sessions)

    @app.get("/environments", tags=["environments"])
    async def list_environments() -> models.Environments:
        """List the environments, and the options that a client may set."""
        return models.Environments(
            environments=[
                models.Environment(
                    id=offer.id,
                    description=ENVIRONMENTS[offer.id].description,
                    choices={name: list(values) for name, values in offer.choices.items()},
                )
                for offer in offers.values()
            ]
        )

    @app.get("/environments/{environment:path}/tasks", tags=["environments"])
    async def list_tasks_of_environment(
        environment: str, sessions: AllSessions, client: Client, offset: Offset = 0, limit: PageSize = 100
    ) -> models.TaskPage:
        """List the tasks of an environment with its default options, page by page."""
        return await sessions.listed_tasks(client, sessions.offer(environment), offset, limit)

    @app.post("/sessions", status_code=201, tags=["sessions"])
    async def create_session(
        request: Request, body: models.NewSession, sessions: AllSessions, client: Client
    ) -> models.SessionInfo:
        """Create a session with an environment of its own."""
        session = await sessions.open(client, body)
        if await request.is_disconnected():  # nobody learns the session's id
            await sessions.close(session)
        return session.describe(limits.idle_timeout)

    @app.get("/sessions/{session}", tags=["sessions"])
    async def get_session(session: OneSession) -> models.SessionInfo:
        """Describe the session: its environment and its turn, once what it plays is done. Counts as use."""
        async with session.lock:
            return session.describe(limits.idle_timeout)

    @app.get("/sessions/{session}/tasks", tags=["sessions"])
    async def list_tasks(
        session: OneSession,
        sessions: AllSessions,
        offset: Offset = 0,
        limit: PageSize = 100,
        task_id: Annotated[str | None, Query(description="List this one, if there is such a task.")] = None,
    ) -> models.TaskPage:
        """List the session's tasks, page by page."""
        return await sessions.tasks(session, offset, limit, task_id)

    @app.post("/sessions/{session}/reset", tags=["sessions"], **_TURN)
    async def reset(session: OneSession, sessions: AllSessions, body: models.Reset | None = None) -> Response:
        """Begin an episode."""
        return _json(await sessions.play(session, body or models.Reset()))

    @app.post("/sessions/{session}/step", tags=["sessions"], **_TURN)
    async def step(session: OneSession, sessions: AllSessions, body: models.Step) -> Response:
        """Take one action."""
        return _json(await sessions.play(session, body))

    @app.post("/steps", tags=["sessions"], response_model=models.StepsResponse, response_class=Response)
    async def step_sessions(sessions: AllSessions, client: Client, body: models.SessionSteps) -> Response:
        """Take one action in each of several sessions."""
        requests = {step.session: models.Step(**step.model_dump(exclude={"session"})) for step in body.steps}
        if len(requests) < len(body.steps):
            raise ProblemDetails(
                422, "malformed", "A session is named twice.", "Send one step for each session.", name="body.steps"
            )
        replies = await sessions.step_each(client, requests)
        return _json(b'{"replies": [%s]}' % b", ".join(replies[id] for id in requests))

    @app.delete("/sessions/{session}", status_code=204, tags=["sessions"])
    async def close_session(session: OneSession, sessions: AllSessions) -> None:
        """End the session."""
        await sessions.close(session)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _problem_response(request: Request, problem: Exception) -> Response:  # noqa: ARG001 - Starlette's signature
    assert isinstance(problem, ProblemDetails)
    return problem.response()


async def _malformed_response(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part)[:100] for part in first["loc"])
    return ProblemDetails(
        422, "malformed", f"{name}: {first['msg']}.", "/docs shows what is expected.", name=name, value=first["input"]
    ).response()


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    type, detail, remedy = {
        404: ("unknown-path", "There is nothing at this path.", "/docs lists the paths."),
        405: (
            "wrong-method",
            "This path does not take this method.",
            "The header Allow and /docs list those it takes.",
        ),
    }.get(error.status_code, ("malformed", "The body is not JSON that can be read.", "Send JSON in UTF-8."))
    headers = dict(error.headers) if error.headers else None
    if error.status_code == 405:  # Starlette names the methods of one route alone
        routes = [
            route
            for route in request.app.routes
            if isinstance(route, Route) and route.path_regex.match(request.url.path)
        ]
        headers = {"Allow": ", ".join(sorted(method for route in routes for method in route.methods or ()))}
    return ProblemDetails(error.status_code, type, detail, remedy, headers=headers).response()
