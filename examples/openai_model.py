"""A model behind an agent: any model with an API like OpenAI's, by the `openai` package.

    pip install openai
    OPENAI_API_KEY=… OPENAI_MODEL=… aguia serve openai_model

Then talk to it, from another terminal: aguia chat http://127.0.0.1:8000/

OPENAI_BASE_URL leads to another provider, or to this machine: http://127.0.0.1:11434/v1 is Ollama,
with any OPENAI_API_KEY.

The model sees the conversation, images included. It may call the tools of this agent, which are in
TOOLS: they are run here, and the model is asked again, with the results, in the same run. It may
call the tools that the application offers, too: these calls end the run, and the next one brings
the results.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from uuid import uuid4

from openai import APIConnectionError, AsyncOpenAI, InternalServerError, RateLimitError, omit
from openai.types import CompletionUsage
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartParam,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessageFunctionToolCallParam,
    ChatCompletionMessageParam,
)
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
from openai.types.shared_params import FunctionDefinition

from aguia import (
    AssistantMessage,
    DataSource,
    DeveloperMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    Tool,
    ToolCall,
    UrlSource,
    UserMessage,
    text_of,
)
from aguia.client import FunctionTool, tool
from aguia.server import Run, RunError, TextStream, ToolCallStream

MODEL = os.environ["OPENAI_MODEL"]
INSTRUCTIONS = "You are a helpful assistant."
MAX_ROUNDS = 10
"""How often the model may be asked in one run."""

UNFINISHED = {
    "length": "The answer became too long and stops here.",
    "content_filter": "The rest of the answer was withheld by a content filter.",
    None: "The model broke off its answer.",
}
"""What to tell the user about an answer that is not whole, by its `finish_reason`."""

client = AsyncOpenAI()


@tool
def now(utc_offset: float = 0) -> str:
    """The date and the time.

    Args:
        utc_offset: of the place in question, in hours.
    """
    return datetime.now(timezone(timedelta(hours=utc_offset))).isoformat(timespec="seconds")


TOOLS: dict[str, FunctionTool] = {now.name: now}
"""What the model may call of this agent; each returns text. Of two tools of one name, the model
gets the application's."""


async def agent(run: Run) -> None:
    """Have the model answer.

    What the user can make something of is said here. Of any other error the user learns nothing,
    and the server's log everything.
    """
    try:
        await answer(run)
    except RateLimitError as error:
        raise RunError("The model takes no more questions for now.", "rate-limit") from error
    except (APIConnectionError, InternalServerError) as error:
        raise RunError("The model is not available just now.", "unavailable") from error


async def answer(run: Run) -> None:
    """Ask the model, and again as long as it calls tools of this agent."""
    messages = list(conversation(run))
    used_ids = {
        call.id
        for message in run.messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
    }
    for _ in range(MAX_ROUNDS):
        said = await ask(run, messages, used_ids)
        messages.append(said.param())
        # What is none of the application's tools is for this agent to answer, whatever it is.
        own = [call for call in said.calls if not run.offers(call.name)]
        for call in own:
            content = await carry_out(run, call)
            await call.stream.result(content)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        if not own or len(own) < len(said.calls):
            return  # there is nothing to tell the model, or the application answers first
    raise RunError("The model came to no end.", "too-many-rounds")


async def ask(run: Run, messages: list[ChatCompletionMessageParam], used_ids: set[str]) -> "Answer":
    """Pass on what the model says while it says it."""
    own = [tool.declaration for tool in TOOLS.values() if not run.offers(tool.name)]
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=[tool_param(tool) for tool in [*own, *run.tools]] or omit,  # not an empty list
        stream=True,
        stream_options={"include_usage": True},  # leave it out for a provider that refuses it
    )
    finish_reason: str | None = None
    usage: CompletionUsage | None = None
    # When the run is cancelled, the stream is closed, and the model stops.
    async with AsyncExitStack() as opened, stream:
        said = Answer(run, opened, used_ids)
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:  # the last chunk, with the usage, has none
                finish_reason = choice.finish_reason or finish_reason
                await said.add(choice.delta)
    if usage is not None:
        report(run, usage)
    if finish_reason in UNFINISHED:
        raise RunError(UNFINISHED[finish_reason], finish_reason)
    return said


@dataclass
class Call:
    """A call that the model makes."""

    stream: ToolCallStream
    name: str
    arguments: str = ""

    @property
    def id(self) -> str:
        """What its result refers to."""
        return self.stream.tool_call_id


async def carry_out(run: Run, call: Call) -> str:
    """Run one of this agent's tools. Of what goes wrong the model is told, and may try again."""
    called = TOOLS.get(call.name)
    if called is None:
        return "There is no tool of this name."
    try:
        arguments = called.signature.decode(call.arguments)
    except ValueError as error:
        return f"The arguments don't fit: {error}"
    try:
        return str(await called.run(arguments.values))
    except Exception as error:
        # The user may see the result, too: what the exception says is for the log.
        run.log_exception(f"the tool {call.name} failed", error)
        return "The tool failed."


