// Reads streams of old peers with the HttpAgent of @ag-ui/client, pinned to a peer's version by
// the getter that subclasses override, and keeps what it sends.
//
// In: { cases: [{ version?, input: { threadId, runId, messages, state, tools }, events }] }.
// Out: { cases }, with for each case { sent (the body of the request), error?, events (types in
// order), messages, state, warnings }.

import { HttpAgent, captureConsole, readRequest, writeAnswer } from "./npm.mjs";

function agentOf(version) {
  if (version === undefined) return HttpAgent;
  return class extends HttpAgent {
    get maxProtocolVersion() {
      return version;
    }
  };
}

async function converse({ version, input, events }) {
  said.warnings = [];
  const result = { events: [] };
  const body = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join("");
  const Agent = agentOf(version);
  const agent = new Agent({
    url: "http://agent.example/",
    threadId: input.threadId,
    initialMessages: input.messages,
    initialState: input.state,
    fetch: async (_, init) => {
      result.sent = JSON.parse(init.body);
      return new Response(body, { headers: { "content-type": "text/event-stream" } });
    },
  });
  try {
    await agent.runAgent(
      { runId: input.runId, tools: input.tools },
      { onEvent: ({ event }) => void result.events.push(event.type) },
    );
  } catch (error) {
    result.error = String(error.message).split("\n", 1)[0];
  }
  return { ...result, messages: agent.messages, state: agent.state, warnings: said.warnings };
}

const request = await readRequest();
const said = captureConsole();
const cases = [];
for (const item of request.cases) cases.push(await converse(item));
await writeAnswer({ cases });
process.exit(0);
