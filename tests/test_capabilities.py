"""What an agent declares, read from wherever it came."""

from typing import Any, Final

import httpx
import msgspec
import pytest

from aguia import Agent
from aguia.client import read_capabilities
from aguia.protocol.capabilities import (
    AgentCapabilities,
    IdentityCapabilities,
    ToolsCapabilities,
)
from aguia.protocol.common import UNSET
from aguia.protocol.errors import ProtocolWarning
from aguia.server import InProcess, Run
from support_wire import Script, reply, scripted

FULL: dict[str, Any] = {
    "identity": {"name": "a", "documentationUrl": "u", "metadata": {"x": None, "y": {"z": [1]}}},
    "transport": {"streaming": True, "httpBinary": False},
    "tools": {"items": [{"name": "t", "description": "d", "parameters": {"type": "object"}}]},
    "multiAgent": {"subagents": [{"name": "s"}]},
    "multimodal": {"input": {"image": True}},
    "execution": {"maxExecutionTime": 5000},
    "custom": {"a": None, "reasoning": {"supported": "very"}},
}


def read(value: Any) -> tuple[AgentCapabilities | None, list[ProtocolWarning]]:
    warnings: list[ProtocolWarning] = []
    return read_capabilities(value, warnings.append), warnings


@pytest.mark.parametrize("form", ["dict", "str", "bytes", "bytearray", "typed"])
def test_a_declaration_is_read_in_each_form(form: str) -> None:
    """CAP-1: `custom` and `identity.metadata` keep everything; what is omitted is undeclared."""
    text = msgspec.json.encode(FULL)
    forms: dict[str, Any] = {
        "dict": FULL,
        "str": text.decode(),
        "bytes": text,
        "bytearray": bytearray(text),
        "typed": msgspec.convert(FULL, AgentCapabilities),
    }
    found, warnings = read(forms[form])
    assert warnings == []
    assert found is not None
    assert msgspec.to_builtins(found) == FULL
    assert found.reasoning is UNSET
    assert isinstance(found.transport, msgspec.Struct)
    assert (found.transport.streaming, found.transport.websocket) == (True, UNSET)


def test_a_declaration_may_say_nothing() -> None:
    """CAP-1."""
    assert read({}) == (AgentCapabilities(), [])
    for absent in (None, UNSET, "null", b"null"):
        assert read(absent) == (None, [])


def test_unknown_members_never_make_a_declaration_invalid() -> None:
    """CAP-1: a newer agent's declaration is read as far as it is known; `subAgents` is not."""
    found, warnings = read(
        {
            "tools": {"supported": True, "sandbox": {"a": 1}},
            "subAgents": [5],
            "telepathy": None,
            "custom": {"b": 1},
        }
    )
    assert found == AgentCapabilities(tools=ToolsCapabilities(supported=True), custom={"b": 1})
    assert [(each.stage, each.rule, each.path) for each in warnings] == [
        ("capabilities", "CAP-1", "/tools/sandbox"),
        ("capabilities", "CAP-1", "/subAgents"),
        ("capabilities", "CAP-1", "/telepathy"),
    ]


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ({"reasoning": {"supported": "yes"}}, "/reasoning/supported", "must be a boolean"),
        ({"reasoning": None}, "/reasoning", "must be an object, not null"),
        ({"tools": {"items": [{"name": "t"}]}}, "/tools/items/0/description", "is required"),
        ({"multiAgent": {"subagents": [{}]}}, "/multiAgent/subagents/0/name", "is required"),
        ({"execution": {"maxIterations": -1}}, "/execution/maxIterations", "between 0"),
        ({"custom": []}, "/custom", "must be an object, not an array"),
        ({"identity": {"metadata": "m"}}, "/identity/metadata", "must be an object"),
        ([], "", "must be an object, not an array"),
        (5, "", "must be an object"),
        ("[1]", "", "must be an object"),
        ("{", "", "not JSON"),
        ("", "", "not JSON"),
        (b"\xff\xfe", "", "not JSON"),
        ("\ud800", "", "not JSON"),
        (b'{"custom": {"a": NaN}}', "", "not JSON"),
        ({"custom": {"a": float("nan")}}, "", "no JSON number"),
        ({"custom": {"a": object()}}, "", "no JSON value"),
        (b'{"custom":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "", "deeper than 256"),
    ],
)
def test_a_known_field_with_a_wrong_value_makes_the_whole_unusable(
    value: Any, path: str, said: str
) -> None:
    """CAP-1: told in a warning with its place, and nothing is raised."""
    found, warnings = read(value)
    assert found is None
    assert [(each.stage, each.rule, each.path) for each in warnings] == [
        ("capabilities", "CAP-1", path)
    ]
    assert said in str(warnings[0])
    assert str(warnings[0]).startswith("the agent's capabilities can't be used")


def test_typed_attributes_are_judged_too() -> None:
    """CAP-1: nobody has looked at them before."""
    wrong = AgentCapabilities(identity=IdentityCapabilities(name=5))  # type: ignore[arg-type]
    found, warnings = read(wrong)
    assert found is None
    assert warnings[0].path == "/identity/name"


# Asking an agent


DECLARED: Final = {"identity": {"name": "It"}, "custom": {"a": [None]}}


@pytest.mark.anyio
@pytest.mark.parametrize("given", [DECLARED, msgspec.convert(DECLARED, AgentCapabilities)])
async def test_what_is_given_is_taken(given: Any) -> None:
    """CAP-1."""
    script = Script()
    async with scripted(script, capabilities=given) as agent:
        declared = await agent.capabilities()
    assert declared is not None
    assert declared.custom == {"a": [None]}
    assert script.requests == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("url", "asked"),
    [
        (None, "http://agent.example/run/capabilities"),
        ("http://agent.example/about", "http://agent.example/about"),
    ],
)
async def test_what_the_agent_declares_is_asked_for(url: str | None, asked: str) -> None:
    """CAP-1: beside the agent, or where the caller knows it to be."""
    script = Script(httpx.Response(200, json=DECLARED))
    async with scripted(script, capabilities=url) as agent:
        declared = await agent.capabilities()
    assert declared is not None
    assert declared.identity
    assert declared.identity.name == "It"
    assert [(each.method, str(each.url)) for each in script.requests] == [("GET", asked)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "warned"),
    [
        (lambda: httpx.Response(404), False),
        (lambda: httpx.Response(500), True),
        (lambda: httpx.ConnectError("no"), True),
        (lambda: httpx.Response(200, html="<html>"), True),
        (lambda: httpx.Response(200, json=[1]), True),
        (lambda: httpx.Response(200, json={"identity": {"name": 1}}), True),
    ],
)
async def test_what_can_not_be_used_prevents_nothing(answer: Any, warned: bool) -> None:
    """CAP-1: it is ignored with a warning, and runs go on as if nothing were declared."""
    script = Script(answer(), reply())
    warnings: list[ProtocolWarning] = []
    async with scripted(script, retries=0, on_warning=warnings.append) as agent:
        assert await agent.capabilities() is None
        assert [(each.rule, each.stage) for each in warnings] == [
            ("CAP-1", "capabilities")
        ] * warned
        assert (await agent.ask("Hi")).outcome == "success"


@pytest.mark.anyio
async def test_an_agent_function_declares_as_well() -> None:
    async def agent(run: Run) -> None: ...

    async with Agent(InProcess(agent, capabilities=DECLARED)) as found:
        declared = await found.capabilities()
        assert declared is not None
        assert declared.custom == {"a": [None]}
    async with Agent(InProcess(agent)) as found:
        assert await found.capabilities() is None
