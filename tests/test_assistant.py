"""The folder assistant: its file tools, how it reads messages, and whole runs of it."""

import json
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest

from aguia import HttpAgent
from aguia.cli.assistant import MAX_ENTRIES, MAX_HITS, folder_assistant
from aguia.cli.assistant.change import PATIENCE
from aguia.cli.assistant.folder import (
    MAX_DEPTH,
    MAX_LINE,
    MAX_READ,
    MAX_SEARCHED,
    Count,
    Folder,
    FolderError,
    Hit,
    Tally,
)
from aguia.cli.assistant.request import Request, last_user_text, understand
from aguia.cli.assistant.search import MAX_AT_ONCE, MAX_SUBAGENTS
from aguia.protocol.content import DataSource, ImagePart, TextPart
from aguia.protocol.events import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    ReasoningStartEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguia.protocol.input import ResumeEntry, RunAgentInput, Tool
from aguia.protocol.messages import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguia.protocol.outcomes import (
    Interrupt,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
)
from aguia.server import AgentApp, run_agent

posix = pytest.mark.skipif(os.name != "posix", reason="links and pipes as POSIX has them")


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder, read in both of the ways that systems offer."""
    root = tmp_path / "root"
    root.mkdir()
    if request.param and os.open not in os.supports_dir_fd:
        pytest.skip("this system opens no file below a descriptor")
    return Folder(str(root), request.param)


def write(folder: Folder, **files: str | bytes) -> None:
    fill(folder, files)


def fill(folder: Folder, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = Path(folder.root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def files(folder: Folder, path: str = "") -> list[str]:
    return [entry.path for entry in folder.walk(path) if entry and entry.kind == "file"]


def search(folder: Folder, *words: str, per_file: int | None = None) -> list[Hit]:
    return [hit for hit in folder.search(words, Tally(), per_file=per_file) if hit]


# -- staying inside --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("..", "goes up"),
        ("../secret", "goes up"),
        ("a/../../secret", "goes up"),
        ("a/../b", "goes up"),
        ("a/..", "goes up"),
        ("..\\secret", "goes up"),
        ("a\\..\\..\\secret", "goes up"),
        ("/etc/passwd", "absolute"),
        ("//etc/passwd", "absolute"),
        ("/", "absolute"),
        ("\\\\server\\share", "absolute"),
        ("\\windows", "absolute"),
        ("C:\\windows", "absolute"),
        ("C:windows", "absolute"),
        ("a\0b", "zero character"),
        (".git/config", "git's own"),
        ("a/.GIT/config", "git's own"),
        ("a\\.git\\config", "git's own"),
        ("x" * 5000, "not a path|no|cannot"),
        ("\ud800", "not a path|no"),
    ],
)
def test_a_path_that_leaves_the_folder_is_refused(folder: Folder, path: str, reason: str) -> None:
    write(folder, a="", **{".git/config": "[core]"})
    Path(folder.root).with_name("secret").write_text("secret")
    for ask in (folder.read, lambda path: list(folder.walk(path))):
        with pytest.raises(FolderError, match=reason):
            ask(path)


@posix
def test_links_out_of_the_folder_are_refused_and_not_walked(folder: Folder) -> None:
    outside = Path(folder.root).with_name("outside")
    outside.mkdir()
    (outside / "secret.txt").write_text("needle")
    write(folder, **{"in/real.txt": "needle", "in/.gitignore": ""})
    root = Path(folder.root)
    (root / "file_link").symlink_to(outside / "secret.txt")
    (root / "dir_link").symlink_to(outside)
    (root / "relative_link").symlink_to("../outside")
    (root / "in" / "up").symlink_to("..")
    (root / "chain").symlink_to("dir_link")
    for path in (
        "file_link",
        "dir_link/secret.txt",
        "relative_link/secret.txt",
        "chain/secret.txt",
    ):
        with pytest.raises(FolderError, match="leads out"):
            folder.read(path)
    for path in ("dir_link", "relative_link", "chain"):
        with pytest.raises(FolderError, match="leads out"):
            list(folder.walk(path))
    assert [hit.path for hit in search(folder, "needle")] == ["in/real.txt"]
    kinds = {entry.path: entry.kind for entry in folder.walk() if entry}
    assert kinds["dir_link"] == kinds["file_link"] == kinds["in/up"] == "link"
    assert "dir_link/secret.txt" not in kinds


@posix
def test_links_inside_the_folder_can_be_read(folder: Folder) -> None:
    write(folder, **{"docs/readme.md": "hello"})
    Path(folder.root, "README").symlink_to("docs/readme.md")
    Path(folder.root, "d").symlink_to("docs")
    assert folder.read("README").text == "hello"
    assert folder.read("d/readme.md").path == "docs/readme.md"
    assert files(folder, "d") == ["docs/readme.md"]


@posix
def test_a_link_into_git_and_a_loop_of_links_are_refused(folder: Folder) -> None:
    write(folder, **{".git/config": "token"})
    Path(folder.root, "innocent").symlink_to(".git/config")
    Path(folder.root, "loop").symlink_to("loop")
    with pytest.raises(FolderError, match="git's own"):
        folder.read("innocent")
    with pytest.raises(FolderError, match="loop"):
        folder.read("loop")


@posix
def test_a_link_put_in_place_after_the_check_is_not_followed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of a path and its opening, someone else may swap what lies there."""
    outside = Path(folder.root).with_name("outside")
    outside.mkdir()
    (outside / "file").write_text("secret")
    write(folder, **{"dir/file": "harmless"})
    resolve = Folder.resolve

    def swap(self: Folder, path: str) -> tuple[str, ...]:
        parts = resolve(self, path)
        Path(self.root, "dir").rename(Path(self.root, "moved"))
        Path(self.root, "dir").symlink_to(outside)
        return parts

    monkeypatch.setattr(Folder, "resolve", swap)
    with pytest.raises(FolderError):
        folder.read("dir/file")


@posix
def test_a_name_without_its_suffix_is_understood(folder: Folder) -> None:
    """It is asked about, and not read: another file may have been meant."""
    (Path(folder.root) / "docs").mkdir()
    (Path(folder.root) / "docs" / "Guide.md").write_text("hello")
    with pytest.raises(FolderError, match=r"in this folder\. Is it 'docs/Guide\.md'\?$"):
        folder.read("docs/guide")
    with pytest.raises(FolderError, match=r"There is no 'nowhere/guide' in this folder\.$"):
        folder.read("nowhere/guide")


