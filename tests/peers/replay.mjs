// Replays whole streams of events through the client of @ag-ui/client, without a network.
//
// In: { cases: [{ input: { threadId, runId, messages, state }, events }] }. Out: { cases }, with
// for each case { verdict, error?, events (types in order), messages, state, pendingToolCallIds?,
// warnings }. The verdict is "failed" when the client rejects the stream, "truncated" when it
// accepts one whose last run has no terminal event, else "completed".

import { AbstractAgent, captureConsole, from, readRequest, writeAnswer } from "./npm.mjs";

class ReplayAgent extends AbstractAgent {
  constructor(config, events) {
    super(config);
    this.events = events;
  }

  run() {
    return from(this.events);
  }
}

async function replay({ input, events }) {
  said.warnings = [];
  const agent = new ReplayAgent(
    { threadId: input.threadId, initialMessages: input.messages, initialState: input.state },
    events,
  );
  const result = { events: [], verdict: "truncated" };
  try {
    await agent.runAgent(
      { runId: input.runId },
      {
        onEvent: ({ event }) => {
          result.events.push(event.type);
          if (event.type === "RUN_STARTED") {
            result.verdict = "truncated";
            delete result.pendingToolCallIds;
          }
        },
        onRunErrorEvent: () => {
          result.verdict = "completed";
          delete result.pendingToolCallIds;
        },
        onRunFinishedEvent: ({ pendingToolCallIds }) => {
          result.verdict = "completed";
          result.pendingToolCallIds = pendingToolCallIds;
        },
      },
    );
  } catch (error) {
    result.verdict = "failed";
    result.error = String(error.message).split("\n", 1)[0];
  }
  return { ...result, messages: agent.messages, state: agent.state, warnings: said.warnings };
}

const request = await readRequest();
const said = captureConsole();
const cases = [];
for (const item of request.cases) cases.push(await replay(item));
await writeAnswer({ cases });
process.exit(0);
