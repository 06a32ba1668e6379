"""Bodies that nobody would send on purpose: never an error of the server's, never a hang."""

import asyncio
import copy
import json
import random
import time
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aguia.protocol.input import RunAgentInput
from aguia.protocol.shapes import shape_of
from aguia.server import AgentApp, Run
from support_asgi import Connection, call
from support_events import ODD_NAMES, json_values, values_of

pytestmark = pytest.mark.anyio

BOUND: Final = 5.0
"""Seconds that an answer may take."""


async def echo(run: Run) -> Any:
    """An agent that sends back all that it was sent, and changes what it can."""
    await run.set_state(run.state)
    run.state = {"was": run.state}
    await run.custom("com.example.props", run.forwarded_props)
    for call_ in run.unanswered_calls:
        await run.custom("com.example.call", [call_.id, run.tool_result(call_.id)])
    for entry in run.resume:
        run.resume.answer(entry.interrupt_id)
    for tool in run.tools:
        await run.call(tool.name, {"for": tool.description})
    await run.custom("com.example.messages", run.messages)
    return run.forwarded_props


APP: Final = AgentApp(echo, expose_errors=True)


async def post(body: bytes) -> Connection:
    """Post the body, and see that the answer is a stream or a refusal."""
    began = time.monotonic()
    connection = await call(APP, body=body)
    assert time.monotonic() - began < BOUND
    if connection.status == 200:
        events = connection.events()
        assert events[0].type == "RUN_STARTED"
    else:
        assert connection.status == 400
        assert connection.error["message"]
        assert connection.answer_headers["content-type"] == "application/json"
        assert set(connection.error) <= {"message", "rule", "path"}
    return connection


given_often = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def sent(body: bytes) -> Connection:
    return asyncio.run(post(body))


inputs = values_of(shape_of(RunAgentInput))


@pytest.mark.unmeasured
@given_often
@given(st.binary(max_size=200))
def test_random_bytes(body: bytes) -> None:
    """HTTP-4."""
    assert sent(body).status == 400


@pytest.mark.unmeasured
@given_often
@given(json_values(8))
def test_random_json(value: Any) -> None:
    """PROC-12."""
    assert sent(json.dumps(value).encode()).status == 400


@pytest.mark.unmeasured
@given_often
@given(inputs)
def test_valid_inputs(value: Any) -> None:
    """PROC-12, IN-1: whatever the schema admits is answered with a stream."""
    value["protocolVersion"] = "1.0"
    assert sent(json.dumps(value).encode()).status == 200


ODD: Final[list[Any]] = [
    *(None, True, 0, -1, 1.5, 1e308, 2**53, 2**64, -(2**80), "", "x", [], {}, [[]], [None]),
    *("\ud83e", "\udd85\ud83e", "\x00", "\u2028", {"": None}, {"__proto__": {}}, "9" * 1000),
]


@pytest.mark.unmeasured
@given_often
@given(inputs, st.integers(0, 2**32))
def test_mutated_inputs(value: Any, seed: int) -> None:
    """PROC-3, PROC-12: a few changes anywhere in a valid one."""
    chance = random.Random(seed)
    value = copy.deepcopy(value)
    for _ in range(chance.randrange(1, 4)):
        _mutate(value, chance)
    sent(json.dumps(value).encode())


def _mutate(value: Any, chance: random.Random) -> None:
    holder: Any = None
    key: Any = None
    while isinstance(value, dict | list) and value:
        holder = value
        key = (
            chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        )
        value = value[key]
        if chance.random() < 0.3:
            break
    if holder is None:
        return
    match chance.randrange(3):
        case 0:
            del holder[key]
        case 1:
            holder[key] = copy.deepcopy(chance.choice(ODD))
        case _ if isinstance(holder, dict):
            holder[chance.choice(ODD_NAMES)] = copy.deepcopy(chance.choice(ODD))


@pytest.mark.unmeasured
@given_often
@given(inputs, st.integers(0, 2**32))
def test_mutated_bytes(value: Any, seed: int) -> None:
    """HTTP-4: bytes lost, doubled, changed and cut."""
    chance = random.Random(seed)
    body = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(body) or 1)
        match chance.randrange(4):
            case 0:
                del body[at : at + chance.randrange(1, 5)]
            case 1:
                body[at:at] = bytes([chance.randrange(256)])
            case 2:
                body[at:at] = body[at : at + 8]
            case _:
                del body[at + 1 :]
    sent(bytes(body))


def nested(depth: int, opening: bytes, closing: bytes, inside: bytes = b"1") -> bytes:
    return opening * depth + inside + closing * depth


def with_state(state: bytes) -> bytes:
    return b'{"threadId":"t","runId":"r","messages":[],"state":' + state + b"}"


