// The binary binding over HTTP, with the npm packages at one end.
//
// In: { read: url, input } reads the run's body and decodes it with @ag-ui/proto.
//     Out: { contentType, events }.
// In: { write: [event], port } answers one POST on 127.0.0.1 with these events, framed by
//     @ag-ui/encoder, in pieces. Out: { accept } of the request.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { readRequest, writeAnswer } from "./npm.mjs";

const load = createRequire(join(process.argv[2], "peers.cjs"));
const { AGUI_MEDIA_TYPE, decode } = load("@ag-ui/proto");
const { EventEncoder } = load("@ag-ui/encoder");

async function read(url, input) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: `text/event-stream, ${AGUI_MEDIA_TYPE}` },
    body: JSON.stringify(input),
  });
  const body = new Uint8Array(await response.arrayBuffer());
  const view = new DataView(body.buffer);
  const events = [];
  for (let at = 0; at < body.length; ) {
    const size = view.getUint32(at, false);
    events.push(decode(body.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return { contentType: response.headers.get("content-type"), events };
}

function write(events, port) {
  return new Promise((resolve) => {
    const server = createServer((request, response) => {
      const { accept } = request.headers;
      const encoder = new EventEncoder({ accept });
      const body = Buffer.concat(events.map((event) => Buffer.from(encoder.encodeBinary(event))));
      response.writeHead(200, { "Content-Type": encoder.getContentType() });
      for (let at = 0; at < body.length; at += 7) response.write(body.subarray(at, at + 7));
      response.end(() => server.close(() => resolve({ accept })));
    });
    server.listen(port, "127.0.0.1");
  });
}

const request = await readRequest();
await writeAnswer(
  request.read !== undefined
    ? await read(request.read, request.input)
    : await write(request.write, request.port),
);
process.exit(0);
