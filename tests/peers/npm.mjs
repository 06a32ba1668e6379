// What the scripts here have in common: loading the npm peers, JSON in and out, the console.

import { createRequire } from "node:module";
import { join } from "node:path";
import { inspect } from "node:util";

// The peers are loaded from the folder named on the command line, which may lie elsewhere.
const load = createRequire(join(process.argv[2], "peers.cjs"));

export const { AbstractAgent, HttpAgent } = load("@ag-ui/client");
// The HttpAgent of another version, by the name under which it is installed.
export const httpAgentOf = (client) => load(client).HttpAgent;
export const { from } = createRequire(load.resolve("@ag-ui/client"))("rxjs");

export async function readRequest() {
  const chunks = [];
  for await (const chunk of process.stdin) chunks.push(chunk);
  return JSON.parse(Buffer.concat(chunks).toString("utf-8"));
}

export async function writeAnswer(answer) {
  await new Promise((resolve) => process.stdout.write(JSON.stringify(answer), resolve));
}

// What the client says on the console goes into these lists and nowhere else.
export function captureConsole() {
  const said = { warnings: [], errors: [] };
  const text = (parts) =>
    parts.map((part) => (typeof part === "string" ? part : inspect(part))).join(" ");
  console.warn = (...parts) => said.warnings.push(text(parts));
  console.error = (...parts) => said.errors.push(text(parts));
  return said;
}
