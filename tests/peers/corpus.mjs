// The client of @ag-ui/client behind the line protocol of the corpus (docs/how-to/corpus.md): a line
// of JSON in for each case, a line out.
//
// The bytes of a case come over a `fetch` of our own, so that the client's own transport reads
// them. The client resolves for a stream that breaks off, hence "truncated" is what the events say.

import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";

import { HttpAgent, captureConsole } from "./npm.mjs";

const run = (input, type) => ({ type, threadId: input.threadId, runId: input.runId });
const frame = (event) => Buffer.from(`data: ${JSON.stringify(event)}\n\n`);

function answering(contentType, bodies, sent) {
  return async (_, { body }) => {
    const input = JSON.parse(body);
    sent.push(input);
    const chunks = bodies.shift() ?? [
      frame(run(input, "RUN_STARTED")),
      frame(run(input, "RUN_FINISHED")),
    ];
    const stream = new ReadableStream({
      async pull(controller) {
        await setImmediate(); // as over a network, where the client is done with the last one
        const chunk = chunks.shift();
        if (chunk === undefined) controller.close();
        else controller.enqueue(new Uint8Array(chunk));
      },
    });
    return new Response(stream, { status: 200, headers: { "content-type": contentType } });
  };
}

async function answer({ case: name, contentType, input, chunks, asks }) {
  said.warnings = [];
  const sent = [];
  const body = chunks.map((chunk) => Buffer.from(chunk, "base64"));
  const given = input ?? { threadId: "thread-1", runId: "run-1", messages: [], state: {} };
  const agent = new HttpAgent({
    url: "http://agent.example/",
    threadId: given.threadId,
    initialMessages: given.messages,
    initialState: given.state,
    fetch: answering(contentType, [body], sent),
  });
  const reply = { case: name, outcome: "truncated", events: [] };
  const end = (outcome, conversationOutcome, pending) => {
    reply.outcome = outcome;
    reply.conversationOutcome = conversationOutcome;
    reply.pendingToolCallIds = pending;
  };
  try {
    await agent.runAgent(
      { runId: given.runId, tools: given.tools, context: given.context },
      {
        onEvent: ({ event }) => void reply.events.push(event),
        onRunStartedEvent: () => end("truncated", null, undefined),
        onRunErrorEvent: () => end("failed", null, undefined),
        onRunFinishedEvent: ({ event, pendingToolCallIds }) =>
          end("accepted", event.outcome?.type ?? "success", pendingToolCallIds),
      },
    );
  } catch (error) {
    reply.outcome = "rejected";
    reply.reason = String(error.message).replace(/\s+/g, " ").slice(0, 300);
  }
  reply.messages = structuredClone(agent.messages);
  reply.state = structuredClone(agent.state) ?? null;
  reply.interrupts = structuredClone(agent.pendingInterrupts ?? []);
  reply.warnings = [...said.warnings];
  reply.request = sent[0];
  if (asks.includes("nextRequest")) {
    await agent.runAgent({}).catch(() => {});
    reply.nextRequest = sent[1];
  }
  return reply;
}

const said = captureConsole();
for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
process.exit(0);
