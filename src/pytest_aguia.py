"""The plugin for pytest: fixtures for tests of agents, and of what calls agents.

pytest loads this in every project that has the package installed. So it stands outside of
`aguia`, whose import takes longer than a project without agents should wait, and imports nothing
of it before a fixture is asked for. Event loops are none of its business: what a fixture gives is
used with whatever runs the asynchronous tests.
"""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aguia.testing import ScriptedAgent
    from aguia.testing.clients import ClientFactory

__all__ = ["agui_client", "check_stream", "scripted_agent"]

_clients = pytest.StashKey["ClientFactory"]()


@pytest.fixture
def agui_client(request: pytest.FixtureRequest) -> "Iterator[ClientFactory]":
    """Makes clients of agents in this process; the test fails when an agent breaks a rule.

        def test_greets(agui_client):
            result = agui_client.sync(my_agent).ask("Hello")
            assert result.text == "Hello!"

    It takes an agent function, an ASGI application or a transport, and what `aguia.Agent` takes.
    `agui_client(...)` makes a client for asynchronous tests, for which pytest needs a plugin. See
    `aguia.testing.clients.ClientFactory` for the rest.
    """
    from aguia.testing.clients import ClientFactory

    factory = ClientFactory()
    request.node.stash[_clients] = factory
    yield factory
    factory.close()


@pytest.fixture
def scripted_agent() -> "type[ScriptedAgent]":
    """Makes agents that answer their n-th run with the n-th of what they are given.

        agent = scripted_agent("Hello!", [{"type": "CUSTOM", "name": "a.b", "value": 1}])

    That is a text, events, an exception or an agent function for each run; `inputs` holds what
    came. See `aguia.testing.ScriptedAgent`.
    """
    from aguia.testing import ScriptedAgent

    return ScriptedAgent


@pytest.fixture
def check_stream() -> Callable[..., None]:
    """Asserts that a stream, its events or its bytes, breaks no rule.

    That is `aguia.testing.assert_conformant`.
    """
    from aguia.testing import assert_conformant

    return assert_conformant


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail the test itself, and not what comes after it, for what its agents have said."""
    try:
        result = yield
    except BaseException:
        said = _complaint(item)
        if said:
            # The test has failed by itself, perhaps because of this.
            item.add_report_section("call", "aguia", said)
        raise
    said = _complaint(item)
    if said:
        pytest.fail(said, pytrace=False)
    return result


def _complaint(item: pytest.Item) -> str:
    factory = item.stash.get(_clients, None)
    return factory.complaint if factory is not None else ""
