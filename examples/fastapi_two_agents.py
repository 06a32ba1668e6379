"""Two agents in a FastAPI application, beside its own routes.

    pip install fastapi
    python fastapi_two_agents.py

The agents answer at /agents/greeter and /agents/counter, to whoever the application knows:

    aguia chat http://127.0.0.1:8000/agents/counter -H 'Authorization: Bearer token-of-ana'

Sign-in and CORS are the application's, and its OpenAPI page shows its own routes and nothing else.
When the server stops, runs that are under way get five seconds, and then they end as cancelled. The
same with uvicorn alone: uvicorn fastapi_two_agents:app --timeout-graceful-shutdown 5
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from aguia.server import AgentApp, Agents, GracefulServer, Run

# The agents


async def greeter(run: Run) -> None:
    """Greet the user, whom the application has signed in."""
    await run.say(f"Hello {run.principal}!")


async def counter(run: Run) -> None:
    """Count, slowly enough to be stopped."""
    async with run.text() as text:
        for number in range(1, 31):
            await text.write(f"{number} ")
            await asyncio.sleep(1)


agents = Agents(greeter=greeter, counter=AgentApp(counter, max_runs=2))

# The application


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Where the application opens what routes and agents use, and closes it again."""
    yield
    await agents.shutdown(0)  # no run is under way after this


app = FastAPI(lifespan=lifespan)
app.add_middleware(
    CORSMiddleware,
    allow_origins=["http://localhost:3000"],
    allow_methods=["GET", "POST"],
    allow_headers=["Authorization", "Content-Type"],
)

USERS = {"token-of-ana": "Ana", "token-of-rui": "Rui"}  # in place of your database


def signed_in(token: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    """The name of the user who asks."""
    if token.credentials not in USERS:
        raise HTTPException(401, "Sign in first.", {"WWW-Authenticate": "Bearer"})
    return USERS[token.credentials]


User = Annotated[str, Depends(signed_in)]


@app.get("/me")
async def me(user: User) -> dict[str, str]:
    """Who is signed in."""
    return {"name": user}


@app.post("/agents/{name}", include_in_schema=False)
async def answer(request: Request, name: Literal["greeter", "counter"], user: User) -> Response:
    """A run of an agent; `user` becomes its `run.principal`."""
    return agents.apps[name].response(request, user)


def main(port: int = 8000, grace: float = 5) -> None:
    """Serve until Ctrl-C, and then give the runs that are under way some seconds."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port)
    GracefulServer(config, agents, grace=grace).run()


if __name__ == "__main__":
    main()
