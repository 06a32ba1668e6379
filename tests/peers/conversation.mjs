// Holds a conversation with an agent over HTTP, with the HttpAgent of @ag-ui/client.
//
// In: { url, threadId, initialMessages?, initialState?, tools?, context?, body?, turns }, where a
// turn is { runId, messages?, forwardedProps?, resume? } and `body` is sent in place of each run
// input. Out: { turns, messages, state, warnings, errors }, with for each turn { events (types in
// order), custom (events), outcome, runError, error, messages, state, pendingToolCallIds }.

import { HttpAgent, captureConsole, readRequest, writeAnswer } from "./npm.mjs";

const request = await readRequest();
const said = captureConsole();
const { url, threadId, initialMessages, initialState, tools, context, body } = request;
const agent = new HttpAgent({
  url,
  threadId,
  initialMessages,
  initialState,
  ...(body !== undefined && { fetch: (to, init) => fetch(to, { ...init, body }) }),
});

const turns = [];
for (const { runId, messages = [], forwardedProps, resume } of request.turns) {
  const turn = { events: [], custom: [] };
  agent.addMessages(messages);
  try {
    await agent.runAgent(
      { runId, tools, context, forwardedProps, resume },
      {
        onEvent: ({ event }) => void turn.events.push(event.type),
        onCustomEvent: ({ event }) => void turn.custom.push(event),
        onRunErrorEvent: ({ event }) => void (turn.runError = event),
        onRunFinishedEvent: ({ event, pendingToolCallIds }) => {
          turn.outcome = event.outcome;
          turn.pendingToolCallIds = pendingToolCallIds;
        },
      },
    );
  } catch (error) {
    turn.error = { message: error.message, status: error.status, payload: error.payload };
  }
  turns.push({
    ...turn,
    messages: structuredClone(agent.messages),
    state: structuredClone(agent.state),
  });
}

await writeAnswer({ turns, messages: agent.messages, state: agent.state, ...said });
process.exit(0);