class Answer:
    """An answer of the model as one message, of text and of calls, that grows piece by piece."""

    def __init__(self, run: Run, opened: AsyncExitStack, used_ids: set[str]) -> None:
        self.run = run
        self.opened = opened
        self.used_ids = used_ids
        self.message_id = f"msg-{uuid4().hex}"
        self.text = ""
        self.text_stream: TextStream | None = None
        self.calls: list[Call] = []
        self.numbered: dict[int, Call] = {}  # some models give several calls one number

    async def add(self, delta: ChoiceDelta) -> None:
        """Pass a piece on."""
        if delta.content:
            if self.text_stream is None:
                text = self.run.text(message_id=self.message_id)
                self.text_stream = await self.opened.enter_async_context(text)
            self.text += delta.content
            await self.text_stream.write(delta.content)
        for piece in delta.tool_calls or ():
            await self.add_to_call(piece)

    async def add_to_call(self, piece: ChoiceDeltaToolCall) -> None:
        """Begin a call, or go on with one: its first piece has the name."""
        if piece.function is None:
            return
        if piece.function.name:
            # Some providers give no id, and some use one again; then the run makes one up.
            new = piece.id not in self.used_ids
            stream = self.run.tool_call(
                piece.function.name,
                tool_call_id=piece.id if new else None,
                parent_message_id=self.message_id,
            )
            call = Call(await self.opened.enter_async_context(stream), piece.function.name)
            self.calls.append(call)
            self.numbered[piece.index] = call
            self.used_ids.add(call.id)
        if piece.function.arguments:
            call = self.numbered[piece.index]
            call.arguments += piece.function.arguments
            await call.stream.write(piece.function.arguments)

    def param(self) -> ChatCompletionAssistantMessageParam:
        """The answer as the API takes it back."""
        calls = [call_param(call.id, call.name, call.arguments) for call in self.calls]
        return {"role": "assistant", "content": self.text or None, "tool_calls": calls}


def conversation(run: Run) -> Iterator[ChatCompletionMessageParam]:
    """The messages as the API takes them: each call has its result right behind it."""
    context = [f"{item.description}: {item.value}" for item in run.context]
    yield {"role": "system", "content": "\n\n".join([INSTRUCTIONS, *context])}
    for message in run.messages:
        match message:
            case SystemMessage() | DeveloperMessage():
                # Many providers know only the first of these roles.
                yield {"role": "system", "content": message.content}
            case UserMessage():
                yield {"role": "user", "content": user_content(run, message)}
            case AssistantMessage(tool_calls=list(calls)) if calls:
                yield {
                    "role": "assistant",
                    "content": message.content or None,
                    "tool_calls": [
                        call_param(call.id, call.function.name, call.function.arguments)
                        for call in calls
                    ],
                }
                for call in calls:
                    yield {"role": "tool", "tool_call_id": call.id, "content": result(run, call)}
            case AssistantMessage(content=str(text)):
                yield {"role": "assistant", "content": text}
            case _:
                pass  # results are with their calls; reasoning is not for the model


def user_content(run: Run, message: UserMessage) -> str | list[ChatCompletionContentPartParam]:
    """What the user said: text, and images for a model that sees."""
    if isinstance(message.content, str):
        return message.content
    parts: list[ChatCompletionContentPartParam] = []
    for part in run.usable(message.content, kinds=("text", "image")):
        match part:
            case TextPart():
                parts.append({"type": "text", "text": part.text})
            case ImagePart(source=UrlSource(value=url)):
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case ImagePart(source=DataSource(value=data, mime_type=mime_type)):
                url = f"data:{mime_type};base64,{data}"
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case _:
                pass  # `usable` has left out, and logged, what this model can't take
    return parts or ""


def call_param(id: str, name: str, arguments: str) -> ChatCompletionMessageFunctionToolCallParam:
    """A call that the model has made, as the API takes it."""
    try:
        json.loads(arguments)
    except ValueError:  # there are none, or the model was cut off; many providers refuse that
        arguments = "{}"
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(run: Run, call: ToolCall) -> str:
    """What came of a call, in words: the API takes nothing else from tools."""
    message = run.tool_result(call.id)
    if message is None:  # the user went on without it
        return "This call was not carried out."
    return text_of(run.usable(message.content)) or message.error or ""


def tool_param(tool: Tool) -> ChatCompletionFunctionToolParam:
    """A tool as the API takes it."""
    function: FunctionDefinition = {"name": tool.name, "description": tool.description}
    if isinstance(tool.parameters, dict):
        function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def report(run: Run, usage: CompletionUsage) -> None:
    """Count the tokens that the answer took."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    run.add_usage(
        model=MODEL,
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_input_tokens=prompt.cached_tokens if prompt else None,
        reasoning_tokens=completion.reasoning_tokens if completion else None,
    )