def test_what_is_no_regular_file_is_not_read(folder: Folder) -> None:
    write(folder, **{"d/f": "x"})
    with pytest.raises(FolderError, match="folder"):
        folder.read("d")
    with pytest.raises(FolderError, match="folder"):
        folder.read(".")
    with pytest.raises(FolderError, match=r"There is no 'nothing' in this folder\.$"):
        folder.read("nothing")
    with pytest.raises(FolderError, match="not a folder|There is no"):
        folder.read("d/f/g")
    with pytest.raises(FolderError, match="not a folder"):
        list(folder.walk("d/f"))


@posix
def test_a_pipe_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".gitignore").unlink(missing_ok=True)
    os.mkfifo(tmp_path / ".gitignore")
    folder = Folder(str(tmp_path))
    with pytest.raises(FolderError, match="no regular file"):
        folder.read("pipe")
    assert search(folder, "x") == []
    assert {entry.kind for entry in folder.walk() if entry} == {"other"}


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="permissions don't bind this user"
)
def test_what_may_not_be_read_is_said_and_passed_over(folder: Folder) -> None:
    write(folder, **{"locked": "needle", "shut/in": "needle", "open": "needle"})
    Path(folder.root, "locked").chmod(0)
    Path(folder.root, "shut").chmod(0)
    tally = Tally()
    assert [hit.path for hit in folder.search(["needle"], tally) if hit] == ["open"]
    assert tally.unreadable == 1
    with pytest.raises(FolderError, match="not allowed"):
        folder.read("locked")
    Path(folder.root, "shut").chmod(0o700)


# -- reading ---------------------------------------------------------------------------


def test_a_file_is_read_whole_or_cut_at_the_limit(folder: Folder) -> None:
    fill(folder, {"small": "one\ntwo", "exact": "x" * MAX_READ, "big": "x" * (MAX_READ + 1)})
    small, exact, big = (folder.read(name) for name in ("small", "exact", "big"))
    assert (small.text, small.lines, small.cut, small.size) == ("one\ntwo", 2, False, 7)
    assert (len(exact.text), exact.cut) == (MAX_READ, False)
    assert (len(big.text), big.cut, big.size) == (MAX_READ, True, MAX_READ + 1)


def test_a_cut_in_the_middle_of_a_character_leaves_no_half_of_it(folder: Folder) -> None:
    fill(folder, {"f": "aä€😀" * 3})
    for limit in range(1, 30):
        text = folder.read("f", limit=limit).text
        assert ("aä€😀" * 3).startswith(text)


def test_bad_utf8_is_replaced_and_a_byte_order_mark_is_no_text(folder: Folder) -> None:
    fill(folder, {"bad": b"a\xff\xfeb", "bom": b"\xef\xbb\xbfhello"})
    assert folder.read("bad").text == "a\ufffd\ufffdb"
    assert folder.read("bom").text == "hello"


def test_a_binary_file_is_refused(folder: Folder) -> None:
    fill(folder, {"b": b"PK\0\3", "later": b"x" * 9000 + b"\0"})
    with pytest.raises(FolderError, match="binary file \\(4 bytes\\)"):
        folder.read("b")
    assert folder.read("later").size == 9001


@posix
def test_names_that_are_no_unicode_come_out_as_replacement_characters(folder: Folder) -> None:
    try:
        Path(os.fsdecode(os.fsencode(folder.root) + b"/na\xffme")).write_text("needle")
    except OSError:
        pytest.skip("this file system takes no such names")
    [hit] = search(folder, "needle")
    assert hit.path == "na\ufffdme"


# -- searching -------------------------------------------------------------------------


def test_a_search_says_where_and_what_whatever_the_case(folder: Folder) -> None:
    fill(folder, {"b.py": "x = 1\r\nDEF Receive(x)\r\n", "a/z.py": "def receive():\n", "n": "no"})
    assert search(folder, "def receive") == [
        Hit("a/z.py", 1, "def receive():"),
        Hit("b.py", 2, "DEF Receive(x)"),
    ]


def test_a_pattern_is_plain_text(folder: Folder) -> None:
    fill(folder, {"f": "a.c\nabc\n(a+)+$\n"})
    assert [hit.text for hit in search(folder, "a.c")] == ["a.c"]
    assert [hit.text for hit in search(folder, "(a+)+$")] == ["(a+)+$"]


def test_line_ends_other_than_a_line_feed_do_not_count_lines(folder: Folder) -> None:
    fill(folder, {"f": "one\u2028two\x0bthree\x85four\nneedle\n"})
    assert search(folder, "needle") == [Hit("f", 2, "needle")]


def test_binary_large_and_long_are_passed_over_and_counted(folder: Folder) -> None:
    fill(
        folder,
        {
            "binary": b"needle\0",
            "large": "needle " + "x" * MAX_SEARCHED,
            "long": "needle" + "x" * MAX_LINE + "\nneedle\n",
        },
    )
    tally = Tally()
    hits = [hit for hit in folder.search(["needle"], tally) if hit]
    assert hits == [Hit("long", 2, "needle")]
    assert (tally.binary, tally.too_large, tally.searched) == (1, 1, 1)


def test_an_answer_looks_at_paths_and_puts_the_best_named_files_first(folder: Folder) -> None:
    fill(
        folder,
        {
            "a.txt": "the parser is tested\n",
            "src/parser.py": "class Parser: ...\n",
            "tests/test_parser.py": "import x\nparser = 1\nparser = 2\nparser = 3\n",
            "tests/test_other.py": "nothing\n",
        },
    )
    hits = search(folder, "parser", "test", per_file=2)
    assert [(hit.path, hit.line) for hit in hits] == [
        ("tests/test_parser.py", 2),
        ("tests/test_parser.py", 3),
        ("a.txt", 1),
    ]


@pytest.mark.parametrize(
    ("word", "ends", "lines"),
    [
        ("TODO", (), [1, 3, 4]),
        ("todo:", (), [4]),
        ("todo", None, [1, 2, 3, 4, 5, 6]),
        ("todo", ("s",), [1, 3, 4, 6]),
    ],
)
def test_a_search_may_be_for_whole_words(
    tmp_path: Path, word: str, ends: tuple[str, ...] | None, lines: list[int]
) -> None:
    text = "todo\nautodoc\na_todo_list\n# TODO: x\nmy-todo\ntodos\nnone\n"
    (tmp_path / "a.txt").write_text(text)
    hits = Folder(str(tmp_path)).search([word], Tally(), ends=ends)
    assert [hit.line for hit in hits if hit] == lines


