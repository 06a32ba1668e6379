// Reads event streams with the HttpAgent of @ag-ui/client, without a network, and says how much
// processor time that took.
//
// Started once, with the folder that holds node_modules. Each line in is { body, bytes?, input },
// the name of a file that holds the body, and into pieces of how many bytes it is cut. Each line
// out is { seconds, messages, characters }: the time from the start of the run to its end, and
// what the conversation holds then, so that whoever asks can see that the work was done.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const load = createRequire(join(process.argv[2], "peers.cjs"));
const { HttpAgent } = load("@ag-ui/client");

console.warn = () => {};

function answerWith(body, size) {
  let at = 0;
  const stream = new ReadableStream({
    pull(controller) {
      if (at >= body.length) return controller.close();
      controller.enqueue(new Uint8Array(body.subarray(at, at + size)));
      at += size;
    },
  });
  return new Response(stream, { headers: { "content-type": "text/event-stream" } });
}

async function read({ body, bytes = 16384, input }) {
  const content = readFileSync(body);
  const agent = new HttpAgent({
    url: "http://agent.example/",
    threadId: input.threadId,
    initialMessages: input.messages,
    initialState: input.state,
    fetch: async () => answerWith(content, bytes),
  });
  globalThis.gc?.();
  const before = process.cpuUsage();
  await agent.runAgent({ runId: input.runId });
  const { user, system } = process.cpuUsage(before);
  const characters = agent.messages.reduce((sum, { content }) => sum + (content?.length ?? 0), 0);
  return { seconds: (user + system) / 1e6, messages: agent.messages.length, characters };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await read(JSON.parse(line)))}\n`);
}
