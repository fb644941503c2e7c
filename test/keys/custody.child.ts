// The custody process as `npm run custody` starts it, and lying ones: what a test kills, stops and does not believe.
import { createServer } from "node:net";
import { encode } from "../../server/infra/unix-frames.ts";
import { main } from "../../server/plugins/custody/process.ts";

const { PURSER_TEST_LIES: lies, CUSTODY_SOCKET: path } = process.env;
if (lies === undefined) await main();
else {
  process.umask(0o077);
  const answers: Record<string, (id: number) => Buffer> = {
    bytes: () => Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"),
    "not JSON": () => Buffer.from([0, 0, 0, 2, 0x7b, 0x7b]),
    "another shape": (id) => encode({ id, answer: { ok: true, result: { $x: 1 } } }),
    "another signature": (id) =>
      encode({ id, answer: { ok: true, result: `0x${"11".repeat(64)}1b` } }),
    "an unknown code": (id) =>
      encode({
        id,
        answer: { ok: false, kind: "refused", code: "paid", detail: "", extra: {}, headers: {} },
      }),
    silence: () => Buffer.alloc(0),
  };
  createServer((socket) => {
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      const { id } = JSON.parse(chunk.toString("utf8", 4)) as { id: number };
      const answer = answers[lies]?.(id) ?? Buffer.alloc(0);
      if (answer.length > 0) socket.write(answer);
    });
  }).listen(path);
}
process.send?.("ready");
