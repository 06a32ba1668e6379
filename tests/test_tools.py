"""Frontend tools: what may run, what runs, and that every call gets its answer."""

import asyncio
import contextvars
import datetime
import json
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pydantic
import pytest

from aguia.client import Consent, FunctionTool, ToolRequest, answer_calls, tool
from aguia.codec.json import encode
from aguia.protocol.content import ContentPart, ImagePart, TextPart, UrlSource
from aguia.protocol.input import Tool
from aguia.protocol.messages import FunctionCall, ToolCall, ToolMessage

pytestmark = pytest.mark.anyio


def call(name: str, id_: str | None = None, /, **arguments: Any) -> ToolCall:
    return raw_call(name, json.dumps(arguments), id_)


def raw_call(name: str, arguments: str, id_: str | None = None) -> ToolCall:
    return ToolCall(
        id=id_ or f"call-{name}",
        type="function",
        function=FunctionCall(name=name, arguments=arguments),
    )


def yes(request: ToolRequest) -> bool:
    return True


def lambda_named(name: str) -> FunctionTool:
    return FunctionTool(lambda: name, name=name)


async def answer(
    calls: ToolCall | Sequence[ToolCall],
    *functions: FunctionTool | Callable[..., Any],
    consent: Consent | None = yes,
    timeout: float | None = 10,
    limit: int = 8,
) -> list[ToolMessage]:
    """The answers to calls of these tools."""
    calls = [calls] if isinstance(calls, ToolCall) else calls
    made = [each if isinstance(each, FunctionTool) else FunctionTool(each) for each in functions]
    tools = {each.name: each for each in made}
    answers = await answer_calls(calls, tools, consent=consent, timeout=timeout, limit=limit)
    assert [each.tool_call_id for each in answers] == [each.id for each in calls]
    for each in answers:
        assert each.error == each.content or each.error is msgspec.UNSET
        encode(each)
    return answers


async def failure(calls: ToolCall, *functions: Any, **options: Any) -> str:
    """The error of the one answer."""
    (answered,) = await answer(calls, *functions, **options)
    assert isinstance(answered.error, str)
    return answered.error


async def result(function: Callable[..., Any], **arguments: Any) -> str | list[ContentPart]:
    """What a tool's answer holds."""
    made = FunctionTool(function, name="f", read_only=True)
    (answered,) = await answer(call("f", **arguments), made)
    assert answered.error is msgspec.UNSET
    return answered.content


# Making tools


async def test_a_function_becomes_a_tool_and_stays_callable() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        """Add numbers.

        Args:
            a: the first
            b: the second
        """
        return a + b

    assert isinstance(add, FunctionTool)
    assert add(2, b=3) == 5
    assert (add.name, add.description) == ("add", "Add numbers.")
    assert add.__doc__ is not None
    assert (add.read_only, add.timeout) == (False, None)
    assert add.declaration == Tool(
        name="add", description="Add numbers.", parameters=add.parameters
    )
    assert add.parameters["properties"]["b"] == {
        "type": "integer",
        "default": 1,
        "description": "the second",
    }
    assert repr(add) == "FunctionTool('add', read_only=False)"
    encode(add.declaration)


