"""The chat's renderer: what a person sees of a stream, and what can't reach the terminal."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from aguia import Consumer
from aguia.cli.render import Renderer
from aguia.cli.safe import Cleaner, one_line
from aguia.protocol.errors import ProtocolWarning
from aguia.protocol.messages import FunctionCall, ToolCall
from support_events import call, text


class Screen:
    """A renderer that writes to memory, fed with the events of one run, and its clock."""

    def __init__(self, *, styled: bool = False) -> None:
        self.out = io.StringIO()
        self.err = io.StringIO()
        self.now = 0.0
        self.renderer = Renderer(self.out, self.err, styled=styled, clock=lambda: self.now)
        self.consumer = Consumer()

    def begin(self) -> None:
        """Starts a run that `send` goes on with."""
        self.consumer = Consumer()
        self.send({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})

    def send(self, *events: dict[str, Any]) -> str:
        """What is written with these events, and nothing of what was there before."""
        before = len(self.out.getvalue())
        for event in events:
            for trusted in self.consumer.receive_event(event):
                self.renderer.event(trusted)
        return self.out.getvalue()[before:]

    def wait(self, seconds: float) -> str:
        """What is written because this time passes."""
        before = len(self.out.getvalue())
        self.now += seconds
        self.renderer.breathe()
        return self.out.getvalue()[before:]

    def show(self, *events: dict[str, Any], end: dict[str, Any] | None = None) -> str:
        """What is written for a run with these events, all of it so far."""
        consumer = Consumer()
        started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        finished = end or {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
        for event in (started, *events, finished):
            for trusted in consumer.receive_event(event):
                self.renderer.event(trusted)
        return self.out.getvalue()


FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


@pytest.fixture
def screen() -> Screen:
    return Screen()


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"of-{call_id}",
        "toolCallId": call_id,
        "content": content,
    }


# -- what is shown ---------------------------------------------------------------------


def test_a_whole_turn(screen: Screen) -> None:
    screen.renderer.user("find x")
    shown = screen.show(
        {"type": "STATE_SNAPSHOT", "snapshot": {"task": "find x", "plan": [1, 2], "a": {}}},
        {"type": "STEP_STARTED", "stepName": "Search"},
        *call("c", "search", '{"te', 'xt": "x"}'),
        *text("m", "a.py:1: x\n", "b.py:2: ", "x\n"),
        result("c", '{"hits": 2}'),
        {"type": "STEP_FINISHED", "stepName": "Search"},
        {
            "type": "STATE_DELTA",
            "delta": [
                {"op": "replace", "path": "/plan/0", "value": "done"},
                {"op": "remove", "path": "/a"},
            ],
        },
        *text("n", "Two lines."),
    )
    assert shown == (
        "> find x\n"
        '  ≡ state: task = "find x", plan = [2 items], a = {}\n'
        "  ▸ Search\n"
        '  ● search {"text": "x"}\n'
        "a.py:1: x\n"
        "b.py:2: x\n"
        '  └ search: {"hits": 2}\n'
        '  ≡ state: /plan/0 = "done", /a removed\n'
        "Two lines.\n"
    )


def test_text_streams_as_it_comes(screen: Screen) -> None:
    started, *deltas, end = text("m", "Hel", "lo", "\n\n", "you\n")
    seen = []
    consumer = Consumer()
    for event in ({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}, started, *deltas, end):
        for trusted in consumer.receive_event(event):
            screen.renderer.event(trusted)
        seen.append(screen.out.getvalue())
    assert seen == ["", "", "Hel", "Hello", "Hello\n", "Hello\n\nyou\n", "Hello\n\nyou\n"]


def test_messages_are_set_apart_and_empty_ones_leave_nothing(screen: Screen) -> None:
    shown = screen.show(*text("a", "one\n\n\n"), *text("b"), *text("c", "", "\n\n", "two"))
    assert shown == "one\n\ntwo\n"


def test_who_speaks_is_said_when_it_is_not_simply_the_agent(screen: Screen) -> None:
    """TEXT-1: `name` labels the speaker, and an absent role is the assistant."""
    shown = screen.show(
        *text("a", "hi", name="Ada"), *text("b", "no", role="system"), *text("c", "yes")
    )
    assert shown == "Ada: hi\n\nsystem: no\n\nyes\n"


def test_a_result_under_its_card_needs_no_name(screen: Screen) -> None:
    shown = screen.show(*call("c", "add", "{}"), result("c", "4"))
    assert shown == "  ● add {}\n  └ 4\n"


def test_interleaved_items_keep_their_lines(screen: Screen) -> None:
    """STREAM-3: families interleave freely."""
    first, second = call("1", "one", "ab", "cd"), call("2", "two", "xy")
    start, content, end = text("m", "words")
    shown = screen.show(
        first[0], first[1], second[0], second[1], start, content, first[2], first[3], second[2], end
    )
    assert shown == ("  ● one ab\n  ● two xy\nwords\n  ● … one cd\n")


def test_a_message_and_a_call_may_have_one_id(screen: Screen) -> None:
    first, second = call("x", "add", "{}", "!"), text("x", "words", "more")
    shown = screen.show(
        first[0], second[0], second[1], first[1], second[2], first[2], second[3], first[3]
    )
    assert shown == "  ● add \nwords\n  ● … add {}\n… more\n  ● … add !\n"


def test_long_arguments_and_results_are_cut_and_say_so(screen: Screen) -> None:
    shown = screen.show(
        *call("c", "write", '{"text": "', "x" * 5000, '"}'),
        result("c", "\n".join(f"line {n}" for n in range(30))),
    )
    card, *lines = shown.splitlines()
    assert len(card) < 700
    assert card.endswith("… and 4,412 more characters")
    assert lines[0] == "  └ line 0"
    assert lines[-1].strip() == "… 18 more lines"
    assert len(lines) == 13


def test_parts_of_a_result_are_shown_as_text_or_named(screen: Screen) -> None:
    """TOOL-10, TOOL-12: text parts in order; the rest by kind, a file's handle not at all."""
    parts = [
        {"type": "text", "text": "a chart:"},
        {"type": "image", "source": {"type": "data", "value": "AAAA", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "file", "value": "handle-7"}},
    ]
    shown = screen.show(*call("c", "draw"), result("c", parts))
    assert shown.endswith("  └ a chart: [image image/png] [document]\n")
    assert "handle-7" not in shown