def test_a_search_can_be_stopped_between_files(folder: Folder) -> None:
    fill(folder, {f"f{n}": "nothing" for n in range(50)})
    work = folder.search(["needle"], tally := Tally())
    for _ in range(10):
        next(work)
    work.close()
    assert tally.searched <= 10


# -- counting --------------------------------------------------------------------------


def test_files_and_lines_are_counted_by_suffix(folder: Folder) -> None:
    fill(
        folder,
        {
            "a.py": "1\n2\n",
            "b/c.py": "1\n2",
            "empty.py": "",
            "logo.png": b"\x89PNG\0\n\n",
            "Makefile": "all:\n",
            ".gitignore": "",
        },
    )

    def count(glob: str) -> dict[str, Count]:
        counts: dict[str, Count] = {}
        for _ in folder.count(glob, counts):
            pass
        return counts

    assert count("") == {
        ".py": Count(files=3, lines=4),
        ".png": Count(files=1, binary=1),
        "(none)": Count(files=2, lines=1),
    }
    assert count("*.py") == {".py": Count(files=3, lines=4)}
    assert count("b/*.py") == {".py": Count(files=1, lines=2)}
    assert count("*.rs") == {}


# -- .gitignore ------------------------------------------------------------------------

IGNORE_CASES: list[dict[str, str | bytes]] = [
    {".gitignore": "*.log\n!keep.log\n", "a.log": "", "keep.log": "", "d/b.log": ""},
    {".gitignore": "build/\n", "build/a": "", "src/build/b": "", "docs/build": ""},
    {".gitignore": "/build\n", "build/a": "", "src/build/b": ""},
    {".gitignore": "*.log\n", "d/.gitignore": "!*.log\n", "a.log": "", "d/b.log": ""},
    {".gitignore": "", "d/.gitignore": "*\n!.gitignore\n!e/\n", "d/a": "", "d/e/b": "", "c": ""},
    {".gitignore": "out/\n", "out/.gitignore": "!a\n", "out/a": ""},
    {".gitignore": "/*\n!/src\n", "a": "", "src/b": "", "src/d/c": ""},
    {".gitignore": "/*\n!*/\n", "a": "", "src/b": ""},
    {".gitignore": "foo/**\n!foo/keep\n", "foo/a": "", "foo/keep": "", "foo/d/keep": ""},
    {".gitignore": "*.o\n!keep\n", "keep/a.o": "", "keep/b": ""},
    {".gitignore": "**/tmp/x\na/**/z\n", "b/tmp/x": "", "a/z": "", "a/b/c/z": "", "z": ""},
    {".gitignore": "# note\n\\#real\n\\!bang\nspace\\ \n[\n!\n", "#real": "", "!bang": "", "n": ""},
    {".gitignore": "crlf\r\n  \r\n", "crlf": "", "other": ""},
    {
        ".gitignore": "d/e/\n",
        "d/e/f": "",
        "e/f": "",
        "d/.gitignore": "/g\n",
        "d/g": "",
        "d/h/g": "",
    },
]


@pytest.mark.parametrize("case", IGNORE_CASES, ids=lambda case: repr(case[".gitignore"]))
def test_ignored_is_what_git_ignores(folder: Folder, case: dict[str, str | bytes]) -> None:
    fill(folder, case)
    git = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q", folder.root], check=True, env=git)
    listed = subprocess.run(
        ["git", "-C", folder.root, "ls-files", "-z", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
        env=git,
    ).stdout
    assert sorted(files(folder)) == sorted(filter(None, listed.split("\0")))


def test_git_itself_is_never_seen(folder: Folder) -> None:
    fill(folder, {".git/config": "needle", "sub/.git": "gitdir: needle", "a": "needle"})
    assert files(folder) == ["a"]
    assert [hit.path for hit in search(folder, "needle")] == ["a"]


def test_rules_from_above_hold_in_a_folder_that_is_asked_for(folder: Folder) -> None:
    fill(folder, {".gitignore": "*.log\nout/\n", "d/a.log": "", "d/b": "", "out/c": ""})
    assert files(folder, "d") == ["d/b"]
    assert files(folder, "out") == ["out/c"]


def test_a_walk_ends_at_its_depth(folder: Folder) -> None:
    deep = "/".join("d" for _ in range(MAX_DEPTH + 3))
    fill(folder, {f"{deep}/f": "", "a/b/c": "", "a/f": ""})
    assert all(entry is None or len(entry.parts) <= MAX_DEPTH for entry in folder.walk())
    shallow = [entry.path for entry in folder.walk(depth=2) if entry]
    assert shallow == ["a", "a/b", "a/f", "d", "d/d"]


# -- what a message asks for -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("find def receive", Request("find", "def receive")),
        ('  FIND "def receive"  ', Request("find", "def receive")),
        ("find '", Request("find", "'")),
        ("find", Request("find")),
        ("read src/a.py\nand more", Request("read", "src/a.py")),
        ("read `a b.txt`", Request("read", "a b.txt")),
        ("tree", Request("tree")),
        ("tree src", Request("tree", "src")),
        ("count *.py", Request("count", "*.py")),
        ("open src/a.py", Request("open", "src/a.py")),
        ("open", Request("open")),
        ("read", Request("read")),
        ("replace a with b in c", Request("replace", "c", ("a", "b"))),
        ("Replace a b with c d in e", Request("replace", "e", ("a b", "c d"))),
        (
            "replace 'a with b' with “c in d” in `e f`",
            Request("replace", "e f", ("a with b", "c in d")),
        ),
        ('replace "a" with "" in c', Request("replace", "c", ("a", ""))),
        ("replace with with with in in", Request("replace", "in", ("with", "with"))),
        ("replace a with b", Request("replace")),
        ('replace "" with b in c', Request("replace", "c", ("", "b"))),
        ("replace", Request("replace")),
        (f"replace a with {'b' * 600} in c", Request("replace")),
        (f"replace a with b in {'c' * 600}", Request("replace")),
        ("help", Request("help")),
        ("?", Request("help")),
        ("", Request("unknown", "")),
        ("hello", Request("unknown", "hello")),
        ("what can you do?", Request("help")),
    ],
)
def test_commands(text: str, request_: Request) -> None:
    assert understand(text) == request_


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Where is the parser tested?", ("parser", "test")),
        ("where is RunAgentInput defined", ("RunAgentInput", "defin")),
        ("Which files use text_message?", ("text_message",)),
        ("How does pyproject.toml set the version?", ("pyproject.toml", "set", "version")),
        ("Wo steht der Löwe?", ("wo", "steht", "der", "löwe")),
    ],
)
def test_the_words_of_a_question(question: str, words: tuple[str, ...]) -> None:
    assert understand(question).words == words