@pytest.mark.unmeasured
@pytest.mark.parametrize("depth", [100, 250, 255, 256, 257, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"[{", b"")])
async def test_deep_nesting(depth: int, opening: bytes, closing: bytes) -> None:
    """Beyond the limit it is refused, at it and below nothing breaks."""
    connection = await post(with_state(nested(depth, opening, closing)))
    if depth > 255 or not closing:
        assert connection.status == 400
    else:
        assert connection.status == 200


@pytest.mark.parametrize(
    "number",
    [
        *(b"9" * 18, b"9" * 19, b"9" * 20, b"-" + b"9" * 30, b"9" * 308, b"9" * 4300),
        *(b"1e308", b"-1e308", b"1e-400", b"0.1e1", b"1.7976931348623157e308", b"-0.0", b"1E2"),
    ],
)
async def test_huge_numbers_are_numbers(number: bytes) -> None:
    """They come back as what they are worth."""
    connection = await post(with_state(b'{"n":' + number + b"}"))
    assert connection.status == 200
    frame = next(each for each in connection.answer.split(b"\n\n") if b"SNAPSHOT" in each)
    came_back = json.loads(frame.removeprefix(b"data: "))["snapshot"]["n"]
    assert came_back == json.loads(number)


@pytest.mark.parametrize(
    "number",
    [b"9" * 4301, b"1" * 1_000_000, b"1e309", b"-1e999", b"NaN", b"Infinity", b"01", b".5"],
)
async def test_what_is_no_number_is_refused(number: bytes) -> None:
    assert (await post(with_state(b'{"n":' + number + b"}"))).status == 400


@pytest.mark.parametrize(
    "text",
    [
        *(b'"\\ud83e"', b'"\\udd85"', b'"\\udd85\\ud83e"', b'"\\ud83e\\udd85"', b'"\\u0000"'),
        *('"\u2028"'.encode(), b'"\\u2029\\r\\n"', b'{"\\ud83e":"\\ud83e"}', '"🦅"'.encode()),
    ],
)
async def test_odd_characters_come_back(text: bytes) -> None:
    """Also halves of a character, and line ends that are none to SSE (HTTP-2)."""
    connection = await post(with_state(text))
    assert connection.status == 200
    frame = next(each for each in connection.answer.split(b"\n\n") if b"SNAPSHOT" in each)
    assert json.loads(frame.removeprefix(b"data: "))["snapshot"] == json.loads(text)


@pytest.mark.parametrize("text", [b'"\xed\xa0\xbe"', b'"\xff"', b'"\xc0\x80"', b'"\n"', b'"\\x"'])
async def test_what_is_no_text_is_refused(text: bytes) -> None:
    assert (await post(with_state(text))).status == 400


async def test_of_members_that_come_twice_one_counts() -> None:
    """The strict decoder and the tolerant reading take the same one, the last."""
    head = b'{"threadId":"a","threadId":"b","runId":"r","messages":[]'
    for rest in (b"}", b',"mood":1}'):
        connection = await post(head + rest)
        assert connection.status == 200
        assert b'"threadId":"b"' in connection.answer
    assert (await post(head + b',"runId":5}')).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":' * 50_000,
        b'"' * 100_001,
        b"\\" * 100_000,
        b"{" + b'"a":1,' * 100_000,
        b"[" + b"{}," * 200_000,
        b'{"threadId":"' + b"x" * 1_000_000,
        b" " * 1_000_000,
        b"\xef\xbb\xbf{}",
        '{"threadId": "t"}'.encode("utf-16"),
    ],
    ids=lambda body: ascii(body[:12]),
)
async def test_large_nonsense_is_refused_quickly(body: bytes) -> None:
    connection = await post(body)
    assert connection.status == 400
    assert len(connection.answer) < 2000


@pytest.mark.unmeasured
async def test_a_large_valid_input_is_answered() -> None:
    """Thousands of messages, of which some have to be read tolerantly."""
    messages = [{"id": f"m{n}", "role": "user", "content": "x" * 200} for n in range(5000)]
    messages[-1]["mood"] = "good"
    body = json.dumps({"threadId": "t", "runId": "r", "messages": messages}).encode()
    assert (await post(body)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "\xff\xfe"},
        {"content-type": "application/json" * 100},
        {"content-length": "-5"},
        {"content-length": "\xb2"},
        {"accept": "nonsense;;;q=x"},
        {"accept": ""},
        {"origin": "null"},
    ],
    ids=str,
)
async def test_odd_headers_are_no_error_of_the_servers(headers: dict[str, str]) -> None:
    for app in (APP, AgentApp(echo, allow_origins=["https://a.example"])):
        connection = await call(app, headers=headers)
        assert connection.status in (200, 400, 415)


@pytest.mark.parametrize("path", ["", "//", "/\x00", "/../..", "/%2e%2e", "/ü", "/a" * 1000])
async def test_odd_paths_are_no_error_of_the_servers(path: str) -> None:
    for app in (APP, AgentApp(echo, path="/agent")):
        assert (await call(app, path=path)).status in (200, 404)
