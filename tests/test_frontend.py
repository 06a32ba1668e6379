"""The example frontend as its README starts it, used by a person: in Chromium, across origins."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect, sync_playwright

from support import REPOSITORY, require_chromium, require_frontend
from support_docs import blocks_of, commands_of

pytestmark = [
    pytest.mark.unmeasured,
    pytest.mark.skipif(os.name != "posix", reason="a server that Ctrl-C ends"),
]

EXAMPLE: Final = REPOSITORY / "examples" / "frontend"
SECONDS: Final = 15.0

ASKS_FOR_EVAL: Final = "Note that 'script-src' was not explicitly set"
"""In the console, once: the npm client's schemas try whether they may, and the page says no."""

expect.set_options(timeout=SECONDS * 1000)


@dataclass(frozen=True)
class Site:
    """Where the page is, at the address that the agent allows; it answers at others as well."""

    url: str
    folder: Path

    @property
    def elsewhere(self) -> str:
        """The same page, for an agent that is not there."""
        return f"{self.url}elsewhere.html"

    @property
    def of_another_origin(self) -> str:
        """The same page, as a browser tells it from the one that may call the agent."""
        return self.url.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The example, started by the commands of its README, on free ports."""
    modules = require_frontend()
    require_chromium()
    folder = tmp_path_factory.mktemp("frontend") / "example"
    ignored = shutil.ignore_patterns("node_modules", "dist", "__pycache__")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    (folder / "node_modules").symlink_to(modules)

    blocks = blocks_of((EXAMPLE / "README.md").read_text(encoding="utf-8"))
    start_page, start_agent = (
        command.command for block in blocks for command in commands_of(block)
    )
    install, _, start_page = start_page.partition(" && ")
    assert install == "npm ci"  # which has been done, into a folder that is kept

    replace(folder / "package.json", "--serve=127.0.0.1:5173", "--serve=127.0.0.1:0")
    with socket.socket() as nobody, process(start_page, folder) as page:
        url = said(page, r"Local: (http://127\.0\.0\.1:[0-9]+/)")
        options = start_agent.replace("http://127.0.0.1:5173", url.rstrip("/"))
        assert options != start_agent
        with process(f"{sys.executable} -m {options} --port 0", folder) as agent:
            nobody.bind(("127.0.0.1", 0))  # and nobody listens
            nowhere = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
            shutil.copy(folder / "index.html", folder / "elsewhere.html")
            replace(folder / "elsewhere.html", "http://127.0.0.1:8000/", nowhere)
            where = said(agent, r"Serving agent at (.*)")
            replace(folder / "index.html", "http://127.0.0.1:8000/", where)
            yield Site(url, folder)
            agent.send_signal(signal.SIGINT)
            printed = agent.communicate(timeout=SECONDS)[0].splitlines()
            assert [line for line in printed if not line.startswith(("Talk to", "Ctrl-C"))] == []
            assert agent.returncode == 0


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@contextmanager
def process(command: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that is ended with the block; npm's ends when nothing can be typed any more."""
    with subprocess.Popen(
        shlex.split(command),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as started:
        try:
            yield started
            if started.returncode is None:
                started.communicate(timeout=SECONDS)
        finally:
            started.kill()


def said(process: "subprocess.Popen[str]", pattern: str) -> str:
    """Read what a process prints until a line matches, and return the group in it."""
    output: IO[str] | None = process.stdout
    assert output is not None
    printed = ""
    for line in output:
        printed += line
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"it ended, and printed:\n{printed}")