def test_a_long_message_is_cut_and_half_a_character_is_no_text() -> None:
    assert len(understand("find " + "x" * 10_000).argument) <= 500
    assert understand("find a\ud800b").argument.encode()


def test_the_last_words_of_the_user_count() -> None:
    image = ImagePart(source=DataSource(value="", mime_type="image/png"))
    said: list[Message] = [
        UserMessage(id="1", content="first"),
        UserMessage(id="2", content=[TextPart(text="find x"), image, TextPart(text="now")]),
        AssistantMessage(id="3", content="done"),
    ]
    assert last_user_text(said) == "find x\nnow"
    assert last_user_text(said[2:]) == ""


# -- whole runs ------------------------------------------------------------------------


@asynccontextmanager
async def talk(root: Path, **options: Any) -> AsyncIterator[HttpAgent]:
    """A client of the assistant for `root`, without a network between them."""
    transport = httpx.ASGITransport(AgentApp(folder_assistant(str(root))))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        HttpAgent("http://assistant/", client=client, **options) as agent,
    ):
        yield agent


async def ask(agent: HttpAgent, text: str, **options: Any) -> list[Event]:
    return [event async for event in agent.run(text, **options)]


async def go_on(
    agent: HttpAgent, *entries: ResumeEntry, messages: Iterable[Message] = ()
) -> list[Event]:
    """A run that goes on with these answers, whether or not they are as they were asked for."""
    stream = agent.run(list(messages), resume=entries, force=True)
    return [event async for event in stream]


async def go_on_without(agent: HttpAgent, *messages: Message, **options: Any) -> list[Event]:
    """What a client gets that forgets the open questions, as `agent` would refuse to."""
    transport = httpx.ASGITransport(AgentApp(folder_assistant(str(options.pop("root")))))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        HttpAgent(
            "http://assistant/",
            client=client,
            thread_id=agent.thread_id,
            messages=agent.messages,
            state=agent.state,
        ) as defective,
    ):
        events = [event async for event in defective.run(list(messages), **options)]
        assert defective.error is None
        return events


def text_of(events: Iterable[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))


def results_of(events: Iterable[Event]) -> list[Any]:
    return [
        json.loads(str(event.content)) for event in events if isinstance(event, ToolCallResultEvent)
    ]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in {
        "src/parser.py": "def parse(text):\n    return text\n",
        "tests/test_parser.py": "from parser import parse\n",
        "README.md": "# A parser\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.anyio
async def test_find_streams_arguments_hits_and_a_result(project: Path) -> None:
    async with talk(project) as agent:
        events = await ask(agent, "find parse")
        arguments = [event.delta for event in events if isinstance(event, ToolCallArgsEvent)]
        assert len(arguments) > 1
        assert json.loads("".join(arguments)) == {"words": ["parse"]}
        assert "src/parser.py:1: def parse(text):\n" in text_of(events)
        assert results_of(events) == [{"lines": 2, "files": 2, "searched": 3, "complete": True}]
        hits = [i for i, e in enumerate(events) if isinstance(e, TextMessageContentEvent)]
        [result] = [i for i, e in enumerate(events) if isinstance(e, ToolCallResultEvent)]
        assert hits[0] < result < hits[-1]
        assert agent.pending_tool_calls == []


@pytest.mark.anyio
async def test_find_looks_inside_of_words_where_no_word_is_the_pattern(project: Path) -> None:
    async with talk(project) as agent:
        events = await ask(agent, "find parse")
        assert "2 lines in 2 files with the word “parse”, 3 files" in text_of(events)
        events = await ask(agent, "find pars")
        assert [result["lines"] for result in results_of(events)] == [0, 3]
        assert "No line has the word “pars”. I look inside of words.\n" in text_of(events)
        assert "3 lines in 3 files with “pars”, 3 files" in text_of(events)


@pytest.mark.anyio
async def test_the_plan_ticks_by_deltas_and_phases_are_steps(project: Path) -> None:
    """STATE-1, STATE-2, RUN-14: told once, whichever way is shorter, and by deltas from then on."""
    async with talk(project, state={"theme": "dark"}) as agent:
        await ask(agent, "tree")
        second = await ask(agent, "count")
        told = [e for e in second if isinstance(e, StateSnapshotEvent | StateDeltaEvent)]
        deltas: list[Any] = [
            event.delta for event in told[1:] if isinstance(event, StateDeltaEvent)
        ]
        assert len(told) == 3
        assert deltas == [
            [
                {"op": "replace", "path": "/plan/0/status", "value": "done"},
                {"op": "replace", "path": "/plan/1/status", "value": "running"},
            ],
            [{"op": "replace", "path": "/plan/1/status", "value": "done"}],
        ]
        started = [e.step_name for e in second if isinstance(e, StepStartedEvent)]
        finished = [e.step_name for e in second if isinstance(e, StepFinishedEvent)]
        assert started == finished == ["Count files and lines", "Sum up"]
        assert agent.state == {
            "theme": "dark",
            "task": "count",
            "plan": [
                {"step": "Count files and lines", "status": "done"},
                {"step": "Sum up", "status": "done"},
            ],
        }


@pytest.mark.anyio
async def test_a_question_is_answered_by_what_is_found(project: Path) -> None:
    async with talk(project) as agent:
        events = await ask(agent, "Where is the parser tested?")
    assert "“parser” and “test”" in text_of(events)
    assert "tests/test_parser.py:1: from parser import parse" in text_of(events)


@pytest.mark.anyio
async def test_a_question_falls_back_to_its_longest_word(project: Path) -> None:
    async with talk(project) as agent:
        events = await ask(agent, "Does a unicorn parse?")
    assert [result["lines"] for result in results_of(events)] == [0, 0, 0]
    assert "I try “unicorn” alone" in text_of(events)
    assert "No line has the word “unicorn”. I look inside of words." in text_of(events)
    assert "No line has “unicorn”: 3 files searched." in text_of(events)


@pytest.mark.anyio
async def test_read_shows_the_file_and_its_facts(project: Path) -> None:
    (project / "big.txt").write_text("x\n" * MAX_READ)
    (project / "empty").write_text("")
    async with talk(project) as agent:
        events = await ask(agent, "read src/parser.py")
        assert text_of(events) == "def parse(text):\n    return text\n"
        assert results_of(events) == [
            {"path": "src/parser.py", "bytes": 33, "lines": 2, "complete": True}
        ]
        assert "I stop after 256 KB of 512 KB." in text_of(await ask(agent, "read big.txt"))
        assert text_of(await ask(agent, "read empty")) == "The file is empty.\n"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "message", ["read ../x", "read /etc/passwd", "tree ..", "read .git/config"]
)
async def test_a_refusal_is_an_answer_and_no_failure(project: Path, message: str) -> None:
    async with talk(project) as agent:
        events = await ask(agent, message)
        [result] = results_of(events)
        assert result["error"] in text_of(events)
        assert agent.error is None
        assert agent.state["plan"][0]["status"] == "failed"
        assert agent.state["plan"][1]["status"] == "pending"