def test_reasoning_is_marked(screen: Screen) -> None:
    shown = screen.show(
        {"type": "REASONING_START", "messageId": "x"},
        {"type": "REASONING_MESSAGE_START", "messageId": "x", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "x", "delta": "hm\nwell"},
        {"type": "REASONING_MESSAGE_END", "messageId": "x"},
        {"type": "REASONING_END", "messageId": "x"},
        *text("x", "Yes."),
    )
    assert shown == "thinking: hm\nwell\n\nYes.\n"


def test_subagents_are_named(screen: Screen) -> None:
    """SUB-1: attribution; the parent agent's work carries no name."""
    own = {"subagentRunId": "s1"}
    start, content, end = text("m", "found")
    shown = screen.show(
        {"type": "SUBAGENT_STARTED", "name": "scout", "description": "looks", **own},
        {**start, **own},
        {**content, **own},
        {**end, **own},
        {"type": "STEP_STARTED", "stepName": "dig", **own},
        {"type": "STEP_FINISHED", "stepName": "dig", **own},
        {"type": "SUBAGENT_FINISHED", **own},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s2", "name": "other"},
        {"type": "SUBAGENT_ERROR", "subagentRunId": "s2", "message": "lost"},
    )
    assert shown == (
        "  ◆ scout starts: looks\n"
        "[scout] found\n"
        "  ▸ [scout] dig\n"
        "  ◆ scout is done\n"
        "  ◆ other starts\n"
        "  ◆ other failed: lost\n"
    )


