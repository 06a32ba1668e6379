// Holds conversations with agents over HTTP, with the HttpAgent of old versions of @ag-ui/client,
// and says after each run what an application would see.
//
// In: { cases: [{ client, url, tools, turns }] }, where `client` is the name under which a version
// is installed, and a turn is { messages, resume? }. Out: { cases }, a list of turns for each case:
// { ending, reason?, last?, messages, state, interrupts? }. The ending is "finished" or "failed"
// by the events of the run, of which `last` is the one that said so, "rejected" when the client
// would not read the stream (or not start the run), and "silence" when the stream just ends.

import { captureConsole, httpAgentOf, readRequest, writeAnswer } from "./npm.mjs";

async function turnOf(agent, tools, runId, { messages, resume }) {
  const turn = { ending: "silence" };
  const end = (ending, last) => Object.assign(turn, { ending, last });
  agent.addMessages(messages);
  try {
    await agent.runAgent(
      { runId, tools, resume },
      {
        onRunFinishedEvent: ({ event }) => void end("finished", event),
        onRunErrorEvent: ({ event }) => void end("failed", event),
      },
    );
  } catch (error) {
    turn.ending = "rejected";
    turn.reason = error.message;
  }
  return {
    ...turn,
    messages: structuredClone(agent.messages),
    state: structuredClone(agent.state),
    interrupts: structuredClone(agent.pendingInterrupts),
  };
}

async function converse({ client, url, tools, turns }) {
  const Agent = httpAgentOf(client);
  const agent = new Agent({ url, threadId: "thread", initialState: {} });
  const done = [];
  for (const turn of turns) done.push(await turnOf(agent, tools, `run-${done.length + 1}`, turn));
  return done;
}

const request = await readRequest();
captureConsole();
await writeAnswer({ cases: await Promise.all(request.cases.map(converse)) });
process.exit(0);