@pytest.mark.anyio
async def test_limits_are_said(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("needle\n" * (MAX_HITS + 50))
    for number in range(MAX_ENTRIES + 20):
        (tmp_path / f"f{number}").write_text("")
    async with talk(tmp_path) as agent:
        found = await ask(agent, "find needle")
        assert text_of(found).count("many.txt:") == MAX_HITS
        assert results_of(found)[0]["complete"] is False
        assert f"I stop after {MAX_HITS} lines" in text_of(found)
        drawn = await ask(agent, "tree")
        assert text_of(drawn).count("\n") == MAX_ENTRIES + 1
        assert f"I stop after {MAX_ENTRIES} entries" in text_of(drawn)


@pytest.mark.anyio
async def test_tree_and_count_draw_what_there_is(project: Path) -> None:
    (project / "logo.png").write_bytes(b"\0")
    async with talk(project) as agent:
        tree = text_of(await ask(agent, "tree"))
        assert tree.startswith("README.md\nlogo.png\nsrc/\n  parser.py\ntests/\n")
        count = text_of(await ask(agent, "count"))
        assert [line.split() for line in count.splitlines()[:3]] == [
            ["suffix", "files", "lines"],
            [".py", "2", "3"],
            [".md", "1", "1"],
        ]
        assert "1 file binary" in count
        assert text_of(await ask(agent, "count *.rs")) == "No file fits.\n"


@pytest.mark.anyio
async def test_anything_else_gets_an_explanation(project: Path) -> None:
    async with talk(project) as agent:
        for message in ("hello", "help", ""):
            events = await ask(agent, message)
            assert "find PATTERN" in text_of(events)
            assert "/help lists what the chat itself can do" in text_of(events)
            assert "open FILE" not in text_of(events), "the application has no part in it"
            assert agent.error is None


@pytest.mark.anyio
@pytest.mark.parametrize("usage", ["find PATTERN", "read FILE", "open FILE"])
async def test_half_a_command_gets_its_usage(project: Path, usage: str) -> None:
    async with talk(project) as agent:
        told = text_of(await ask(agent, usage.split(maxsplit=1)[0]))
        missing = usage.split()[1]
        assert told.startswith(f"{missing} is missing. Write it on one line:\n\n  {usage} ")
        assert agent.error is None


@pytest.mark.anyio
async def test_open_is_explained_where_the_application_can_open(project: Path) -> None:
    """FRONT-6."""
    async with talk(project, tools=[OPEN_FILE]) as agent:
        told = text_of(await ask(agent, "help"))
        assert "\n  open FILE       has your application open a file" in told
        assert "\n  replace X with Y in FILE\n" in told


@pytest.mark.anyio
async def test_state_that_is_no_object_gives_way(project: Path) -> None:
    async with talk(project, state=[1, 2]) as agent:
        await ask(agent, "tree")
        assert agent.state["task"] == "tree"


@pytest.mark.anyio
@pytest.mark.parametrize("who", ["the assistant", "its subagents"])
async def test_work_on_files_does_not_block_the_loop_and_stops_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """RUN-10: who cancels a run stops its work; meanwhile others are served."""
    searches = looked_at = 0
    threads = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def endless(self: Folder, words: Any, tally: Tally, **_: Any) -> Any:
        nonlocal searches, looked_at
        searches += 1
        while searches > 1 or who == "the assistant":
            looked_at += 1
            threads.add(threading.get_ident())
            yield None

    monkeypatch.setattr(Folder, "search", endless)
    async with talk(tmp_path) as agent:
        with anyio.move_on_after(0.5):
            async with anyio.create_task_group() as group:
                group.start_soon(ask, agent, "find x")
                ticks = 0
                with anyio.move_on_after(0.4):
                    while True:
                        await anyio.sleep(0.01)
                        ticks += 1
                group.cancel_scope.cancel()
    assert ticks >= 5
    assert searches == (1 if who == "the assistant" else 3)
    assert threading.get_ident() not in threads
    await anyio.sleep(0.1)  # to the end of the item that the thread was at
    after = looked_at
    await anyio.sleep(0.2)
    assert looked_at == after


# -- searching with subagents ----------------------------------------------------------


@pytest.mark.anyio
async def test_find_has_a_subagent_for_each_top_folder(project: Path) -> None:
    """SUB-1, SUB-2: each is announced, streams its own hits and finishes with a result."""
    (project / "empty").mkdir()
    (project / ".gitignore").write_text("build/\n")
    (project / "build").mkdir()
    (project / "build" / "out.txt").write_text("parse\n")
    (project / "README.md").write_text("to parse\n")
    async with talk(project) as agent:
        events = await ask(agent, "find parse")
        started = {e.subagent_run_id: e for e in events if isinstance(e, SubagentStartedEvent)}
        assert [event.name for event in started.values()] == ["empty", "src", "tests"]
        [call] = [event for event in events if isinstance(event, ToolCallStartEvent)]
        assert {e.parent_tool_call_id for e in started.values()} == {call.tool_call_id}
        finished = {
            started[event.subagent_run_id].name: event.result
            for event in events
            if isinstance(event, SubagentFinishedEvent)
        }
        assert finished == {
            "empty": {"files": 0, "hits": 0},
            "src": {"files": 1, "hits": 1},
            "tests": {"files": 1, "hits": 1},
        }
        owners = {
            event.message_id: started[event.subagent_run_id].name
            for event in events
            if isinstance(event, TextMessageStartEvent) and event.subagent_run_id
        }
        said = {
            owners[message.id]: message.content
            for message in agent.messages
            if isinstance(message, AssistantMessage) and message.id in owners
        }
        assert said == {
            "src": "src/parser.py:1: def parse(text):\n",
            "tests": "tests/test_parser.py:1: from parser import parse\n",
        }
        assert "README.md:1: to parse\n" in text_of(events)
        assert agent.result == {"lines": 3, "files": 3}
        assert agent.usage == []


@pytest.mark.anyio
async def test_subagents_work_in_parallel_and_not_all_at_once(tmp_path: Path) -> None:
    for number in range(MAX_SUBAGENTS + 3):
        (tmp_path / f"d{number:02}").mkdir()
        (tmp_path / f"d{number:02}" / "f").write_text("needle\n")
    async with talk(tmp_path) as agent:
        events = await ask(agent, "find needle")
    active = most = 0
    for event in events:
        active += isinstance(event, SubagentStartedEvent)
        active -= isinstance(event, SubagentFinishedEvent)
        most = max(most, active)
    assert most == MAX_AT_ONCE
    assert sum(isinstance(event, SubagentStartedEvent) for event in events) == MAX_SUBAGENTS
    assert text_of(events).count(": needle") == MAX_SUBAGENTS + 3
    assert results_of(events)[0]["files"] == MAX_SUBAGENTS + 3


@pytest.mark.anyio
async def test_a_search_over_folders_stops_at_its_limit(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "f").write_text("needle\n" * 100)
    async with talk(tmp_path) as agent:
        events = await ask(agent, "find needle")
    assert text_of(events).count(": needle") == MAX_HITS
    assert results_of(events)[0]["complete"] is False


@pytest.mark.anyio
async def test_progress_is_an_activity_that_patches_keep_up_to_date(project: Path) -> None:
    """ACT-1, ACT-3."""
    (project / "a~b").mkdir()
    (project / "README.md").write_text("to parse\n")
    async with talk(project) as agent:
        events = await ask(agent, "find parse")
        [begun] = [event for event in events if isinstance(event, ActivitySnapshotEvent)]
        folders = {name: {"files": 0, "hits": 0, "done": False} for name in ("a~b", "src", "tests")}
        assert begun.content == {"files": 0, "hits": 0, "folders": folders}
        assert any(isinstance(event, ActivityDeltaEvent) for event in events)
        [activity] = [m for m in agent.messages if isinstance(m, ActivityMessage)]
        assert activity.activity_type == "search"
        assert activity.content == {
            "files": 3,
            "hits": 3,
            "folders": {
                "a~b": {"files": 0, "hits": 0, "done": True},
                "src": {"files": 1, "hits": 1, "done": True},
                "tests": {"files": 1, "hits": 1, "done": True},
            },
        }


@pytest.mark.anyio
async def test_progress_is_not_told_more_often_than_it_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aguia.cli.assistant.turn.BATCH_SECONDS", 0.0)
    for number in range(300):
        (tmp_path / f"f{number}").write_text("nothing\n")
    async with talk(tmp_path) as agent:
        events = await ask(agent, "find needle")
    assert sum(isinstance(event, ActivityDeltaEvent) for event in events) < 20


@pytest.mark.anyio
@pytest.mark.parametrize(
    "message",
    [
        "find x",
        "Where is it parsed?",
        "read README.md",
        "tree",
        "count",
        "open x",
        "replace a with b in c",
    ],
)
async def test_it_reasons_aloud_before_it_does_anything(project: Path, message: str) -> None:
    """REAS-1."""
    async with talk(project) as agent:
        first, second, *_ = await ask(agent, message)
        assert isinstance(first, RunStartedEvent)
        assert isinstance(second, ReasoningStartEvent)
        [thought] = [m for m in agent.messages if isinstance(m, ReasoningMessage)]
        assert thought.content.endswith(".")


# -- replacing, with approval ----------------------------------------------------------


def approved(interrupt: Interrupt, answer: Any = True) -> ResumeEntry:
    return ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"approved": answer})


