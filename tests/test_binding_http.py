"""The binary binding over real HTTP: negotiation, and the npm packages at either end (PB-1)."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import httpx
import msgspec
import pytest

from aguia import Event, HttpAgent, RunAgentInput, TruncatedRun
from aguia.client import PROTOBUF, SSE
from aguia.codec.protobuf import encode_event
from aguia.server import AgentApp, Run, run_agent
from support import require_peers
from support_server import canonical, node, serve

pytestmark = pytest.mark.anyio


async def agent(run: Run) -> dict[str, int]:
    await run.set_state({"n": 0, "items": [{"ü": None}, 1.5, -3]})
    async with run.step("speak"), run.text(message_id="m-1", metadata={"k": [1, None]}) as text:
        for word in ("Hello ", "wörld ", "\U0001f600 ", ""):
            await text.write(word)
    async with run.tool_call("look", {"where": "here"}, tool_call_id="c-1") as call:
        pass
    await call.result([{"type": "text", "text": "seen"}], message_id="m-2")
    run.state["n"] = 2
    await run.activity("search", {"found": 1}, message_id="a-1")
    async with (
        run.subagent("helper", subagent_run_id="s-1") as helper,
        helper.reasoning(message_id="r-1") as thought,
    ):
        await thought.write("hmm")
    return {"done": 1}


INPUT = RunAgentInput(thread_id="t-1", run_id="r-1", messages=[], protocol_version="1.0")


async def in_process() -> list[Event]:
    return [event async for event in run_agent(agent, INPUT)]


def plain(events: Iterable[Any]) -> Any:
    return [msgspec.to_builtins(event) for event in events]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (f"{SSE}, {PROTOBUF}", PROTOBUF),
        (f"{PROTOBUF};q=0.1, {SSE}", PROTOBUF),
        ("*/*", PROTOBUF),
        ("application/*", PROTOBUF),
        (f"{PROTOBUF};q=0, */*", SSE),
        (SSE, SSE),
        (None, SSE),
        ("nonsense;;q=x", SSE),
    ],
)
async def test_the_server_answers_with_what_accept_admits(
    accept: str | None, expected: str
) -> None:
    """PB-1: admission opts in, qualities are not compared."""
    transport = httpx.ASGITransport(AgentApp(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent.example") as client:
        del client.headers["accept"]
        headers = {"content-type": "application/json"}
        if accept is not None:
            headers["accept"] = accept
        response = await client.post("/", content=msgspec.json.encode(INPUT), headers=headers)
    assert response.status_code == 200
    assert response.headers["content-type"].split(";")[0] == expected
    if expected == PROTOBUF:
        events = await in_process()
        assert response.content == b"".join(encode_event(event) for event in events)


async def test_both_bindings_bring_the_same_conversation() -> None:
    """PROC-10, PB-3."""
    with serve(AgentApp(agent)) as url:
        threads = []
        for accept in (SSE, PROTOBUF, [PROTOBUF, SSE]):
            async with HttpAgent(url, accept=accept, thread_id="t-1") as client:
                events = [event async for event in client.run("hi", run_id="r-1")]
                threads.append(
                    (plain(events), plain(list(client.messages))[1:], client.state, client.result)
                )
    assert threads[0] == threads[1] == threads[2]
    assert threads[0][0] == plain(await in_process())


async def test_a_binary_body_that_breaks_off_is_a_truncated_run() -> None:
    """PB-2: what arrived stays."""
    body = b"".join(encode_event(event) for event in await in_process())
    for kept in (3, len(body) // 2, len(body) - 1):
        transport = httpx.MockTransport(
            lambda request, kept=kept: httpx.Response(
                200, headers={"content-type": PROTOBUF}, content=body[:kept]
            )
        )
        async with (
            httpx.AsyncClient(transport=transport) as http,
            HttpAgent("http://agent.example/", client=http, accept=PROTOBUF) as client,
        ):
            with pytest.raises(TruncatedRun):
                async for _ in client.run("hi"):
                    pass
            assert client.outcome is None


async def test_bindings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="is no binding"):
        HttpAgent("http://agent.example/", accept="text/plain")


async def test_half_a_character_is_joined_on_the_way_out() -> None:
    async def halves(run: Run) -> None:
        async with run.text(message_id="m") as text:
            await text.write("a\ud83d")
            await text.write("\ude00b")

    with serve(AgentApp(halves)) as url:
        for accept in (SSE, PROTOBUF):
            async with HttpAgent(url, accept=accept) as client:
                async for _ in client.run("hi"):
                    pass
                assert client.messages[-1].content == "a\U0001f600b"


async def test_the_npm_decoder_reads_our_body() -> None:
    require_peers()
    with serve(AgentApp(agent)) as url:
        answer = await asyncio.to_thread(
            node, "binding.mjs", {"read": url, "input": msgspec.to_builtins(INPUT)}
        )
    assert answer["contentType"] == PROTOBUF
    assert canonical(answer["events"]) == canonical(plain(await in_process()))


async def test_our_client_reads_a_body_of_the_npm_encoder(free_port: int) -> None:
    require_peers()
    events = plain(await in_process())
    for event in events:
        if event["type"] in ("RUN_STARTED", "RUN_FINISHED"):
            event |= {"threadId": "t-1", "runId": "r-1"}
    answers: list[Any] = []
    request = {"write": events, "port": free_port}
    peer = threading.Thread(target=lambda: answers.append(node("binding.mjs", request)))
    peer.start()
    try:
        async with HttpAgent(
            f"http://127.0.0.1:{free_port}/", accept=PROTOBUF, thread_id="t-1"
        ) as client:
            for _ in range(200):
                try:
                    read = [event async for event in client.run("hi", run_id="r-1")]
                    break
                except OSError:
                    raise
                except Exception as error:  # the peer is still starting
                    if "no connection" not in str(error):
                        raise
                    await asyncio.sleep(0.05)
            else:
                pytest.fail("the peer did not start")
    finally:
        await asyncio.to_thread(peer.join)
    assert plain(read) == events
    assert PROTOBUF in answers[0]["accept"]