async def test_a_tool_can_be_told_what_it_is() -> None:
    @tool(name="plus", description="Sum.", read_only=True, timeout=5)
    async def add(a: int) -> int:
        return a

    assert (add.name, add.description, add.read_only, add.timeout) == ("plus", "Sum.", True, 5)
    assert await add(3) == 3


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
async def test_a_time_out_is_a_positive_number(timeout: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        FunctionTool(Shop().find, timeout=timeout)
    with pytest.raises(ValueError, match="positive number of seconds"):
        await answer([], timeout=timeout)


async def test_only_true_declares_a_tool_read_only() -> None:
    """SEC-2."""
    unsure: Any = "no"
    with pytest.raises(TypeError, match="read_only is True or False, not str"):
        FunctionTool(Shop().find, read_only=unsure)


async def test_generators_are_no_tools() -> None:
    def count() -> Any:
        yield 1

    async def stream() -> Any:
        yield 1

    for function in (count, stream, partial(count)):
        with pytest.raises(TypeError, match="is a generator"):
            FunctionTool(function)


async def test_at_least_one_call_runs_at_a_time() -> None:
    with pytest.raises(ValueError, match="at least one"):
        await answer([], limit=0)


# Running them


class Shop:
    async def find(self, name: str) -> str:
        return f"found {name}"

    def sell(self, name: str, price: float) -> str:
        return f"sold {name} for {price}"

    async def __call__(self, thing: str) -> str:
        return f"bought {thing}"


async def test_functions_of_all_kinds_are_run() -> None:
    """FRONT-5."""
    shop = Shop()

    def later(name: str) -> Awaitable[str]:
        return shop.find(name)

    answers = await answer(
        [
            call("find", name="tea"),
            call("sell", name="tea"),
            call("Shop", thing="milk"),
            call("later", name="cups"),
        ],
        shop.find,
        partial(shop.sell, price=2.0),
        FunctionTool(shop),
        later,
    )
    assert [each.content for each in answers] == [
        "found tea",
        "sold tea for 2.0",
        "bought milk",
        "found cups",
    ]
    assert len({each.id for each in answers}) == 4
    assert all(each.id.startswith("msg-") for each in answers)


async def test_an_ordinary_function_runs_in_a_thread_with_the_callers_context() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def where() -> bool:
        assert variable.get() == "set"
        return threading.current_thread() is threading.main_thread()

    async def there() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert await result(where) == "false"
    assert await result(there) == "true"


class Weather(pydantic.BaseModel):
    sky: str
    at: datetime.date = datetime.date(2030, 1, 2)


class Place(msgspec.Struct, rename="camel"):
    place_name: str


class Word(str):
    __slots__ = ()


IMAGE = ImagePart(source=UrlSource(value="https://example.com/a.png"))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, ""),
        ("", ""),
        ("a\nü🦅", "a\nü🦅"),
        (Word("word"), "word"),
        (5, "5"),
        (True, "true"),
        ([], "[]"),
        ({"a": [1.5, None]}, '{"a":[1.5,null]}'),
        (("a", "b"), '["a","b"]'),
        (Weather(sky="blue"), '{"sky":"blue","at":"2030-01-02"}'),
        ([Place("Faro")], '[{"placeName":"Faro"}]'),
        (IMAGE, [IMAGE]),
        ([TextPart(text="x"), IMAGE], [TextPart(text="x"), IMAGE]),
        ((Word("x"), IMAGE), [TextPart(text="x"), IMAGE]),
    ],
    ids=lambda value: ascii(value)[:30],
)
async def test_results_become_text_or_parts(value: Any, content: Any) -> None:
    """FRONT-5, TOOL-7; TOOL-8: what has a structure becomes text."""
    made = await result(lambda: value)
    assert made == content
    assert not isinstance(made, str) or type(made) is str


@pytest.mark.parametrize("value", ["half \ud83e", {"half": "\ud83e"}, [TextPart(text="\ud83e")]])
async def test_half_a_character_in_a_result_can_be_sent(value: Any) -> None:
    made = await result(lambda: value)
    answered = ToolMessage(id="m", tool_call_id="c", content=made)
    assert b"\\ud83e" in encode(answered)


