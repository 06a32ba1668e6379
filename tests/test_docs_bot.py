"""The bot of the page about bots, as it stands there, before a Bot API of our own."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aguia import text_of
from aguia.server import AgentApp, Run
from support import REPOSITORY
from support_docs import blocks_of
from support_server import serve

pytestmark = pytest.mark.unmeasured

SECONDS: Final = 20.0
ANA: Final = 7
PICTURE: Final = b"\x89PNG\r\n\x1a\n" + b"\0" * 24


class Telegram:
    """What the bot needs of the Bot API, and the person at the other end.

    Attributes:
        messages: the bot's, by their number, as they are shown.
        calls: the methods that the bot has called, in order.
        floods: how many posts and edits are refused as too many.
    """

    def __init__(self) -> None:
        self.messages: dict[int, dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.floods = 0
        self._updates: list[dict[str, Any]] = []
        self._numbers = count(1)
        self.app = Starlette(
            routes=[
                Route("/bot{token}/{method}", self._call, methods=["GET", "POST"]),
                Route("/file/bot{token}/{path:path}", self._file),
            ]
        )

    def write(self, text: str = "", *, photo: bool = False, user: int = ANA) -> None:
        message = self._message(ANA) | {"from": _user(user)}
        if photo:
            message |= {"photo": [_photo()], "caption": text}
        else:
            message["text"] = text
        if text.startswith("/"):
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
        self._update(message=message)

    def press(self, message: dict[str, Any], words: str, *, user: int = ANA) -> None:
        query = {"id": "1", "from": _user(user), "chat_instance": "c", "data": words}
        self._update(callback_query=query | {"message": message})

    def see(self, what: str | Callable[[str], bool]) -> dict[str, Any]:
        """The message with this text, as soon as there is one."""
        fits = what.__eq__ if isinstance(what, str) else what
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for message in list(self.messages.values()):
                if fits(message["text"]):
                    return message
            time.sleep(0.02)
        pytest.fail(f"{[message['text'] for message in self.messages.values()]}")

    def texts(self) -> list[str]:
        return [message["text"] for message in self.messages.values()]

    def _update(self, **what: Any) -> None:
        self._updates.append({"update_id": next(self._numbers), **what})

    def _message(self, chat: int) -> dict[str, Any]:
        chat_ = {"id": chat, "type": "private"}
        return {"message_id": next(self._numbers), "date": 1, "chat": chat_}

    async def _call(self, request: Request) -> Response:
        method = request.path_params["method"]
        given = dict(parse_qsl((await request.body()).decode()))
        if method == "getUpdates":
            return _ok(await self._news(int(given.get("offset", 0))))
        self.calls.append((method, given))
        if method in ("sendMessage", "editMessageText") and self.floods:
            self.floods -= 1
            return _refused(429, "Too Many Requests", retry_after=1)
        match method:
            case "getMe":
                return _ok({**_user(1), "is_bot": True, "username": "bot"})
            case "sendMessage":
                message = self._message(int(given["chat_id"])) | {"text": given["text"]}
                if "reply_markup" in given:
                    message["reply_markup"] = json.loads(given["reply_markup"])
                self.messages[message["message_id"]] = message
                return _ok(message)
            case "editMessageText":
                message = self.messages[int(given["message_id"])]
                if message["text"] == given["text"]:
                    return _refused(400, "Bad Request: message is not modified")
                message.pop("reply_markup", None)
                message["text"] = given["text"]
                return _ok(message)
            case "getFile":
                return _ok(_photo() | {"file_path": "photos/1.png"})
        return _ok(True)

    async def _news(self, offset: int) -> list[dict[str, Any]]:
        self._updates = [each for each in self._updates if each["update_id"] >= offset]
        for _ in range(100):
            if self._updates:
                break
            await asyncio.sleep(0.01)
        return list(self._updates)

    async def _file(self, _: Request) -> Response:
        return Response(PICTURE)


def _user(number: int) -> dict[str, Any]:
    return {"id": number, "is_bot": False, "first_name": "Ana"}


def _photo() -> dict[str, Any]:
    return {"file_id": "f", "file_unique_id": "u", "width": 1, "height": 1}


def _ok(result: Any) -> Response:
    return JSONResponse({"ok": True, "result": result})


def _refused(code: int, why: str, **parameters: Any) -> Response:
    answer = {"ok": False, "error_code": code, "description": why, "parameters": parameters}
    return JSONResponse(answer, code)


async def agent(run: Run) -> None:
    """Does what it is told."""
    last = run.messages[-1]
    told, _, rest = text_of(last.content).partition(" ")
    if run.resume:
        await run.say(f"You answer {run.resume.answer('q')}.")
        return
    match told if last.role == "user" else "":
        case "publish":
            run.interrupt("approval", message="Publish?", response_type=bool, interrupt_id="q")
        case "approve":
            schema = {"properties": {"approved": {"type": "boolean"}}}
            run.interrupt("approval", message="Sure?", response_schema=schema, interrupt_id="q")
        case "name":
            run.interrupt("name", message="What name?", interrupt_id="q")
        case "pin":
            await run.call("pin", {"text": rest})
        case "fail":
            raise ValueError
        case "write":
            await run.say("x" * int(rest))
        case "count":
            async with run.text() as text:
                for number in range(int(rest)):
                    await text.write(f"{number} ")
                    await asyncio.sleep(0.1)
        case _:
            kinds = [part.type for part in last.content] if isinstance(last.content, list) else ""
            await run.say(f"{len(run.messages)}: {text_of(last.content)}{kinds}")


@pytest.fixture
def telegram() -> Telegram:
    return Telegram()


class Bot:
    """The program, in a folder of its own, which outlives it."""

    def __init__(self, folder: Path, telegram: str, agent: str) -> None:
        page = (REPOSITORY / "docs" / "how-to" / "bot.md").read_text(encoding="utf-8")
        for block in blocks_of(page):
            if block.file in ("talk.py", "bot.py"):
                (folder / block.file).write_text(block.text, encoding="utf-8")
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PTB_TIMEDELTA"},
            "AGENT_URL": agent,
            "BOT_USERS": f"{ANA}",
            "PYTHONPATH": str(REPOSITORY / "src"),
            "TELEGRAM_API": telegram.rstrip("/"),
            "TELEGRAM_TOKEN": "123:abc",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with (self._folder / "bot.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "bot.py"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, *, kill: bool = False) -> int:
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        return self._process.wait(SECONDS)

    @property
    def log(self) -> str:
        return (self._folder / "bot.log").read_text(encoding="utf-8")


@pytest.fixture
def bot(telegram: Telegram, tmp_path: Path) -> Iterator[Bot]:
    with serve(telegram.app) as api, serve(AgentApp(agent, path="/")) as url:
        bot = Bot(tmp_path, api, url)
        try:
            yield bot
            assert bot.stop() == 0
        finally:
            bot.stop(kill=True)
    assert bot.log == ""


def test_it_talks(telegram: Telegram, bot: Bot) -> None:
    """In one thread, to those that it knows, also about pictures."""
    telegram.write("Hello")
    telegram.see("1: Hello")
    telegram.write("Hello", user=8)
    telegram.write("And now?")
    telegram.see("3: And now?")
    telegram.write("Look", photo=True)
    telegram.see("5: Look['text', 'image']")
    assert len(telegram.messages) == 3


def test_text_grows(telegram: Telegram, bot: Bot) -> None:
    """Not faster than Telegram takes it, and over several messages where it is long."""
    telegram.write("count 40")
    telegram.see(lambda text: text.startswith("0 1") and not text.endswith("39"))
    telegram.floods = 2
    telegram.see(" ".join(map(str, range(40))))
    edits = [method for method, _ in telegram.calls if method == "editMessageText"]
    assert 1 <= len(edits) <= 10
    telegram.messages.clear()
    telegram.write("write 5000")
    telegram.see("x" * 904)
    assert telegram.texts() == ["x" * 4096, "x" * 904]


def test_questions_are_buttons(telegram: Telegram, bot: Bot) -> None:
    telegram.write("publish")
    asked = telegram.see("Publish?")
    [row] = asked["reply_markup"]["inline_keyboard"]
    assert [button["text"] for button in row] == ["Yes", "No", "Cancel"]
    telegram.write("Why?")
    telegram.see(lambda text: text.startswith("One moment"))
    telegram.press(asked, "Yes", user=8)
    telegram.press(asked, "No")
    telegram.see("You answer False.")
    telegram.see("Publish?\n→ No")
    telegram.press(asked, "Yes")
    telegram.write("approve")
    telegram.press(telegram.see("Sure?"), "Yes")
    telegram.see("You answer {'approved': True}.")
    said = [given.get("text", "") for method, given in telegram.calls if "answer" in method]
    assert [bool(text) for text in said] == [True, False, True, False]


def test_what_has_no_buttons_is_answered_by_words(telegram: Telegram, bot: Bot) -> None:
    telegram.write("name")
    telegram.see("What name?")
    telegram.write("Eagle")
    telegram.see("You answer Eagle.")
    telegram.messages.clear()
    telegram.write("name")
    telegram.see("What name?")
    telegram.write("/cancel")
    telegram.see("You answer CANCELLED.")


def test_tools_need_consent(telegram: Telegram, bot: Bot) -> None:
    telegram.write("pin milk")
    telegram.press(telegram.see('May I call pin?\n{"text": "milk"}'), "Yes")
    telegram.see("3: pinned")
    assert telegram.see("milk")
    telegram.write("pin bread")
    telegram.press(telegram.see('May I call pin?\n{"text": "bread"}'), "No")
    telegram.see(lambda text: "did not allow" in text)
    assert [method for method, _ in telegram.calls].count("pinChatMessage") == 1


def test_it_stops_and_says_what_failed(telegram: Telegram, bot: Bot) -> None:
    telegram.write("count 1000")
    telegram.see(lambda text: text.startswith("0 1"))
    telegram.write("/cancel")
    telegram.see("■ Stopped.")
    telegram.write("fail")
    telegram.see("⚠ The agent failed. Its log says why.")
    telegram.write("So?")
    telegram.see(lambda text: text.endswith(": So?"))


def test_an_agent_that_is_not_there(telegram: Telegram, tmp_path: Path, free_port: int) -> None:
    with serve(telegram.app) as api:
        bot = Bot(tmp_path, api, f"http://127.0.0.1:{free_port}/")
        try:
            telegram.write("Hello")
            telegram.see(lambda text: text.startswith("⚠ no connection"))
        finally:
            bot.stop()


@pytest.mark.parametrize("kill", [True, False])
def test_it_goes_on_where_it_was(kill: bool, telegram: Telegram, bot: Bot) -> None:
    """Killed, or stopped: in the middle of a run, of a question and of consent."""
    telegram.write("count 50")
    telegram.see(lambda text: text.startswith("0"))
    for told, seen, words, answer in (
        ("count 50", " ".join(map(str, range(50))), None, None),
        ("publish", "Publish?", "Yes", "You answer True."),
        ("pin milk", 'May I call pin?\n{"text": "milk"}', "Yes", lambda text: "pinned" in text),
    ):
        if words is not None:
            telegram.write(told)
            telegram.see(seen)
        bot.stop(kill=kill)
        telegram.messages.clear()
        bot.start()
        message = telegram.see(seen)
        if words is not None and answer is not None:
            telegram.press(message, words)
            telegram.see(answer)
