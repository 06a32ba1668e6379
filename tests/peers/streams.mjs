// Writes streams of events with the npm packages: as they are with @ag-ui/encoder, in both
// bindings; and with their chunks expanded, or compacted, by @ag-ui/client.
//
// In: { cases: [[event]] }. Out: { cases }, with for each case { sse, binary, expanded, compacted }:
// bodies in base64, the last two as server-sent events. One is null where the package refuses.

import { createRequire } from "node:module";
import { join } from "node:path";

import { captureConsole, from, readRequest, writeAnswer } from "./npm.mjs";

const load = createRequire(join(process.argv[2], "peers.cjs"));
const { AGUI_MEDIA_TYPE } = load("@ag-ui/proto");
const { EventEncoder } = load("@ag-ui/encoder");
const { compactEvents, transformChunks } = load("@ag-ui/client");

const sse = new EventEncoder();
const binary = new EventEncoder({ accept: AGUI_MEDIA_TYPE });
const base64 = (parts) => Buffer.concat(parts.map((part) => Buffer.from(part))).toString("base64");
const text = (events) => base64(events.map((event) => sse.encodeSSE(event)));

function expand(events) {
  const expanded = [];
  let failure;
  from(events)
    .pipe(transformChunks())
    .subscribe({
      next: (event) => void expanded.push(event),
      error: (error) => void (failure = error),
    });
  if (failure) throw failure;
  return expanded;
}

function attempt(work) {
  try {
    return work();
  } catch {
    return null;
  }
}

const request = await readRequest();
captureConsole();
const cases = request.cases.map((events) => ({
  sse: attempt(() => text(events)),
  binary: attempt(() => base64(events.map((event) => binary.encodeBinary(event)))),
  expanded: attempt(() => text(expand(events))),
  compacted: attempt(() => text(compactEvents(structuredClone(events)))),
}));
await writeAnswer({ cases });
process.exit(0);
