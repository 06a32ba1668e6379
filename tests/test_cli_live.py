"""What is redrawn on a terminal: lines in place, Markdown as it streams, cards of tool calls."""

import io
import re
from itertools import pairwise
from typing import Any

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguia import Consumer
from aguia.cli.live import Line, Live
from aguia.cli.markdown import MarkdownLines, Painter
from aguia.cli.render import Renderer
from aguia.protocol.messages import FunctionCall, ToolCall, ToolMessage
from support_events import call, text

SGR = re.compile(r"\x1b\[[\d;]*m")
MOVES = re.compile(r"\x1b\[\d*[AKJ]|\r")


class Memory(io.StringIO):
    """A terminal in memory: what was written, and what is seen."""

    def __init__(self, columns: int = 60, rows: int = 20) -> None:
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=0.5)
        self.screen.set_mode(pyte.modes.LNM)
        self.stream = pyte.Stream(self.screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.stream.feed(text)
        return super().write(text)

    @property
    def seen(self) -> list[str]:
        above = [
            "".join(line[column].data for column in range(self.screen.columns))
            for line in self.screen.history.top
        ]
        lines = [line.rstrip() for line in (*above, *self.screen.display)]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class Chat:
    """A renderer on a terminal in memory, fed with the events of one run, and its clock."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch | None = None,
        *,
        columns: int = 60,
        rows: int = 20,
        styled: bool = False,
    ) -> None:
        self.out = Memory(columns, rows)
        self.err = io.StringIO()
        self.now = 0.0
        self.renderer = Renderer(
            self.out, self.err, styled=styled, live=True, clock=lambda: self.now
        )
        if monkeypatch is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
            monkeypatch.setenv("LINES", str(rows))
        self.consumer = Consumer()
        self.send({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})

    def send(self, *events: dict[str, Any]) -> list[str]:
        for event in events:
            for trusted in self.consumer.receive_event(event):
                self.renderer.event(trusted)
        return self.out.seen

    def wait(self, seconds: float) -> list[str]:
        self.now += seconds
        self.renderer.breathe()
        return self.out.seen


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    return Chat(monkeypatch)


OF_C = {"messageId": "r", "toolCallId": "c"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


# -- lines that are redrawn ------------------------------------------------------------


def lines(*texts: str) -> list[Line]:
    return [Line(text, len(text)) for text in texts]


def live(memory: Memory) -> Live:
    return Live(memory.write, lambda: (memory.screen.columns, memory.screen.lines))


def test_only_what_differs_is_written() -> None:
    memory = Memory()
    drawn = live(memory)
    drawn.draw(lines("one", "two", "three"))
    before = len(memory.getvalue())
    drawn.draw(lines("one", "two", "four"))
    assert memory.seen == ["one", "two", "four"]
    written = memory.getvalue()[before:]
    assert "one" not in written
    assert "two" not in written
    drawn.draw(lines("one", "two", "four"))
    assert memory.getvalue() == memory.getvalue()[: before + len(written)]
    drawn.draw(lines("one"))
    assert memory.seen == ["one"]
    drawn.leave()
    drawn.draw(lines("below"))
    assert memory.seen == ["one", "below"]
    drawn.clear()
    assert memory.seen == ["one"]


def test_what_does_not_fit_on_the_screen_is_left_as_it_is() -> None:
    memory = Memory(rows=5)
    drawn = live(memory)
    for count in range(1, 12):
        drawn.draw(lines(*(f"line {n}" for n in range(count)), f"end {count}"))
    assert memory.seen == [*(f"line {n}" for n in range(11)), "end 11"]
    drawn.draw(lines("changed", *(f"line {n}" for n in range(1, 11)), "end 12"))
    assert memory.seen == [*(f"line {n}" for n in range(11)), "end 12"]


def test_a_terminal_that_became_narrower_has_broken_the_lines() -> None:
    written: list[str] = []
    width = 60
    drawn = Live(written.append, lambda: (width, 20))
    drawn.draw(lines("x" * 50, "y" * 10))
    width = 30
    drawn.draw(lines("z" * 29))
    assert written[-1].startswith("\x1b[3A"), "two rows for the first line, one for the second"


# -- Markdown as it streams ------------------------------------------------------------

DOCUMENT = """\
# One

Two **bold** words
and a line

- a
- b

  c

| x | y |
|---|---|
| 1 | 2 |

~~~
code

more
~~~
Last
"""


def painted(*deltas: str, columns: int = 60) -> tuple[list[str], list[str]]:
    """The blocks that are final, and what the rest is drawn as, after these deltas."""
    document = MarkdownLines(Painter(styled=False))
    final = []
    for delta in deltas:
        document.feed(delta)
        for block in document.take(columns):
            final += [line.written for line in block]
    return final, [line.written for line in document.rest(columns)]


def test_a_block_is_final_when_the_next_begins() -> None:
    assert painted("# One\n\nTwo") == (["# One"], ["Two"])
    assert painted("- a\n\n") == ([], [" • a"])
    assert painted("- a\n\n  b\n") == ([], [" • a", "   b"])
    assert painted("a\n", "---\n") == ([], ["## a"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, len(DOCUMENT)), max_size=12))
def test_however_it_is_cut_the_blocks_are_the_same(cuts: list[int]) -> None:
    """STREAM-2: deltas concatenate."""
    places = sorted({0, *cuts, len(DOCUMENT)})
    deltas = [DOCUMENT[a:b] for a, b in pairwise(places)]
    assert painted(*deltas) == painted(DOCUMENT)


def test_a_line_end_and_its_indentation_stay() -> None:
    assert painted("  a\n    b\nc")[1] == ["  a", "    b", "c"]


def test_what_could_be_a_name_is_not_eaten() -> None:
    assert painted("see __init__.py, *.py and a_b_c, <div>")[1] == [
        "see __init__.py, *.py and a_b_c, <div>"
    ]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[here](http://x.org/)", "here (http://x.org/)"),
        ("<http://x.org/>", "http://x.org/"),
        ("[http://good.org](http://evil.org)", "http://good.org (http://evil.org)"),
        ("![a cat](cat.png)", "[image: a cat] (cat.png)"),
        ("[js](javascript:x)", "[js](javascript:x)"),
        ("`a` ~~b~~", "`a` b"),
    ],
)
def test_links_and_images_show_where_they_lead(source: str, shown: str) -> None:
    assert painted(source)[1] == [shown]


def test_no_link_is_clickable() -> None:
    styled = Painter(styled=True)
    written = "".join(line.written for line in styled.paint("[a](http://x.org) ![b](c.png)", 60))
    assert "\x1b]" not in written
    assert "\x1b[4ma" in written


def test_wide_characters_are_counted() -> None:
    [line] = Painter(styled=False).paint("鷲 é", 60)
    assert line.cells == 4


def test_a_block_without_an_end_is_cut_where_a_line_ends() -> None:
    many = [f"line {n}" for n in range(1_000)]
    final, rest = painted("\n".join(many))
    assert final + rest == many
    assert len(rest) < 700
    final, rest = painted("\n".join(["```", *many, "```", "after"]))
    assert final + rest == [*(f"  {line}" for line in many), "after"]
    final, rest = painted("\n".join(["a | b", "--|--", *(f"{line} | x" for line in many)]))
    assert [line for line in final + rest if line.startswith("line")] == [
        f"{line:<8}   x" for line in many
    ]
    final, rest = painted("x" * 50_000, columns=1_000)
    assert "".join(final + rest) == "x" * 50_000


@pytest.mark.parametrize(
    "source", ["[" * 20_000, "*a **b " * 3_000, ">" * 20_000, "- " * 10_000, "|a" * 10_000]
)
def test_hostile_markdown_is_laid_out_all_the_same(source: str) -> None:
    final, rest = painted(source)
    assert final or rest


# -- on the screen ---------------------------------------------------------------------


def test_text_that_streams_is_redrawn_in_its_place(chat: Chat) -> None:
    start, *deltas, end = text("m", "**bo", "ld** a", "nd\n\n- one\n", "- two\n")
    chat.send(start)
    assert chat.send(deltas[0]) == ["**bo"]
    chat.now += 1
    assert chat.send(deltas[1]) == ["bold a"]
    chat.now += 1
    assert chat.send(deltas[2]) == ["bold and", "", " • one"]
    chat.now += 1
    assert chat.send(deltas[3]) == ["bold and", "", " • one", " • two"]
    chat.now += 1
    assert chat.send(end, *text("n", "Next")) == ["bold and", "", " • one", " • two", "", "Next"]


def test_what_comes_faster_than_the_eye_is_drawn_a_little_later(chat: Chat) -> None:
    start, *deltas, end = text("m", *"abcdef")
    assert chat.send(start, *deltas) == ["a"]
    assert chat.wait(0.1) == ["abcdef"]
    chat.send(end)
    assert chat.out.getvalue().count("abc") == 1


def test_the_screen_shows_what_a_file_would_say(chat: Chat) -> None:
    """Nothing is lost or doubled, whatever is redrawn, on a screen of few rows."""
    chat.out.screen.resize(6, 60)
    said = [f"- item {n}\n" for n in range(40)]
    chat.now = 0
    start, *deltas, end = text("m", *said)
    chat.send(start)
    for delta in deltas:
        chat.now += 1
        chat.send(delta)
    assert chat.send(end) == [f" • item {n}" for n in range(40)]


def test_text_that_others_interrupt_goes_on_below(chat: Chat) -> None:
    start, first, second, end = text("m", "Here\n\n```\nco", "de\n```\nend")
    step = {"type": "STEP_STARTED", "stepName": "Dig"}
    done = {"type": "STEP_FINISHED", "stepName": "Dig"}
    assert chat.send(start, first, step, second, done, end) == [
        "Here",
        "",
        "  co",
        "  ▸ Dig",
        "…",
        "  de",
        "",
        "end",
    ]


def test_a_message_that_is_no_markdown_stays_as_it_is(chat: Chat) -> None:
    plain = text("m", "__init__  *a*\n", "# b", metadata={"mimeType": "text/plain"})
    assert chat.send(*plain) == ["__init__  *a*", "# b"]


def test_reasoning_is_broken_between_words(chat: Chat) -> None:
    span = {"type": "REASONING_START", "messageId": "x"}
    start = {"type": "REASONING_MESSAGE_START", "messageId": "x", "role": "reasoning"}
    thoughts = [
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "x", "delta": delta}
        for delta in ("\nI think, ", "word " * 12, "so\n\nthere", " it is\n\n")
    ]
    step = {"type": "STEP_STARTED", "stepName": "Dig"}
    end = {"type": "REASONING_MESSAGE_END", "messageId": "x"}
    assert chat.send(span, start, *thoughts[:3], step, thoughts[3], end) == [
        "thinking: I think, word word word word word word word word",
        "word word word word so",
        "",
        "there",
        "  ▸ Dig",
        "… thinking: it is",
    ]


def test_who_speaks_has_a_line(chat: Chat) -> None:
    assert chat.send(*text("m", "Hi", name="Ada")) == ["Ada:", "Hi"]


def test_a_card_shows_arguments_as_they_come_and_laid_out_in_the_end(chat: Chat) -> None:
    short = call("c", "find", '{"te', 'xt":', ' "x"}')
    chat.send(short[0], short[1])
    assert chat.wait(1) == ['  ● find {"te']
    assert chat.send(*short[2:]) == ['  ● find {"text": "x"}']
    long = call("d", "write", '{"path": "a", "text": "', "x" * 60, '", "n": 1}')
    assert chat.send(*long)[1:] == [
        "  ● write",
        "      {",
        '        "path": "a",',
        '        "text":',
        f'"{"x" * 58}',
        'xx",',
        '        "n": 1',
        "      }",
    ]
    assert chat.send(*call("e", "broken", '{"a'), *call("f", "none"))[9:] == [
        "  ● broken",
        '      {"a',
        "  ● none",
    ]


def test_cards_of_calls_that_interleave(chat: Chat) -> None:
    """STREAM-3."""
    a, b = call("a", "one", '{"x"', ": 1}"), call("b", "two", '{"y": 2}')
    assert chat.send(a[0], a[1], *b, a[2], a[3]) == [
        '  ● one {"x"',
        '  ● two {"y": 2}',
        "  ● … one : 1}",
    ]


def test_a_card_that_is_interrupted_goes_on_with_what_is_new(chat: Chat) -> None:
    started, *deltas, end = call("c", "delete", '{"text":', '"milk"}')
    state = {"type": "STATE_SNAPSHOT", "snapshot": {"items": []}}
    seen = ['  ● delete {"text": "milk"}', "  ≡ state: items = []"]
    assert chat.send(started, *deltas, state, end) == seen
    seen.append("  └ delete: done")
    assert chat.send({"type": "TOOL_CALL_RESULT", **OF_C, "content": "done"}) == seen
    started, end = call("d", "none")
    seen += ["  ● none", "  ≡ state: items = []"]
    assert chat.send(started, state, end) == seen
    started, delta, end = call("e", "long", "[" + "1," * 500)
    assert "  ● … long" in chat.send(started, delta, state, end)  # of which more was cut before


def test_results_of_this_side_are_shown_with_their_errors(chat: Chat) -> None:
    chat.send(*call("c", "find", "{}"), *text("m", "So"), FINISHED)
    chat.renderer.answered(ToolMessage(id="1", tool_call_id="c", content="no", error="no\x1b"))
    chat.renderer.answered(ToolMessage(id="2", tool_call_id="d", content="fine"))
    assert chat.out.seen[2:] == ["  └ find: ✗ no␛", "  └ result: fine"]


def test_an_agent_that_is_silent_is_waited_for(chat: Chat) -> None:
    chat.renderer.begin()
    assert chat.wait(0.5) == []
    assert chat.wait(1) == ["  … 2 s"]
    assert chat.wait(2) == ["  … 4 s"]
    assert chat.send(*text("m", "Well")) == ["Well"]
    with chat.renderer.paused():
        assert chat.wait(5) == ["Well"]
    assert chat.wait(3) == ["Well", "  … 3 s"]
    chat.renderer.end()
    assert chat.wait(3) == ["Well"]


# -- what can't reach the terminal -----------------------------------------------------

PIECES = st.sampled_from(
    [
        *("\x1b", "[2J", "]0;x\x07", "]8;;http://x\x1b\\", "P", "\x9b", "\x9d", "\x00", "\x7f"),
        *("\u202e", "\u2066", "\u200f", "\r", "\n", "\t", "\b", "\u2028", "\ud83d", "\ude00"),
        *("&#27;", "&#x202e;", "&#155;", "%1b", "<http://x/%1b[2J>", "[a](/%9b)", "![\x1b](\x1b)"),
        *("`", "```", "# ", "- ", "| a |\n|---|\n", "**", "<b>", "\\", "é", "鷲", " ", "x"),
        *('{"a": "\x1b"}', '{"\u202e": 1}', "\\u001b"),
    ]
)
HOSTILE = st.lists(PIECES, max_size=12).map("".join)


def harmful(written: str) -> list[str]:
    """What in the written text a terminal would act on, but for colours and the redrawing."""
    left = SGR.sub("", MOVES.sub("", written))
    return re.findall(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
        left,
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_no_text_of_the_agent_acts_on_the_terminal(data: st.DataObject, styled: bool) -> None:
    """SEC-3: wherever it stands, and however it is cut into deltas."""

    def some() -> str:
        return data.draw(HOSTILE)

    def deltas() -> list[str]:
        return data.draw(st.lists(PIECES, min_size=1, max_size=25))

    chat = Chat(styled=styled)
    chat.send(
        *text("m", *deltas(), name=some()),
        *text("p", *deltas(), metadata={"mimeType": "text/plain"}),
        {"type": "STEP_STARTED", "stepName": "s"},
        *call("c", some() or "x", *deltas()),
        {
            "type": "TOOL_CALL_RESULT",
            "messageId": "r",
            "toolCallId": "c",
            "content": some(),
        },
        {"type": "STATE_SNAPSHOT", "snapshot": {some(): some()}},
        {"type": "CUSTOM", "name": some(), "value": some()},
        {"type": "STEP_FINISHED", "stepName": "s"},
        {"type": "REASONING_START", "messageId": "x"},
        {"type": "REASONING_MESSAGE_START", "messageId": "x", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "x", "delta": some()},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "x", "delta": some()},
        {"type": "REASONING_MESSAGE_END", "messageId": "x"},
        {"type": "REASONING_END", "messageId": "x"},
    )
    asked = ToolCall(id="c", type="function", function=FunctionCall(name=some(), arguments=some()))
    chat.renderer.call_of = lambda _: asked
    interrupt = {
        "id": "i",
        "reason": some(),
        "message": some(),
        "toolCallId": "c",
        "expiresAt": some(),
    }
    chat.send({**FINISHED, "outcome": {"type": "interrupt", "interrupts": [interrupt]}})
    chat.renderer.note(some())
    chat.renderer.listing([some()])
    chat.renderer.error(some())
    chat.renderer.user(some())
    assert harmful(chat.out.getvalue() + chat.err.getvalue()) == []