async def propose(agent: HttpAgent) -> Interrupt:
    """Has the assistant ask whether to replace something, and gives its question."""
    events = await ask(agent, 'replace "parse" with "read text" in src/parser.py')
    assert isinstance(agent.outcome, RunFinishedInterruptOutcome)
    assert results_of(events) == []
    [interrupt] = agent.interrupts
    return interrupt


@pytest.mark.anyio
async def test_a_change_is_shown_and_asked_for_and_nothing_is_written(project: Path) -> None:
    """INT-1, INT-7: an approval with a diff, about the call, for an object with a boolean."""
    before = (project / "src/parser.py").read_bytes()
    async with talk(project) as agent:
        interrupt = await propose(agent)
        assert interrupt.reason == "approval"
        [call] = agent.pending_tool_calls
        assert (call.id, call.function.name) == (interrupt.tool_call_id, "replace")
        arguments = json.loads(call.function.arguments)
        assert arguments["file"] == "src/parser.py"
        assert (arguments["find"], arguments["replace"]) == ("parse", "read text")
        assert interrupt.message
        assert "Shall I replace 1 occurrence of “parse”" in interrupt.message
        assert "\n-def parse(text):\n+def read text(text):\n" in interrupt.message
        assert "approved" in json.dumps(interrupt.response_schema)
        assert interrupt.expires_at
        expires = datetime.fromisoformat(interrupt.expires_at)
        assert timedelta() < expires - datetime.now(UTC) <= PATIENCE
        assert [step["status"] for step in agent.state["plan"]] == ["done", "waiting", "pending"]
    assert (project / "src/parser.py").read_bytes() == before
    assert sorted(os.listdir(project / "src")) == ["parser.py"]


@pytest.mark.anyio
async def test_an_approved_change_is_made_by_whoever_gets_the_next_run(project: Path) -> None:
    """INT-6, TOOL-6: another server does it, since all it needs is in the messages."""
    async with talk(project) as agent:
        interrupt = await propose(agent)
        entries = [approved(interrupt)]
        events = await go_on_without(agent, root=project, resume=entries)
        assert results_of(events) == [{"replaced": 1, "file": "src/parser.py"}]
    assert (project / "src/parser.py").read_text() == "def read text(text):\n    return text\n"


