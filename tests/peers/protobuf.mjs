// Encodes and decodes the messages of the binary binding with @ag-ui/proto, and frames them with
// @ag-ui/encoder.
//
// In: { encode?: [event], decode?: [hex] }. Out: { encoded, body, decoded, warnings, errors }: for
// each event { hex }, the events as one body in hexadecimal, and for each message { event }. In
// place of either comes { error } with what was thrown, or { unknown: true } for a message of a
// kind that the package has no name for.

import { createRequire } from "node:module";
import { join } from "node:path";
import { captureConsole, readRequest, writeAnswer } from "./npm.mjs";

const load = createRequire(join(process.argv[2], "peers.cjs"));
const { AGUI_MEDIA_TYPE, AGUIUnknownEventTypeError, decode, encode } = load("@ag-ui/proto");
const { EventEncoder } = load("@ag-ui/encoder");

function attempt(work) {
  try {
    return work();
  } catch (error) {
    if (error instanceof AGUIUnknownEventTypeError) return { unknown: true };
    return { error: String(error.message) };
  }
}

const hex = (bytes) => Buffer.from(bytes).toString("hex");

const request = await readRequest();
const said = captureConsole();
const events = request.encode ?? [];
const framing = new EventEncoder({ accept: AGUI_MEDIA_TYPE });
const encoded = events.map((event) => attempt(() => ({ hex: hex(encode(event)) })));
const body = events.map((event) => attempt(() => hex(framing.encodeBinary(event)))).join("");
const decoded = (request.decode ?? []).map((message) =>
  attempt(() => ({ event: decode(new Uint8Array(Buffer.from(message, "hex"))) })),
);
await writeAnswer({ encoded, body, decoded, ...said });
process.exit(0);