def _in_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        float("nan"),
        [{1: 2}],
        _in_itself(),
        len,
        [IMAGE, {"a": 1}],
        [IMAGE, None],
        TextPart(text=5),  # type: ignore[arg-type]
        TextPart(text="x", metadata={"a": float("inf")}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_result_without_json_form_is_a_failure(value: Any) -> None:
    """FRONT-5."""
    said = await failure(call("f"), FunctionTool(lambda: value, name="f"))
    assert said.startswith("TypeError: the tool's result ")


async def test_calls_run_at_the_same_time_up_to_the_limit() -> None:
    running = 0
    most = 0
    gate = anyio.Event()

    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            gate.set()
        await gate.wait()
        await anyio.sleep(0.001)
        running -= 1
        return n

    calls = [call("work", f"c{n}", n=n) for n in range(10)]
    answers = await answer(calls, work, limit=3)
    assert [each.content for each in answers] == [str(n) for n in range(10)]
    assert most == 3


async def test_threads_run_at_the_same_time_up_to_the_limit() -> None:
    meeting = threading.Barrier(4, timeout=10)
    inside = threading.Semaphore(4)

    def work() -> int:
        assert inside.acquire(blocking=False)
        meeting.wait()
        inside.release()
        return meeting.parties

    answers = await answer([call("work", f"c{n}") for n in range(8)], work, limit=4)
    assert [each.content for each in answers] == ["4"] * 8


async def test_the_limit_alone_says_how_many_threads_run() -> None:
    meeting = threading.Barrier(45, timeout=10)  # more than a loop's own threads
    answers = await answer(
        [call("wait", f"c{n}") for n in range(45)],
        FunctionTool(lambda: meeting.wait() >= 0, name="wait"),
        limit=45,
    )
    assert [each.content for each in answers] == ["true"] * 45


# What goes wrong


async def test_an_unknown_tool_is_an_error() -> None:
    """FRONT-5, FRONT-6: the call is answered, and nothing is run."""
    said = await failure(call("weather" + "x" * 5000), lambda_named("f"))
    assert said.startswith("UnknownTool: the application has no tool 'weatherxxx")
    assert len(said) < 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "InvalidArguments: the arguments are not JSON"),
        ("[1]", "InvalidArguments: the arguments are not a JSON object"),
        ("", "InvalidArguments: at '': the argument 'n' is missing"),
        ('{"n": "1"}', "InvalidArguments: at '/n': expected `int`, got `str`"),
        ('{"n": 1, "m": 2}', "InvalidArguments: at '/m': no such argument"),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_and_nobody_is_asked(
    arguments: str, said: str
) -> None:
    """FRONT-5, SEC-1."""

    def double(n: int) -> int:
        raise AssertionError

    def ask(request: ToolRequest) -> bool:
        raise AssertionError

    for read_only in (True, False):
        made = FunctionTool(double, read_only=read_only)
        assert (await failure(raw_call("double", arguments), made, consent=ask)).startswith(said)


