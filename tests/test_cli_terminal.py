"""`aguia chat` through a pseudo-terminal: what a person types, and what they see."""

import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aguia.server import AgentApp, Run, RunError
from support_server import serve
from support_terminal import CTRL_C, CTRL_D, ENTER, UP, Origin, Terminal, origin_of_terminals

pytestmark = pytest.mark.skipif(os.name != "posix", reason="terminals as POSIX has them")

MARKDOWN = """\
# Eagles

An eagle is **large**, see [the page](https://example.org/eagle):

- has `two` wings
- and a *beak*

| what | count |
|------|------:|
| wing | 2 |

```python
def soar(height):
    return height + 1
```
"""

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b2J\u202egnp.exe\x00"

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "description": "What else we should know"},
        "size": {"enum": ["small", "large"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "gift": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}},
            "required": ["street"],
        },
    },
    "required": ["size", "count", "gift", "address"],
}


async def agent(run: Run) -> None:
    last = run.messages[-1]
    if run.resume:
        await run.say(
            json.dumps([[e.interrupt_id, e.status, e.payload or None] for e in run.resume])
        )
        return
    if last.role == "tool":
        await run.say(f"The tool said {last.content!r}, error {last.error!r}.")
        return
    said = last.content if isinstance(last.content, str) else ""
    match said.split(" ", 1)[0]:
        case "markdown":
            async with run.text() as text:
                for start in range(0, len(MARKDOWN), 3):
                    await text.write(MARKDOWN[start : start + 3])
        case "slow":
            async with run.text() as text:
                await text.write("It begins ")
                await anyio.sleep_forever()
        case "pause":
            await run.say("It begins")
            await anyio.sleep(0.5)
        case "fail":
            raise RunError("no credit", "quota")
        case "silent":
            await anyio.sleep_forever()
        case "evil":
            await evil(run)
        case "order":
            run.interrupt("input", message="What shall it be?", response_schema=ORDER)
        case "approve":
            async with run.tool_call("delete", {"path": "a.txt"}) as call:
                pass
            run.interrupt(
                "approval",
                message="Delete it?",
                tool_call_id=call.tool_call_id,
                response_type=bool,
                interrupt_id="first",
            )
            run.interrupt(
                "input",
                message="Which of them?",
                response_schema={"enum": ["red", "blue"]},
                interrupt_id="second",
            )
        case "call" | "late" as how:
            _, name, arguments = said.split(" ", 2)
            if how == "late":
                await run.say("It begins")
                await anyio.sleep(0.5)
            async with run.tool_call(name, arguments):
                pass
        case _ if isinstance(last.content, str):
            await run.say(f"You said {said!r}.")
        case _:
            parts = last.content if isinstance(last.content, list) else []
            kinds = [f"{part.type} {getattr(part, 'source', part)!r:.60}" for part in parts]
            await run.say(f"You sent {kinds}.")


async def evil(run: Run) -> None:
    async with run.text() as text:
        for part in ("\x1b", "[2J", "]0;x", "\x07 ", "&#x202e;", "<http://x/%1b[2J>", f"`{EVIL}`"):
            await text.write(part)
        await text.write(f"\n\n```{EVIL}\n{EVIL}\n```\n\n| {EVIL} |\n|---|\n| {EVIL} |\n")
    async with run.tool_call(f"tool{EVIL}", {EVIL: EVIL}) as call:
        pass
    await call.result(EVIL)
    run.state[EVIL] = EVIL
    schema = {
        "title": EVIL,
        "type": "object",
        "properties": {
            f"{EVIL}": {"enum": [EVIL, "b"], "description": EVIL},
            "b": {"enum": [EVIL]},
        },
        "required": [EVIL],
    }
    run.interrupt(EVIL, message=f"{EVIL}\n{EVIL}", response_schema=schema)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(AgentApp(agent)) as url:
        yield url


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with origin_of_terminals() as origin:
        yield origin