@pytest.mark.anyio
async def test_the_call_is_answered_and_the_conversation_goes_on(project: Path) -> None:
    async with talk(project) as agent:
        interrupt = await propose(agent)
        events = await go_on(agent, approved(interrupt))
        assert "Done: 1 occurrence of “parse” replaced in src/parser.py." in text_of(events)
        assert isinstance(agent.outcome, RunFinishedSuccessOutcome)
        assert agent.pending_tool_calls == []
        assert agent.interrupts == []
        assert agent.result == {"replaced": 1}
        assert [step["status"] for step in agent.state["plan"]] == ["done"] * 3
        started = [event.step_name for event in events if isinstance(event, StepStartedEvent)]
        assert started == ["Write the file"]
        assert "def read text" in text_of(await ask(agent, "read src/parser.py"))


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["declined", "cancelled"])
async def test_a_refused_change_is_not_made_and_the_call_says_so(project: Path, how: str) -> None:
    """INT-2, SEC-2."""
    async with talk(project) as agent:
        interrupt = await propose(agent)
        entry = approved(interrupt, answer=False)
        if how == "cancelled":
            entry = ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
        events = await go_on(agent, entry)
        [result] = results_of(events)
        assert result["replaced"] == 0
        assert "so I changed nothing" in text_of(events)
        assert isinstance(agent.outcome, RunFinishedSuccessOutcome)
        assert agent.state["plan"][2]["status"] == "declined"
    assert "def parse" in (project / "src/parser.py").read_text()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "payload", [True, "yes", {"approved": "yes"}, {"approved": 1}, {}, None, {"approve": True}]
)
async def test_an_answer_of_another_form_approves_nothing(project: Path, payload: Any) -> None:
    """INT-7: the question stays open, and is asked again."""
    async with talk(project) as agent:
        interrupt = await propose(agent)
        entry = ResumeEntry(
            interrupt_id=interrupt.id,
            status="resolved",
            **({} if payload is None else {"payload": payload}),
        )
        events = await go_on(agent, entry)
        assert "I could not use the answer" in text_of(events)
        assert results_of(events) == []
        [again] = agent.interrupts
        assert (again.id, again.tool_call_id) == (interrupt.id, interrupt.tool_call_id)
        assert "def parse" in (project / "src/parser.py").read_text()
        await go_on(agent, approved(again))
    assert "def read text" in (project / "src/parser.py").read_text()


@pytest.mark.anyio
@pytest.mark.parametrize("said", [None, "tree", "replace a with b in README.md"])
async def test_without_an_answer_it_asks_again_and_does_nothing(
    project: Path, said: str | None
) -> None:
    """INT-5: never carried out, never taken for abandoned, and no success."""
    async with talk(project) as agent:
        interrupt = await propose(agent)
        messages = [] if said is None else [UserMessage(id="u2", content=said)]
        events = await go_on_without(agent, *messages, root=project)
        finished = events[-1]
        assert isinstance(finished, RunFinishedEvent)
        assert isinstance(finished.outcome, RunFinishedInterruptOutcome)
        [again] = finished.outcome.interrupts
        assert (again.id, again.tool_call_id) == (interrupt.id, interrupt.tool_call_id)
        assert again.message == interrupt.message
        assert results_of(events) == []
        assert not any(isinstance(event, ToolCallStartEvent) for event in events)
    assert "def parse" in (project / "src/parser.py").read_text()


@pytest.mark.anyio
async def test_a_file_that_changed_in_between_is_not_written(project: Path) -> None:
    path = project / "src/parser.py"
    async with talk(project) as agent:
        interrupt = await propose(agent)
        path.write_text("def parse(data): ...\n")
        events = await go_on_without(agent, root=project)
        finished = events[-1]
        assert isinstance(finished, RunFinishedEvent)
        assert isinstance(finished.outcome, RunFinishedInterruptOutcome)
        assert "has changed since" in str(finished.outcome.interrupts[0].message)
        events = await go_on(agent, approved(interrupt))
        [result] = results_of(events)
        assert "has changed since" in result["error"]
        assert agent.state["plan"][2]["status"] == "failed"
        path.unlink()
        events = await go_on_without(agent, root=project)
    assert not path.exists()


@pytest.mark.anyio
async def test_an_answer_with_a_new_message_settles_the_one_and_answers_the_other(
    project: Path,
) -> None:
    async with talk(project) as agent:
        interrupt = await propose(agent)
        new = UserMessage(id="u2", content="find read text")
        events = await go_on(agent, approved(interrupt), messages=[new])
        assert "src/parser.py:1: def read text(text):" in text_of(events)
        assert isinstance(agent.outcome, RunFinishedSuccessOutcome)


@pytest.mark.anyio
async def test_the_same_answer_again_changes_nothing_again(project: Path) -> None:
    """INT-4: an answer to a question that is settled is passed over, and the request made anew."""
    async with talk(project) as agent:
        interrupt = await propose(agent)
        await go_on(agent, approved(interrupt))
        written = (project / "src/parser.py").read_text()
        await go_on(agent, approved(interrupt))
        assert agent.error is None
    assert (project / "src/parser.py").read_text() == written


def call_of(arguments: str, name: str = "replace") -> AssistantMessage:
    """What a client may claim that the assistant once did."""
    function = FunctionCall(name=name, arguments=arguments)
    return AssistantMessage(
        id="a", tool_calls=[ToolCall(id="c", type="function", function=function)]
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "nonsense",
        "[]",
        '{"file": "src/parser.py"}',
        json.dumps({"file": 1, "find": "a", "replace": "b", "version": ""}),
        json.dumps({"file": "../x", "find": "a", "replace": "b", "version": "0" * 16}),
        json.dumps({"file": "src/parser.py", "find": "e", "replace": "b", "version": ""}),
    ],
)
async def test_a_call_that_it_never_made_does_no_harm(project: Path, arguments: str) -> None:
    """SEC-1: what comes back in the messages is as untrusted as anything else."""
    outside = project.with_name("x")
    outside.write_text("a")
    before = (project / "src/parser.py").read_text()
    said = [UserMessage(id="u", content="x"), call_of(arguments)]
    async with talk(project, messages=said) as agent:
        await go_on(agent)
        [interrupt] = agent.interrupts
        assert "I write nothing" in str(interrupt.message)
        events = await go_on(agent, approved(interrupt))
        [result] = results_of(events)
        assert result["replaced"] == 0
        assert result["error"]
        assert agent.error is None
    assert outside.read_text() == "a"
    assert (project / "src/parser.py").read_text() == before


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("replace a with b in ../x", "goes up"),
        ("replace nothing with b in README.md", "is not in 'README.md'"),
        ("replace a with b in missing", "There is no 'missing'"),
    ],
)
async def test_what_cannot_be_replaced_is_an_answer_and_no_question(
    project: Path, message: str, why: str
) -> None:
    async with talk(project) as agent:
        events = await ask(agent, message)
        [result] = results_of(events)
        assert why in result["error"]
        assert result["error"] in text_of(events)
        assert isinstance(agent.outcome, RunFinishedSuccessOutcome)
        assert agent.state["plan"][0]["status"] == "failed"