async def test_a_validation_that_breaks_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """SEC-1."""

    class Odd(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            raise KeyError("inside")

    def f(x: Any) -> None: ...

    f.__annotations__["x"] = Odd
    assert await failure(call("f", x={"n": 1}), f) == "InvalidArguments: KeyError: 'inside'"
    assert "judging the arguments of the tool 'f' failed" in caplog.text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such town:\nFaro"), "ValueError: no such town:\nFaro"),
        (ValueError(), "ValueError"),
        (TimeoutError("the shop is closed"), "TimeoutError: the shop is closed"),
        (StopIteration(5), "RuntimeError: coroutine raised StopIteration"),
        (Unprintable(), "Unprintable"),
        (ValueError("half \ud83e"), "ValueError: half \ud83e"),
        (ExceptionGroup("several", [ValueError("a")]), "ExceptionGroup: several (1 sub-exception)"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_a_tool_raises_is_told_by_type_and_message(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """FRONT-5: and never with the traceback, which is the log's."""

    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    assert await failure(call("fail"), fail) == said
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.records[0].name == "aguia"
    assert caplog.records[0].exc_info is not None
    assert await failure(call("fail_async"), fail_async) == said


async def test_long_errors_are_cut() -> None:
    def fail() -> None:
        raise ValueError("x" * 100_000)

    said = await failure(call("fail"), fail)
    assert len(said) == 2000
    assert said.endswith("…")


async def test_one_failure_leaves_the_other_calls_alone() -> None:
    """FRONT-5."""

    async def good() -> str:
        await anyio.sleep(0.01)
        return "good"

    async def bad() -> None:
        raise ValueError("bad")

    async def gives_up() -> None:
        raise asyncio.CancelledError

    answers = await answer(
        [call("good", "1"), call("bad"), call("gives_up"), call("good", "2"), call("none")],
        *(good, bad, gives_up),
    )
    assert [each.content for each in answers] == [
        "good",
        "ValueError: bad",
        "Cancelled: the tool gave up its work",
        "good",
        "UnknownTool: the application has no tool 'none' to run",
    ]


async def test_a_tool_that_takes_too_long_is_cut_off() -> None:
    """FRONT-5."""
    cut = anyio.Event()

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cut.set()

    said = await failure(call("hang"), hang, timeout=0.02)
    assert said == "TimeoutError: the tool timed out after 0.02 seconds"
    assert cut.is_set()


async def test_a_thread_that_hangs_is_left_behind_and_takes_nobodys_place() -> None:
    """FRONT-5."""
    release = threading.Event()
    begun = threading.Semaphore(0)

    @tool(read_only=True)
    def hang() -> None:
        begun.release()
        release.wait(30)

    @tool(read_only=True, timeout=10)
    def quick() -> str:
        return "quick"

    try:
        calls = [call("hang", f"h{n}") for n in range(50)] + [call("quick")]
        answers = await answer(calls, hang, quick, timeout=0.02, limit=50)
        said = "TimeoutError: the tool timed out after 0.02 seconds"
        assert [each.content for each in answers] == [said] * 50 + ["quick"]
        with anyio.fail_after(10):
            assert await anyio.to_thread.run_sync(lambda: "free") == "free"
    finally:
        release.set()
    assert begun.acquire(blocking=False)


async def test_a_tools_own_time_out_goes_before_the_general_one() -> None:
    @tool(timeout=0.02)
    async def short() -> None:
        await anyio.sleep_forever()

    @tool(timeout=math.inf)
    async def long() -> str:
        await anyio.sleep(0.1)
        return "done"

    assert "after 0.02 seconds" in await failure(call("short"), short, timeout=None)
    (answered,) = await answer(call("long"), long, timeout=0.02)
    assert answered.content == "done"


async def test_waiting_for_a_place_does_not_count_as_taking_long() -> None:
    @tool(timeout=math.inf)
    async def long() -> str:
        await anyio.sleep(0.1)
        return "done"

    async def quick() -> str:
        return "done"

    answers = await answer([call("long"), call("quick")], long, quick, limit=1, timeout=0.02)
    assert [each.content for each in answers] == ["done", "done"]


# Consent


async def test_nothing_with_side_effects_runs_when_nobody_can_be_asked() -> None:
    """SEC-2: the default is refusal, and the agent is told."""
    ran = []

    def write() -> None:
        ran.append("write")

    @tool(read_only=True)
    def read() -> str:
        return "text"

    answers = await answer([call("write"), call("read")], write, read, consent=None)
    assert answers[0].error == (
        "Refused: this tool needs consent, and nobody can be asked; it was not run"
    )
    assert answers[1].content == "text"
    assert not ran


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (False, "Refused: the user did not allow this call; it was not run"),
        ("", "Refused: the user did not allow this call; it was not run"),
        (
            "Not on Sundays",
            "Refused: the user did not allow this call; it was not run. "
            "The reason given: Not on Sundays",
        ),
        ("yes", "Refused: .* The reason given: yes"),
        (None, "Refused: the user did not allow this call; it was not run"),
        (1, "Refused: the user did not allow this call; it was not run"),
        ([True], "Refused: the user did not allow this call; it was not run"),
    ],
)
@pytest.mark.parametrize("style", ["sync", "async"])
async def test_only_true_is_consent(
    decision: Any, said: str, style: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-2, FRONT-5: a refusal says so."""
    ran = []

    def write() -> None:
        ran.append("write")

    def ask(request: ToolRequest) -> Any:
        return decision

    async def ask_async(request: ToolRequest) -> Any:
        await anyio.lowlevel.checkpoint()
        return decision

    refused = await failure(call("write"), write, consent=ask if style == "sync" else ask_async)
    assert refused == said or refused.endswith("yes")
    assert not ran
    odd = not isinstance(decision, str | bool)
    assert ("only True allows a call" in caplog.text) == odd


async def test_a_consent_that_fails_refuses(caplog: pytest.LogCaptureFixture) -> None:
    """SEC-2."""
    ran = []

    def write() -> None:
        ran.append("write")

    def fail(request: ToolRequest) -> bool:
        raise ValueError("secret")

    async def give_up(request: ToolRequest) -> bool:
        raise asyncio.CancelledError

    for consent in (fail, give_up):
        refused = await failure(call("write"), write, consent=consent)
        assert refused == "Refused: asking for consent failed; the tool was not run"
    assert not ran
    assert "asking for consent to the tool 'write' failed" in caplog.text


async def test_consent_is_asked_one_at_a_time_and_what_is_allowed_starts_at_once() -> None:
    """SEC-2: never two prompts at once, in the order of the calls."""
    happened: list[str] = []
    read_done = anyio.Event()
    first_done = anyio.Event()

    @tool(read_only=True)
    async def read() -> None:
        happened.append("read")
        read_done.set()

    async def write(n: int) -> None:
        happened.append(f"write {n}")
        first_done.set()

    async def ask(request: ToolRequest) -> bool:
        n = request.arguments["n"]
        happened.append(f"ask {n}")
        with anyio.fail_after(10):
            # What needs no consent isn't kept waiting, nor is what was allowed already.
            await (read_done if n == 1 else first_done).wait()
        happened.append(f"answer {n}")
        return bool(n < 3)

    calls = [*(call("write", f"w{n}", n=n) for n in (1, 2, 3)), call("read")]
    answers = await answer(calls, read, write, consent=ask)
    assert [bool(each.error) for each in answers] == [False, False, True, False]
    happened.remove("read")
    happened.remove("write 2")
    assert happened == "ask 1,answer 1,ask 2,write 1,answer 2,ask 3,answer 3".split(",")


async def test_a_request_shows_what_would_run_and_cannot_change_it() -> None:
    """SEC-2: what runs is what was shown."""
    given: list[Any] = []

    @tool
    def send(to: str, when: datetime.date, body: Any) -> None:
        given.extend([to, when, body])

    def ask(request: ToolRequest) -> bool:
        assert (request.name, request.read_only, request.tool) == ("send", False, send)
        assert request.call.id == "c1"
        assert request.arguments == {"to": "ana", "when": "2030-01-02", "body": {"a": [1]}}
        request.arguments["body"]["a"].append(2)
        request.arguments["to"] = "rui"
        with pytest.raises(AttributeError):
            request.call = call("other")  # type: ignore[misc]
        return True

    await answer(
        call("send", "c1", to="ana", when="2030-01-02", body={"a": [1]}), send, consent=ask
    )
    assert given == ["ana", datetime.date(2030, 1, 2), {"a": [1]}]


# Being cancelled


@pytest.mark.parametrize("where", ["tool", "thread", "consent"])
@pytest.mark.parametrize("how", ["scope", "task"])
async def test_cancelling_cancels_all_of_it(where: str, how: str) -> None:
    """SEC-2: it is never taken for a refusal, or for consent, and nobody is asked any more."""
    begun = anyio.Event()
    release, released = threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    cut: list[str] = []

    async def hang(request: Any = None) -> bool:
        begun.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            cut.append(type(error).__name__)
            raise
        return True

    def hang_thread() -> None:
        loop.call_soon_threadsafe(begun.set)
        release.wait(30)
        released.set()

    async def work() -> None:
        function = hang_thread if where == "thread" else hang
        made = FunctionTool(function, name="f", read_only=where != "consent")
        calls = [call("f", "c1"), call("f", "c2")] if where == "consent" else [call("f")]
        await answer(calls, made, consent=hang, timeout=None)
        cut.append("answered")

    with anyio.fail_after(10):
        if how == "scope":
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                await begun.wait()
                group.cancel_scope.cancel()
        else:
            task = asyncio.create_task(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    release.set()
    if where == "thread":
        assert released.wait(10)
    else:
        assert cut == ["CancelledError"]


class End(BaseException):
    pass


async def test_what_is_to_end_the_program_is_passed_on() -> None:
    async def end() -> None:
        raise End

    def end_thread() -> None:
        raise End

    def ask(request: ToolRequest) -> bool:
        raise End

    for function in (end, end_thread):
        with pytest.raises(End):
            await answer(call(function.__name__), function)
    with pytest.raises(End):
        await answer(call("end"), end, consent=ask)
    with pytest.raises(BaseExceptionGroup):
        await answer([call("end"), call("end")], FunctionTool(end, read_only=True))


async def test_no_calls_have_no_answers() -> None:
    assert await answer([]) == []