# -- subagents in parallel -------------------------------------------------------------


def by(owner: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**event, "subagentRunId": owner} for event in events]


def started(name: str, **members: Any) -> dict[str, Any]:
    return {"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": name, **members}


def finished(name: str, **members: Any) -> dict[str, Any]:
    return {"type": "SUBAGENT_FINISHED", "subagentRunId": name, **members}


def test_one_subagent_at_a_time_has_the_floor(screen: Screen) -> None:
    """SUB-6: they interleave as they like; lines don't."""
    a, b = text("m1", "a1 ", "a2\n", "a3"), text("m2", "b1 ", "b2")
    screen.begin()
    assert screen.send(started("a"), started("b")) == "  ◆ a starts\n"
    assert screen.send(*by("a", a[0], a[1])) == "[a] a1 "
    assert screen.send(*by("b", *b)) == ""
    assert screen.send(*by("a", a[2])) == "a2\n"
    assert screen.send(finished("b", result={"n": 2})) == ""
    assert screen.send(*by("a", *a[3:])) == "a3\n"
    assert screen.send(finished("a")) == (
        "  ◆ a is done\n  ◆ b starts\n[b] b1 b2\n  ◆ b is done: n = 2\n"
    )


def test_who_is_silent_loses_the_floor_to_those_who_wait(screen: Screen) -> None:
    a, b = text("m1", "a1 ", "a2"), text("m2", "b1 ", "b2")
    screen.begin()
    screen.send(started("a"), *by("a", a[0], a[1]), started("b"), *by("b", b[0], b[1]))
    assert screen.wait(0.4) == ""
    assert screen.wait(0.2) == "\n  ◆ b starts\n[b] b1 "
    assert screen.send(*by("a", a[2], a[3])) == ""
    assert screen.send(*by("b", *b[2:]), finished("b")) == ("b2\n  ◆ b is done\n… [a] a2\n")
    assert screen.send(finished("a")) == "  ◆ a is done\n"


def test_nobody_loses_the_floor_to_nobody(screen: Screen) -> None:
    a = text("m1", "a1 ", "a2")
    screen.begin()
    screen.send(started("a"), *by("a", a[0], a[1]))
    assert screen.wait(60) == ""
    assert screen.send(*by("a", a[2])) == "a2"


def test_one_that_only_began_and_ended_while_it_waited_is_one_line(screen: Screen) -> None:
    screen.begin()
    screen.send(started("a"), started("b"), finished("b", result={"hits": 0}))
    assert screen.send(finished("a")) == "  ◆ a is done\n  ◆ b is done: hits = 0\n"


def test_the_agent_itself_is_heard_between_lines(screen: Screen) -> None:
    a = text("m1", "a1\n", "a2 ", "a3\n", "a4\n")
    own = text("m", "own ", "words\n")
    step = {"type": "STEP_STARTED", "stepName": "next"}
    screen.begin()
    screen.send(started("a"), *by("a", a[0], a[1]))
    assert screen.send(step) == "  ▸ next\n"
    assert screen.send(*by("a", a[2])) == "… [a] a2 "
    assert screen.send(own[0], own[1]) == ""
    assert screen.send(*by("a", a[3])) == "a3\n\nown "
    assert screen.send(*by("a", a[4])) == "", "it has the floor until its message ends"
    assert screen.send(own[2], own[3]).startswith("words\n")
    assert screen.out.getvalue().endswith("… [a] a4\n")


def test_a_subagent_of_the_one_that_has_the_floor_works_for_it(screen: Screen) -> None:
    screen.begin()
    screen.send(started("a"), started("other"))
    inner = started("inner", parentSubagentRunId="a")
    assert screen.send(inner, *by("inner", *text("m", "x"))) == ("  ◆ inner starts\n[inner] x\n")
    assert screen.send(finished("inner")) == "  ◆ inner is done\n  ◆ other starts\n"


