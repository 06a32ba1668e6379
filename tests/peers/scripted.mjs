// Holds several conversations with scripted agents over HTTP, with the HttpAgent of
// @ag-ui/client, and says after each run what its user would see.
//
// In: { cases: [{ url, threadId, messages, state, tools, context, turns }] }, where a turn is
// { runId, messages, forwardedProps?, resume? }, and a message without an id is given one. Out:
// { cases }, a list of turns for each case: { ending, reason?, events (types in order), messages,
// state, interrupts, pending?, warned }. The ending is the type of the outcome of a finished run
// ("success" where it has none), "error" after a RUN_ERROR, "refused" for an HTTP status,
// "rejected" when the client would not go on, and "silence" when the stream just ends.

import { randomUUID } from "node:crypto";

import { HttpAgent, captureConsole, readRequest, writeAnswer } from "./npm.mjs";

async function turnOf(agent, { runId, messages, forwardedProps, resume }, { tools, context }) {
  const turn = { ending: "silence", events: [] };
  said.warnings = [];
  agent.addMessages(messages.map((message) => ({ id: randomUUID(), ...message })));
  try {
    await agent.runAgent(
      { runId, tools, context, forwardedProps, resume },
      {
        onEvent: ({ event }) => void turn.events.push(event.type),
        onRunStartedEvent: () => {
          turn.ending = "silence";
          delete turn.pending;
        },
        onRunErrorEvent: () => {
          turn.ending = "error";
          delete turn.pending;
        },
        onRunFinishedEvent: ({ event, pendingToolCallIds }) => {
          turn.ending = event.outcome?.type ?? "success";
          turn.pending = pendingToolCallIds;
        },
      },
    );
  } catch (error) {
    turn.ending = error.status !== undefined ? "refused" : "rejected";
    turn.reason = String(error.message).split("\n", 1)[0];
    delete turn.pending;
  }
  return {
    ...turn,
    messages: structuredClone(agent.messages),
    state: structuredClone(agent.state),
    interrupts: structuredClone(agent.pendingInterrupts),
    warned: said.warnings.length > 0,
  };
}

async function converse({ url, threadId, messages, state, tools, context, turns }) {
  const agent = new HttpAgent({ url, threadId, initialMessages: messages, initialState: state });
  const done = [];
  for (const turn of turns) done.push(await turnOf(agent, turn, { tools, context }));
  return done;
}

const request = await readRequest();
const said = captureConsole();
const cases = [];
for (const item of request.cases) cases.push(await converse(item));
await writeAnswer({ cases });
process.exit(0);