@pytest.mark.anyio
async def test_half_a_replacement_gets_an_explanation(project: Path) -> None:
    async with talk(project) as agent:
        assert "replace X with Y in FILE" in text_of(await ask(agent, "replace parse"))
        assert agent.interrupts == []


@pytest.mark.anyio
async def test_an_assistant_that_only_reads_replaces_nothing(project: Path) -> None:
    transport = httpx.ASGITransport(AgentApp(folder_assistant(str(project), writable=False)))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        HttpAgent("http://assistant/", client=client) as agent,
    ):
        events = await ask(agent, "replace parser with b in README.md")
        assert "I only read this folder" in text_of(events)
        assert agent.interrupts == []


@pytest.mark.anyio
async def test_tools_of_the_application_with_the_same_names_stay_its_own(project: Path) -> None:
    """FRONT-1: the assistant neither takes their names nor answers their calls."""
    tools = [
        {"name": name, "description": "", "parameters": {"type": "object"}}
        for name in ("search", "replace")
    ]
    async with talk(project, tools=tools) as agent:
        events = await ask(agent, "find parse")
        assert [e.tool_call_name for e in events if isinstance(e, ToolCallStartEvent)] == [
            "folder_search"
        ]
        await ask(agent, "replace parse with x in src/parser.py")
        [interrupt] = agent.interrupts
        await go_on(agent, approved(interrupt))
        assert agent.error is None
        assert "def x(text)" in (project / "src/parser.py").read_text()
    # A client of ours would not go on without an answer to its own call (FRONT-5).
    unanswered = RunAgentInput(
        thread_id="t",
        run_id="r",
        protocol_version="1.0",
        messages=[
            UserMessage(id="u", content="tree"),
            call_of("{}"),
            UserMessage(id="v", content="tree"),
        ],
        tools=msgspec.convert(tools, list[Tool]),
    )
    events = [each async for each in run_agent(folder_assistant(str(project)), unanswered)]
    assert isinstance(events[-1], RunFinishedEvent)
    assert not isinstance(events[-1].outcome, RunFinishedInterruptOutcome)
    assert "parser.py" in text_of(events)


# -- opening, by a tool of the application's -------------------------------------------

OPEN_FILE = {
    "name": "open_file",
    "description": "Opens a file in the editor.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.mark.anyio
async def test_open_leaves_a_call_to_the_application_and_tells_its_answer(project: Path) -> None:
    """FRONT-2, FRONT-3: the run ends with success and the pending call, and nothing said."""
    async with talk(project, tools=[OPEN_FILE]) as agent:
        events = await ask(agent, "open src/parser.py")
        assert isinstance(agent.outcome, RunFinishedSuccessOutcome)
        [call] = agent.pending_tool_calls
        assert agent.outcome.pending_tool_call_ids == [call.id]
        assert call.function.name == "open_file"
        assert json.loads(call.function.arguments) == {"path": "src/parser.py"}
        assert text_of(events) == ""
        answer = ToolMessage(id="t", tool_call_id=call.id, content="Opened in tab 3.")
        events = [event async for event in agent.run([answer])]
        assert text_of(events) == "The application reports for src/parser.py: Opened in tab 3.\n"
        assert not any(isinstance(event, ToolCallStartEvent) for event in events)
        assert [step["status"] for step in agent.state["plan"]] == ["done", "done"]
        assert "# A parser" in text_of(await ask(agent, "read README.md"))


@pytest.mark.anyio
async def test_what_the_application_could_not_open_is_told_before_the_next_answer(
    project: Path,
) -> None:
    """FRONT-5: a failure is a tool message with an error."""
    async with talk(project, tools=[OPEN_FILE]) as agent:
        await ask(agent, "open README.md")
        [call] = agent.pending_tool_calls
        answers: list[Message] = [
            ToolMessage(id="t", tool_call_id=call.id, content="", error="no editor\nhere"),
            UserMessage(id="u2", content="read README.md"),
        ]
        events = [event async for event in agent.run(answers)]
        assert text_of(events) == (
            "The application did not open README.md: no editor here\n# A parser\n"
        )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "content", "told"),
    [
        ("{", [{"type": "text", "text": "Done"}], "for the file: Done"),
        ('{"path": 7}', "", "for the file: nothing more"),
        ('{"path": "a"}', "x" * 5000, "for a: " + "x" * 199 + "…"),
    ],
)
async def test_whatever_the_application_answers_is_told(
    project: Path, arguments: str, content: Any, told: str
) -> None:
    said: list[Any] = [
        UserMessage(id="u", content="x"),
        call_of(arguments, "open_file"),
        {"id": "t", "role": "tool", "toolCallId": "c", "content": content},
    ]
    async with talk(project) as agent:
        events = [event async for event in agent.run(said)]
        assert told in text_of(events)


@pytest.mark.anyio
async def test_without_such_a_tool_it_says_so(project: Path) -> None:
    """FRONT-6."""
    async with talk(project) as agent:
        events = await ask(agent, "open src/parser.py")
        assert "offers no tool named open_file" in text_of(events)
        assert agent.pending_tool_calls == []
        assert agent.result == {"opened": False}


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["missing", "src", "../x", ".git/config", "."])
async def test_what_is_no_file_is_not_opened(project: Path, path: str) -> None:
    async with talk(project, tools=[OPEN_FILE]) as agent:
        events = await ask(agent, f"open {path}")
        assert text_of(events)
        assert agent.pending_tool_calls == []
        assert agent.state["plan"][0]["status"] == "failed"


@pytest.mark.anyio
async def test_a_run_with_nothing_new_answers_the_last_message_again(project: Path) -> None:
    async with talk(project) as agent:
        await ask(agent, "read README.md")
        assert text_of([event async for event in agent.run()]) == "# A parser\n"