def test_subagents_that_nobody_announced_take_turns_by_message(screen: Screen) -> None:
    """SUB-3: attribution without announcement."""
    a, b = text("m1", "a1 ", "a2"), text("m2", "b1 ", "b2")
    screen.begin()
    screen.send(*by("a", a[0], a[1]), *by("b", b[0], b[1]), *by("a", *a[2:]), *by("b", *b[2:]))
    assert screen.out.getvalue() == "[a] a1 a2\n\n[b] b1 b2\n"


@pytest.mark.parametrize("how", ["finish", "error", "break"])
def test_whoever_waits_is_heard_before_the_end(screen: Screen, how: str) -> None:
    a, b = text("m1", "a1 "), text("m2", "b1 ")
    screen.begin()
    screen.send(*by("a", *a[:-1]), *by("b", *b[:-1]))
    if how == "finish":
        screen.send(*by("a", a[-1]), *by("b", b[-1]), FINISHED)
    elif how == "error":
        screen.send({"type": "RUN_ERROR", "message": "no"})
    else:
        screen.renderer.end()
    assert "[a] a1 \n" in screen.out.getvalue()
    assert "[b] b1 \n" in screen.out.getvalue()


# -- activities and questions ----------------------------------------------------------


def progress(value: int, path: str = "/n") -> dict[str, Any]:
    patch = [{"op": "replace", "path": path, "value": value}]
    return {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "work", "patch": patch}


def test_an_activity_that_changes_often_is_shown_now_and_then(screen: Screen) -> None:
    content = {"n": 0, "m": 0}
    screen.begin()
    screen.send(
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "a",
            "activityType": "work",
            "content": content,
        }
    )
    assert screen.send(progress(1)) == "  ◇ work: /n = 1\n"
    assert screen.send(progress(2), progress(7, "/m"), progress(3)) == ""
    assert screen.wait(0.9) == ""
    assert screen.wait(0.2) == "  ◇ work: /m = 7, /n = 3\n"
    assert screen.send(*text("m", "words")[:2]) == "words"
    screen.now += 5
    assert screen.send(progress(4)) == "", "not in the middle of a line"
    assert screen.send(text("m")[-1]) == "\n  ◇ work: /n = 4\n"
    assert screen.send(progress(5), FINISHED) == "  ◇ work: /n = 5\n"


@pytest.mark.parametrize(
    "event", [result("c", "done"), {"type": "STEP_FINISHED", "stepName": "work"}]
)
def test_how_far_it_came_is_shown_with_what_it_came_to(
    screen: Screen, event: dict[str, Any]
) -> None:
    screen.begin()
    screen.send({"type": "STEP_STARTED", "stepName": "work"})
    screen.send(
        {
            "type": "ACTIVITY_SNAPSHOT",
            "messageId": "a",
            "activityType": "work",
            "content": {"n": 0},
        },
        progress(1),
        progress(2),
    )
    assert screen.send(event).startswith("  ◇ work: /n = 2\n")


def test_a_result_is_named_even_if_an_earlier_run_made_the_call(screen: Screen) -> None:
    screen.show(*call("c", "replace", "{}"), *text("m", "Well?"))
    assert screen.show(result("c", "yes")).endswith("  └ replace: yes\n")


DIFF = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n"


def interrupted(message: str, **members: Any) -> dict[str, Any]:
    interrupts = [{"id": "i", "reason": "approval", "message": message, **members}]
    return {**FINISHED, "outcome": {"type": "interrupt", "interrupts": interrupts}}


def test_a_question_is_shown_with_its_diff(screen: Screen) -> None:
    shown = screen.show(end=interrupted(f"Shall I?\n\n{DIFF}"))
    assert shown.splitlines() == [
        "  ? The agent asks (approval): Shall I?",
        "  --- a/f",
        "  +++ b/f",
        "  @@ -1,2 +1,2 @@",
        "   same",
        "  -old",
        "  +new",
    ]