@dataclass(frozen=True)
class Window:
    """A window of the browser, and what it has complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def window() -> Iterator[Window]:
    """A window that the tests share; while it is open, no other event loop can run here."""
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=require_chromium()) as browser,
        browser.new_page() as page,
    ):
        window = Window(page)

        def listen(message: ConsoleMessage) -> None:
            if message.type in ("warning", "error") and ASKS_FOR_EVAL not in message.text:
                window.complaints.append(message.text)

        page.on("console", listen)
        page.on("pageerror", lambda error: window.complaints.append(str(error)))
        yield window


@pytest.fixture
def page(site: Site, window: Window) -> Iterator[Page]:
    """The page with a new conversation; the test fails for what the browser complains about."""
    page = window.page
    page.goto(f"{site.url}style.css")  # so that no conversation is open while it is forgotten
    page.evaluate("sessionStorage.clear()")
    page.goto(site.url)
    window.complaints.clear()
    yield page
    assert window.complaints == []


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def click(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def log(page: Page) -> list[str]:
    """The lines of the chat, once no run is under way."""
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    return page.locator("#log p").all_inner_texts()


def test_text_grows_until_the_run_is_stopped(page: Page) -> None:
    click(page, "Count until I stop you")
    counted = page.locator("#log .assistant")
    for some in ("1 2 3", "10 11 12", "20 21 22"):
        expect(counted).to_contain_text(some)
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    click(page, "Stop")
    _, numbers = log(page)
    expect(page.get_by_role("alert")).to_be_hidden()  # it has not failed
    assert " ".join(map(str, range(1, 1001))).startswith(numbers)
    assert not numbers.endswith("1000")
    say(page, "Hello")
    expect(page.locator("#log .assistant").last).to_have_text("You said: Hello")
    assert log(page)[:2] == ["Count until I stop you", numbers]


def test_what_is_said_is_text_and_no_markup(page: Page) -> None:
    markup = "<img src=x onerror='document.title=1'>"
    say(page, markup)
    expect(page.locator("#log .assistant")).to_have_text(f"You said: {markup}")
    assert page.locator("#log img").count() == 0


def test_the_page_carries_out_the_tool_and_says_what_came_of_it(page: Page) -> None:
    header = page.locator("header")
    expect(header).not_to_have_css("background-color", "rgb(0, 128, 128)")
    click(page, "Paint the page teal")
    expect(header).to_have_css("background-color", "rgb(0, 128, 128)")
    expect(page.locator("#log .assistant")).to_have_text("The page says: I am teal now.")
    say(page, "Paint the page gruesome")
    expect(page.locator("#log .assistant").last).to_have_text(
        "The page says: gruesome is not a colour."
    )
    assert log(page) == [
        "Paint the page teal",
        'set_colour {"colour":"teal"}',
        "I am teal now.",
        "The page says: I am teal now.",
        "Paint the page gruesome",
        'set_colour {"colour":"gruesome"}',
        "gruesome is not a colour.",
        "The page says: gruesome is not a colour.",
    ]
    expect(header).to_have_css("background-color", "rgb(0, 128, 128)")


WATCH_THE_STATE: Final = """() => {
    const [stops, stop] = ["stops", "stop"].map((id) => document.getElementById(id));
    window.seen = [];
    new MutationObserver(() => window.seen.push([stops.children.length, stop.hidden]))
        .observe(stops, { childList: true });
}"""


def test_the_state_is_shown_as_it_changes_and_what_the_person_changes_reaches_the_agent(
    page: Page,
) -> None:
    expect(page.locator("#status")).to_have_text("No plan yet")
    page.evaluate(WATCH_THE_STATE)
    click(page, "Plan a day")
    expect(page.locator("#log .assistant").last).to_contain_text("tell me to book it.")
    assert len(log(page)) == 6
    assert page.evaluate("window.seen") == [[1, False], [2, False], [3, False]]
    expect(page.locator("#stops li")).to_have_text(["Ribeira", "Livraria Lello", "Serralves"])
    expect(page.locator("#status")).to_have_text("Not booked")

    page.get_by_role("checkbox", name="Livraria Lello").uncheck()
    click(page, "Book it")
    question = page.locator("#questions p")
    expect(question).to_have_text("Book Ribeira, Serralves for 40 euros?")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()

    click(page, "No")
    expect(page.locator("#log .assistant").last).to_have_text("Then I book nothing.")
    expect(question).to_have_count(0)
    expect(page.locator("#status")).to_have_text("Not booked")

    click(page, "Book it")
    click(page, "Yes")
    expect(page.locator("#status")).to_have_text("Booked")
    expect(page.locator("#log .assistant").last).to_have_text("It is booked.")
    expect(page.get_by_role("checkbox", name="Ribeira")).to_be_disabled()


def test_a_failed_run_is_shown_until_the_next_one(page: Page) -> None:
    error = page.get_by_role("alert")
    expect(error).to_be_hidden()
    click(page, "Fail")
    expect(error).to_have_text("I was told to fail.")
    say(page, "Hello")
    expect(page.locator("#log .assistant")).to_have_text("You said: Hello")
    expect(error).to_be_hidden()


def test_a_reload_finds_the_conversation_again_and_its_open_question(page: Page) -> None:
    click(page, "Paint the page teal")
    expect(page.locator("#log .assistant")).to_have_text("The page says: I am teal now.")
    click(page, "Plan a day")
    expect(page.locator("#log .assistant").last).to_contain_text("tell me to book it.")
    click(page, "Book it")
    expect(page.locator("#questions p")).to_be_visible()
    before = log(page)
    page.reload()
    assert log(page) == before
    expect(page.locator("header")).to_have_css("background-color", "rgb(0, 128, 128)")
    expect(page.locator("#stops li")).to_have_count(3)
    click(page, "Yes")
    expect(page.locator("#status")).to_have_text("Booked")
    expect(page.locator("#log .assistant").last).to_have_text("It is booked.")

    click(page, "New conversation")
    expect(page.locator("#log p")).to_have_count(0)
    expect(page.locator("#status")).to_have_text("No plan yet")
    expect(page.locator("header")).not_to_have_css("background-color", "rgb(0, 128, 128)")


def test_a_reload_within_a_run_ends_it_and_the_conversation_goes_on(page: Page) -> None:
    click(page, "Count until I stop you")
    expect(page.locator("#log .assistant")).to_contain_text("1 2 3")
    page.reload()
    assert log(page) == ["Count until I stop you"]
    say(page, "Hello")
    expect(page.locator("#log .assistant")).to_have_text("You said: Hello")


@pytest.mark.parametrize("where", ["elsewhere", "of_another_origin"])
def test_an_agent_that_does_not_answer_is_an_error(
    page: Page, site: Site, window: Window, where: str
) -> None:
    """One that is not there, and one that does not allow the page's origin to call it."""
    page.goto(getattr(site, where))
    say(page, "Hello")
    expect(page.get_by_role("alert")).to_have_text("The run failed: Failed to fetch")
    assert log(page) == ["Hello"]
    refused = [text for text in window.complaints if "blocked by CORS policy" in text]
    assert len(refused) == (where == "of_another_origin")
    window.complaints.clear()


def test_the_page_is_built_for_other_servers(site: Site) -> None:
    built = site.folder / "dist" / "main.js"
    assert not built.exists()
    subprocess.run(["npm", "run", "build"], cwd=site.folder, check=True, capture_output=True)
    assert f'src="{built.relative_to(site.folder).as_posix()}"' in (
        site.folder / "index.html"
    ).read_text(encoding="utf-8")
    assert "pendingInterrupts" in built.read_text(encoding="utf-8")