@pytest.fixture
def start(url: str, origin: Origin, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts a chat with the agent on a terminal, at home in a folder of its own."""
    begun: list[Terminal] = []
    with origin.terminals() as started:

        def start(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> Terminal:
            home = {"XDG_STATE_HOME": str(tmp_path / "state"), **(env or {})}
            begun.append(started("chat", url, *arguments, env=home, cwd=tmp_path, **options))
            return begun[-1]

        yield start
        for terminal in begun:
            assert b"Traceback" not in terminal.raw
            assert b"exception" not in terminal.raw


# -- the editor ------------------------------------------------------------------------


def test_lines_of_several_and_the_history(start: Callable[..., Terminal], tmp_path: Path) -> None:
    terminal = start()
    terminal.at_prompt()
    terminal.type("one\\", ENTER, "two\x1b\r", "three", ENTER)
    terminal.wait_for("You said 'one\\ntwo\\nthree'.")
    terminal.at_prompt()
    terminal.paste("four\nfive")
    terminal.type(ENTER)
    terminal.wait_for("You said 'four\\nfive'.")
    terminal.at_prompt()
    terminal.type("/sta\t")
    terminal.wait_for("> /state")
    terminal.type(CTRL_C)  # takes it back
    terminal.at_prompt()
    terminal.type(CTRL_D)
    assert terminal.ends() == 0

    kept = tmp_path / "state" / "aguia" / "history"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    terminal = start()
    terminal.at_prompt()
    terminal.type(UP)
    terminal.wait_for("> four")
    terminal.type(UP, UP, UP, UP)
    terminal.wait_for("> one")
    terminal.type(ENTER)
    terminal.wait_for("You said 'one\\ntwo\\nthree'.")
    terminal.say("/quit")
    assert terminal.ends() == 0


def test_a_history_that_has_grown_is_cut(start: Callable[..., Terminal], tmp_path: Path) -> None:
    kept = tmp_path / "state" / "aguia" / "history"
    kept.parent.mkdir(parents=True)
    kept.write_text("".join(f"\n# then\n+said {n} {'x' * 1_000}\n" for n in range(1_200)))
    terminal = start()
    terminal.at_prompt()
    terminal.type(UP)
    terminal.wait_for("> said 1199 xxx")
    terminal.type(CTRL_C, CTRL_D)
    assert terminal.ends() == 0
    assert 400_000 < kept.stat().st_size < 500_001
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("how", ["no-history", "unwritable"])
def test_no_history_is_no_obstacle(
    start: Callable[..., Terminal], tmp_path: Path, how: str
) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    terminal = start(*(["--no-history"] if how == "no-history" else []))
    terminal.say("hello")
    terminal.wait_for("You said 'hello'.")
    terminal.say("/exit")
    assert terminal.ends() == 0
    assert (tmp_path / "state").is_file()


# -- Markdown --------------------------------------------------------------------------


def test_markdown_is_laid_out(start: Callable[..., Terminal]) -> None:
    terminal = start(columns=60)
    terminal.say("markdown")
    terminal.wait_for("return height + 1")
    shown = terminal.at_prompt()
    for line in (
        "# Eagles",
        "An eagle is large, see the page",
        "(https://example.org/eagle):",
        " • has two wings",
        " • and a beak",
        "what   count",
        "wing       2",
        "  def soar(height):",
        "      return height + 1",
    ):
        assert shown.split("\n").count(line) == 1, f"{line!r} in\n{shown}"
    assert b"\x1b]8" not in terminal.raw, "no link can be clicked"
    assert b"\x1b[1m" in terminal.raw
    # The same in a terminal that is narrower now, and in one that is wider.
    terminal.resize(30, 40)
    terminal.say("markdown")
    shown = terminal.wait_for("return height + 1", times=2)
    terminal.at_prompt()
    assert "An eagle is large, see the\npage" in shown
    terminal.resize(100, 40)
    terminal.say("/quit")
    assert terminal.ends() == 0


@pytest.mark.parametrize(
    ("env", "plain"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, True)], ids=str
)
def test_a_terminal_that_wants_less_gets_less(
    start: Callable[..., Terminal], env: dict[str, str], plain: bool
) -> None:
    terminal = start(env=env)
    terminal.say("markdown")
    shown = terminal.wait_for("return height + 1")
    assert ("**large**" in shown) is plain
    assert ("• has `two` wings" in shown) is not plain
    run = terminal.raw.partition(b"markdown\r\n")[2].partition(b"return height")[0]
    assert not re.search(rb"\x1b\[[\d;]*m", run), "no colours"
    if plain:
        assert b"\x1b" not in run
    terminal.say("/quit")
    assert terminal.ends() == 0


# -- runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["key", "signal"])
def test_ctrl_c_cancels_the_run_and_not_the_program(
    start: Callable[..., Terminal], how: str
) -> None:
    terminal = start()
    press = terminal.interrupt if how == "signal" else lambda: terminal.type(CTRL_C)
    terminal.say("slow")
    terminal.wait_for("It begins")
    press()
    terminal.wait_for("■ Cancelled.")
    shown = terminal.at_prompt()
    assert "It begins\n" in shown, "what arrived is kept"
    terminal.say("pause")
    terminal.wait_for("It begins", times=2)
    terminal.type("typed ahead")
    shown = terminal.at_prompt("> typed ahead")
    assert shown.count("typed ahead") == 1, "it is not shown in the midst of a run"
    terminal.type(ENTER)
    terminal.wait_for("You said 'typed ahead'.")
    terminal.say("silent")
    terminal.wait_for("… 1 s")
    press()
    terminal.wait_for("■ Cancelled.", times=2)
    assert "… 1 s" not in terminal.text
    terminal.at_prompt()
    press()
    assert terminal.ends() == 130


def test_ctrl_c_at_the_prompt_says_how_to_leave(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.at_prompt()
    terminal.type(CTRL_C)
    terminal.wait_for("Ctrl-C once more leaves, and so do Ctrl-D and /quit.")
    terminal.at_prompt()
    terminal.type(CTRL_C)
    assert terminal.ends() == 130


def test_the_conversation_goes_on_after_a_failure(start: Callable[..., Terminal]) -> None:
    """RUN-8."""
    terminal = start()
    terminal.say("fail")
    terminal.wait_for("✗ The run failed: no credit (code quota)")
    terminal.say("/help")
    terminal.wait_for("/messages")
    terminal.say("/nothing")
    terminal.wait_for("/nothing is an unknown command, /help lists them.")
    terminal.say("quit")
    assert terminal.ends() == 0


def test_the_demo_leaves_the_prompt_to_the_person(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text("def receive(data):\n    __return__ = data\n")
    with origin.terminals() as start:
        home = {"XDG_STATE_HOME": str(tmp_path / "state")}
        terminal = start("demo", cwd=tmp_path, env=home, columns=200)
        shown = terminal.wait_for("Now you: ")
        assert "That was about a folder of samples, which is gone." in shown
        terminal.say("read reader.py")
        terminal.wait_for("    __return__ = data")
        shown = terminal.at_prompt()
        terminal.type(CTRL_D)
        assert terminal.ends() == 0
    ports = set(re.findall(r"http://127\.0\.0\.1:(\d+)/", shown))
    assert len(ports) == 2
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(port))) != 0, "the server is still there"


# -- questions as forms ----------------------------------------------------------------


def test_a_form_asks_for_each_field(start: Callable[..., Terminal]) -> None:
    """INT-7: the answer has the form that the schema describes."""
    terminal = start()
    terminal.say("order")
    terminal.wait_for("? The agent asks (input): What shall it be?")
    terminal.at_prompt("size>")
    assert "1. small" in terminal.text
    terminal.type("huge", ENTER)
    terminal.wait_for("! That is none of the choices")
    terminal.type("/state", ENTER)
    terminal.wait_for("{}")
    terminal.at_prompt("size>")
    assert terminal.text.count("! That is none of the choices") == 1
    terminal.type("2", ENTER)
    terminal.wait_for("(integer from 1 to 9; default: 2)")
    terminal.at_prompt("count>")
    terminal.type("12", ENTER)
    terminal.wait_for("! Expected integer from 1 to 9")
    terminal.at_prompt("count>")
    terminal.type(ENTER)
    terminal.at_prompt("gift, yes or no?")
    terminal.type("maybe", ENTER)
    terminal.wait_for("! That is neither yes nor no")
    terminal.type("y", ENTER)
    terminal.at_prompt("address.street>")
    terminal.type(ENTER)
    terminal.wait_for("! An answer is needed")
    terminal.type("Rua Augusta, 5", ENTER)
    terminal.at_prompt("note>")
    assert "What else we should know" in terminal.text
    terminal.type(ENTER)
    terminal.at_prompt("tags>")
    terminal.type("a, b", ENTER)
    shown = terminal.wait_for("resolved")
    [[_, status, answer]] = json.loads(re.search(r"\[\[.*\]\]", shown.replace("\n", " "))[0])  # type: ignore[index]
    assert (status, answer) == (
        "resolved",
        {
            "size": "large",
            "count": 2,
            "gift": True,
            "address": {"street": "Rua Augusta, 5"},
            "tags": ["a", "b"],
        },
    )
    terminal.say("order")
    terminal.at_prompt("size>")
    terminal.type(CTRL_C)
    terminal.wait_for("Ctrl-C once more leaves")
    terminal.at_prompt("size>")
    terminal.type("/cancel", ENTER)
    terminal.wait_for('"cancelled", null')
    terminal.say("order")
    terminal.at_prompt("size>")
    terminal.type(CTRL_D)
    assert terminal.ends() == 0


def test_every_question_is_answered_before_the_run_goes_on(start: Callable[..., Terminal]) -> None:
    """INT-2: one after another; the call that a question is about is shown with it."""
    terminal = start()
    terminal.say("approve")
    terminal.wait_for('about delete {"path": "a.txt"}')
    terminal.wait_for("Answer yes or no; /cancel drops the question.")
    terminal.at_prompt("yes or no?")
    terminal.type("no", ENTER)
    terminal.wait_for("And: Which of them?")
    terminal.wait_for("2. blue")
    terminal.at_prompt("answer>")
    terminal.type("blue", ENTER)
    terminal.wait_for('[["first", "resolved", null], ["second", "resolved", "blue"]]')
    terminal.say("/quit")
    assert terminal.ends() == 0


# -- tools of the person's own ---------------------------------------------------------

TOOLS = """
from pathlib import Path

from aguia.client import tool


def note(text: str, urgent: bool = False) -> str:
    "Writes a note.\\x1b[2J"
    Path("notes.txt").open("a").write(text)
    return f"noted {text}"


@tool(read_only=True)
def clock() -> str:
    "What time it is."
    return "noon"


def _hidden() -> None: ...
"""


def test_a_tool_runs_when_the_person_says_so(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    """SEC-2: consent before side effects; FRONT-5: a refusal says so, with its reason."""
    (tmp_path / "mine.py").write_text(TOOLS)
    terminal = start("--tools", "mine.py", columns=120)
    terminal.say("/tools")
    terminal.wait_for("clock: What time it is. (runs without asking: it only reads)")
    ask = "Run note?"

    terminal.say('call note {"text": "one\\u202e", "urgent": true}')
    shown = terminal.at_prompt(ask)
    assert "? The agent wants to run note\n  Writes a note.␛[2J\n" in shown
    assert '  {\n    "text": "one\ufffd",\n    "urgent": true\n  }' in shown
    assert not (tmp_path / "notes.txt").exists()
    terminal.type("y", ENTER)
    terminal.wait_for("└ note: noted one")
    terminal.wait_for("The tool said 'noted one")

    terminal.say('call note {"text": "two"}')
    terminal.at_prompt(ask)
    terminal.type("not today", ENTER)
    terminal.wait_until(
        lambda text: text.count("└ note: ✗ ") == 1 and "not today'" in text, "the refusal"
    )
    terminal.say('call note {"text": "three"}')
    terminal.at_prompt(ask)
    terminal.type(CTRL_C)
    terminal.wait_for("└ note: ✗ ", times=2)

    terminal.say("call clock {}")
    terminal.wait_for("● clock (reads only)")
    terminal.wait_for("The tool said 'noon'")

    terminal.say('call note {"text": "four"}')
    terminal.at_prompt(ask)
    terminal.type("a", ENTER)
    terminal.wait_for("The tool said 'noted four'")
    terminal.say('call note {"text": "five"}')
    terminal.wait_for("The tool said 'noted five'")

    terminal.say('call note {"text": 5}')
    terminal.wait_for("└ ✗ InvalidArguments: at '/text'")
    terminal.say("call other {}")
    terminal.wait_for("└ ✗ UnknownTool: the application has no tool 'other' to run")
    terminal.say("/quit")
    assert terminal.ends() == 0
    assert (tmp_path / "notes.txt").read_text() == "one\u202efourfive"


def test_what_was_typed_before_the_question_consents_to_nothing(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    """SEC-2."""
    (tmp_path / "mine.py").write_text(TOOLS)
    terminal = start("--tools", "mine.py")
    terminal.say('late note {"text": "one"}')
    terminal.wait_for("It begins")
    terminal.type("y", ENTER)
    terminal.at_prompt("Run note?")
    terminal.type("n", ENTER)
    terminal.wait_for("└ note: ✗ ")
    terminal.say("/quit")
    assert terminal.ends() == 0
    assert not (tmp_path / "notes.txt").exists()


def test_a_question_that_is_loaded_is_put_once(start: Callable[..., Terminal]) -> None:
    terminal = start()
    terminal.say("order")
    terminal.at_prompt("size>")
    terminal.type("/save order.json", ENTER)
    terminal.wait_for("Saved 1 message to order.json.")
    terminal.say("/quit", "size>")
    assert terminal.ends() == 0

    terminal = start("--load", "order.json")
    terminal.at_prompt("size>")
    assert terminal.text.count("What shall it be?") == 1


# -- files -----------------------------------------------------------------------------


def test_files_by_path_and_a_saved_conversation(
    start: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "an eagle.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\x00" * 20)
    (tmp_path / "notes.md").write_text("# notes")
    terminal = start(columns=150)
    terminal.at_prompt()
    terminal.type("/image an e\t")
    terminal.at_prompt("> /image an eagle.png")
    terminal.type(ENTER)
    terminal.wait_for("You sent [\"image DataSource(value='iVBORw0")
    assert "with an eagle.png, image, 28 bytes\n" in terminal.text
    terminal.say("look at @notes.md, @nobody")
    terminal.wait_for("document DataSource")
    terminal.say("look at @missing.png")
    terminal.wait_for("There is no file missing.png.")
    terminal.say("/image /etc")
    terminal.wait_for("Cannot attach /etc: ")
    terminal.say("/save talk.json")
    terminal.wait_for("Saved 4 messages to talk.json.")
    terminal.say("/save talk.json")
    terminal.at_prompt("Write over talk.json, yes or no?")
    terminal.type("n", ENTER)
    terminal.wait_for("Nothing is written.")
    terminal.say("/new")
    terminal.say("/messages")
    terminal.wait_for("No messages yet.")
    terminal.say("/quit")
    assert terminal.ends() == 0
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant"] * 2

    terminal = start("--load", "talk.json")
    terminal.wait_for("Going on with 4 messages; /messages shows them.")
    terminal.say("/messages")
    terminal.wait_for("user: [{")
    terminal.say("/quit")
    assert terminal.ends() == 0


# -- serving ---------------------------------------------------------------------------


def test_a_server_leaves_the_line_that_ctrl_c_has_begun(origin: Origin, tmp_path: Path) -> None:
    with origin.terminals() as started:
        terminal = started("serve", "--port", "0", cwd=tmp_path)
        terminal.wait_for("Ctrl-C ends it.")
        terminal.type(CTRL_C)
        assert terminal.ends() == 0
        assert terminal.raw.endswith(b"^C\r\n")


# -- what an agent can't do ------------------------------------------------------------


def test_nothing_that_an_agent_sends_acts_on_the_terminal(start: Callable[..., Terminal]) -> None:
    """SEC-3: what it sends is data, wherever in an event it stands."""
    terminal = start()
    terminal.say("evil")
    terminal.wait_until(lambda text: text.rstrip().endswith(">") and "1. " in text, "the form")
    terminal.type("/messages", ENTER, "/state", ENTER, "1", ENTER, ENTER, ENTER)
    terminal.at_prompt()
    terminal.say("/quit")
    assert terminal.ends() == 0
    raw = terminal.raw.decode()
    assert "owned" in raw, "it is shown"
    assert "\x07" not in raw
    assert "\x1b]" not in raw
    assert "\x1b[2J" not in raw
    assert not re.search("[\x00\x80-\x9f\u202a-\u202e\u2066-\u2069]", raw)