def test_a_diff_is_coloured_and_other_lines_are_not() -> None:
    shown = Screen(styled=True).show(end=interrupted(f"Shall I?\n{DIFF}"))
    assert "\x1b[31m  -old" in shown
    assert "\x1b[32m  +new" in shown
    other = Screen(styled=True).show(end=interrupted("Choose:\n- this\n+ that"))
    assert "\x1b[31m" not in other
    assert "  - this\n" in other


def test_a_long_question_is_cut_and_says_so(screen: Screen) -> None:
    shown = screen.show(end=interrupted("Well?\n" + "line\n" * 1000))
    assert shown.endswith("  … 700 more lines\n")


def test_the_call_that_a_question_is_about_is_shown_unless_it_is_right_above(
    screen: Screen,
) -> None:
    function = FunctionCall(name="delete", arguments='{"path": "a"}')
    screen.renderer.call_of = lambda id: ToolCall(id=id, type="function", function=function)
    question = interrupted("Sure?", toolCallId="c")
    again = 'about delete {"path": "a"}'
    assert again not in screen.show(*call("c", "delete", '{"path": "a"}'), end=question)
    screen.renderer.begin()  # another run, which asks once more
    assert screen.show(end=question).count(again) == 1
    screen.renderer.begin()
    calls = [*call("c", "delete", '{"path": "a"}'), *call("d", "other", "{}")]
    assert screen.show(*calls, end=question).count(again) == 2


def test_every_kind_of_change_is_compact(screen: Screen) -> None:
    shown = screen.show(
        {"type": "STATE_SNAPSHOT", "snapshot": None},
        {"type": "STATE_SNAPSHOT", "snapshot": {}},
        {"type": "STATE_SNAPSHOT", "snapshot": {f"k{n}": "v" * 20 for n in range(9)}},
        {
            "type": "STATE_DELTA",
            "delta": [
                {"op": "test", "path": "/k0", "value": "v" * 20},
                {"op": "move", "path": "/m", "from": "/k1"},
                {"op": "copy", "path": "/c", "from": "/k2"},
                *({"op": "add", "path": f"/n{n}", "value": n} for n in range(7)),
            ],
        },
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "", "value": True}]},
        {"type": "STATE_DELTA", "delta": []},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "BAR", "content": {"p": 1}},
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "a",
            "activityType": "BAR",
            "patch": [{"op": "replace", "path": "/p", "value": 2}],
        },
        {"type": "CUSTOM", "name": "com.example.ping", "value": [1]},
        {"type": "RAW", "event": {"noise": 1}},
        {"type": "MESSAGES_SNAPSHOT", "messages": []},
    )
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[0] == "≡ state: null"
    assert lines[1] == "≡ state: {}"
    assert lines[2].endswith(" and 3 more")
    assert lines[3:] == [
        "≡ state: /m moved from /k1, /c copied from /k2, /n0 = 0, /n1 = 1, /n2 = 2 and 4 more",
        "≡ state: (all) = true",
        "≡ state: unchanged",
        "◇ BAR: p = 1",
        "◇ BAR: /p = 2",
        "◇ com.example.ping: [1 item]",
        "≡ messages: 0 restated",
    ]


def test_an_answer_that_comes_in_a_snapshot_alone_is_shown(screen: Screen) -> None:
    """Some bridges restate the thread at the end, and that is where what nobody streamed is."""
    messages: list[dict[str, Any]] = [
        {"id": "u-1", "role": "user", "content": "Hello"},
        {"id": "a-1", "role": "assistant", "content": "Of an earlier run."},
        {"id": "u-2", "role": "user", "content": "And now?"},
        {"id": "m", "role": "assistant", "content": "Streamed."},
        {"id": "a-2", "role": "assistant", "content": "Not streamed."},
        {"id": "a-3", "role": "assistant", "toolCalls": []},
    ]
    restated = {"type": "MESSAGES_SNAPSHOT", "messages": messages}
    shown = screen.show(*text("m", "Streamed."), restated, restated)
    assert shown.splitlines() == [
        "Streamed.",
        "  ≡ messages: 6 restated",
        "Not streamed.",
        "  ≡ messages: 6 restated",
    ]


def test_how_a_run_ended_is_said_when_it_is_not_plain_success(screen: Screen) -> None:
    """RUN-10: a cancelled run is presented neither as success nor as failure."""
    assert screen.show(end={**FINISHED, "outcome": {"type": "success"}}) == ""
    interrupts = [{"id": "i", "reason": "approval", "message": "Delete it?"}]
    screen.show(end={**FINISHED, "outcome": {"type": "interrupt", "interrupts": interrupts}})
    usage = [{"model": "m1", "inputTokens": 1200, "outputTokens": 7}, {"totalTokens": 5}]
    shown = screen.show(
        end={**FINISHED, "outcome": {"type": "cancelled"}, "result": {"a": 1}, "usage": usage}
    )
    assert shown.splitlines() == [
        "  ? The agent asks (approval): Delete it?",
        "  = result: a = 1",
        "  ■ The agent stopped the run before it was complete.",
        "  tokens: 1,200 in, 7 out (m1)",
        "  tokens: not reported",
    ]
    assert screen.err.getvalue() == ""


def test_a_failure_is_told_on_the_error_stream_after_what_had_come(screen: Screen) -> None:
    """RUN-8: what was delivered stays, and the failure is surfaced."""
    shown = screen.show(
        *text("m", "partly")[:-1], end={"type": "RUN_ERROR", "message": "no credit", "code": "402"}
    )
    assert shown == "partly\n"
    assert screen.err.getvalue() == "✗ The run failed: no credit (code 402)\n"


def test_warnings_and_errors_are_one_line_each(screen: Screen) -> None:
    warning = ProtocolWarning(stage="enforcement", rule="PROC-2", message="lost\nit", path="/x")
    screen.renderer.warning(warning)
    screen.renderer.error("went\nwrong")
    warned, failed = screen.err.getvalue().splitlines()
    assert warned.startswith("! lost")
    assert warned.endswith("at '/x' [PROC-2]")
    assert failed == "✗ went⏎wrong"


def test_a_run_that_breaks_off_leaves_a_whole_line(screen: Screen) -> None:
    consumer = Consumer()
    for event in (
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        *text("m", "half a line \ud83d")[:-1],
    ):
        for trusted in consumer.receive_event(event):
            screen.renderer.event(trusted)
    screen.renderer.end()
    assert screen.out.getvalue() in ("half a line \ufffd\n", "half a line \n")


# -- what can't reach the terminal -----------------------------------------------------

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\r\b\x00\x7f\u202egpj\u2066.exe\u2028"


def harmless(written: str) -> bool:
    return not any(
        (ord(char) < 0x20 and char not in "\n\t")
        or 0x7F <= ord(char) < 0xA0
        or 0x202A <= ord(char) <= 0x202E
        or 0x2066 <= ord(char) <= 0x2069
        or char in "\u2028\u2029"
        or 0xD800 <= ord(char) < 0xE000
        for char in written
    )


EVERYWHERE: list[Callable[[], list[dict[str, Any]]]] = [
    lambda: text("m", EVIL, name=EVIL),
    lambda: [*call("c", EVIL, EVIL), result("c", EVIL)],
    lambda: [result("unknown", EVIL + "\n" + EVIL)],
    lambda: [result("unknown", [{"type": "text", "text": EVIL}])],
    lambda: [{"type": "STATE_SNAPSHOT", "snapshot": {EVIL: EVIL}}],
    lambda: [{"type": "STATE_SNAPSHOT", "snapshot": EVIL}],
    lambda: [{"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/" + EVIL, "value": EVIL}]}],
    lambda: [
        {"type": "STEP_STARTED", "stepName": EVIL},
        {"type": "STEP_FINISHED", "stepName": EVIL},
    ],
    lambda: [
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": EVIL, "content": {EVIL: 1}}
    ],
    lambda: [{"type": "CUSTOM", "name": EVIL, "value": EVIL}],
    lambda: [
        {"type": "SUBAGENT_STARTED", "subagentRunId": EVIL, "name": EVIL, "description": EVIL},
        {"type": "SUBAGENT_ERROR", "subagentRunId": EVIL, "message": EVIL},
        *({**event, "subagentRunId": EVIL + "2"} for event in text("m", "x")),
    ],
    lambda: [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "s"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "result": {EVIL: EVIL}},
    ],
    lambda: [
        {"type": "REASONING_START", "messageId": "x"},
        {"type": "REASONING_MESSAGE_START", "messageId": "x", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "x", "delta": EVIL},
        {"type": "REASONING_MESSAGE_END", "messageId": "x"},
        {"type": "REASONING_END", "messageId": "x"},
    ],
]


@pytest.mark.parametrize("events", EVERYWHERE)
def test_no_control_character_of_the_agent_is_written(
    screen: Screen, events: Callable[[], list[dict[str, Any]]]
) -> None:
    """SEC-3: what an agent sends is data."""
    ends: list[dict[str, Any]] = [
        {"type": "RUN_ERROR", "message": EVIL, "code": EVIL},
        {
            **FINISHED,
            "result": EVIL,
            "outcome": {
                "type": "interrupt",
                "interrupts": [
                    {"id": "i", "reason": EVIL, "message": f"{EVIL}\n@@ {EVIL}\n-{EVIL}"}
                ],
            },
            "usage": [{"model": EVIL}],
        },
    ]
    for end in ends:
        screen.show(*events(), end=end)
    assert screen.out.getvalue()
    assert harmless(screen.out.getvalue())
    assert harmless(screen.err.getvalue())


def test_styles_are_the_only_escape_sequences() -> None:
    screen = Screen(styled=True)
    shown = screen.show(*text("m", "\x1b[31mred"), *call("c", "tool", "{}"))
    assert "\x1b[1;33m" in shown
    assert "\x1b[31m" not in shown
    assert "␛[31mred" in shown


def test_what_is_no_terminal_gets_no_escape_sequence() -> None:
    out = io.StringIO()
    renderer = Renderer(out, out)
    renderer.user("hi")
    renderer.note("so")
    renderer.error("no")
    assert out.getvalue() == "> hi\nso\n✗ no\n"


def test_a_terminal_gets_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert Renderer(Terminal(), Terminal()).styled
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Renderer(Terminal(), Terminal()).styled
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Renderer(Terminal(), Terminal()).styled


def test_lines_about_the_run_fit_into_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    out = Terminal()
    renderer = Renderer(out, out, styled=False)
    for event in Consumer().receive_event({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}):
        renderer.event(event)
    screen = Screen()
    screen.out, screen.renderer = out, renderer
    shown = screen.show({"type": "STATE_SNAPSHOT", "snapshot": {"a": "x" * 200, "b": "y" * 200}})
    assert all(len(line) < 60 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("deltas", "written"),
    [
        (["a\r\nb", "c\r", "\nd"], "a\nbc\nd"),
        (["a\rb"], "a␍b"),
        (["a\r"], "a␍"),
        (["\ud83d", "\ude00!"], "😀!"),
        (["\ud83d", "x\ude00"], "\ufffdx\ufffd"),
        (["\ud83d"], "\ufffd"),
        (["\ufefftab\tand\nline"], "\ufefftab\tand\nline"),
        (["\x1b", "[0m"], "␛[0m"),
        (["", "é", ""], "é"),
    ],
)
def test_text_is_cleaned_however_it_is_cut(deltas: list[str], written: str) -> None:
    """STREAM-2: deltas concatenate, and a pair of surrogates may come in two of them."""
    cleaner = Cleaner()
    assert "".join(map(cleaner.feed, deltas)) + cleaner.end() == written


def test_one_line_is_short_and_has_no_line_end() -> None:
    assert one_line("a\nb\tc\r\n") == "a⏎b c⏎"
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
