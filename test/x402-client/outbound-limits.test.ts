// Goal: a hostile answer (endless, packed, slow, huge headers, broken) costs a bounded amount of time and memory, and is told apart.
import { randomBytes } from "node:crypto";
import { createServer } from "node:net";
import { gzipSync, brotliCompressSync, deflateSync } from "node:zlib";
import t from "tap";
import { OutboundError } from "../../server/infra/outbound/guard.ts";
import { Outbound } from "../../server/infra/outbound/outbound.ts";
import { localServer } from "./sellers.ts";

const MIB = 1024 * 1024;

t.test("hostile and odd answers", async (t) => {
  const bomb = gzipSync(Buffer.alloc(64 * MIB));
  const text = Buffer.from("hello ".repeat(1000));
  const noise = randomBytes(100_000);
  const server = await localServer(t, (request, response) => {
    const send = (encoding: string, body: Buffer): void =>
      void response.writeHead(200, { "content-encoding": encoding }).end(body);
    switch (request.url) {
      case "/endless": {
        const chunk = Buffer.alloc(64 * 1024, "x");
        const more = (): void => {
          while (!response.destroyed && response.write(chunk));
        };
        response.on("drain", more);
        return more();
      }
      case "/bomb":
        return send("gzip", bomb);
      case "/gzip":
        return send("gzip", gzipSync(text));
      case "/br":
        return send("br", brotliCompressSync(text));
      case "/deflate":
        return send("deflate", deflateSync(text));
      case "/twice":
        return send("gzip, gzip", gzipSync(gzipSync(text)));
      case "/broken":
        return send("gzip", Buffer.from("this is not gzip"));
      case "/broken-br":
        return send("br", Buffer.from("this is not brotli"));
      case "/cut":
        return send("gzip", gzipSync(text).subarray(0, 30));
      case "/crc": {
        const packed = gzipSync(text);
        packed.writeUInt8(packed.readUInt8(packed.length - 6) ^ 1, packed.length - 6);
        return send("gzip", packed);
      }
      case "/mislabelled":
        return send("gzip", Buffer.alloc(300_000, "plain "));
      case "/zstd":
        return send("zstd", Buffer.from([0x28, 0xb5, 0x2f, 0xfd]));
      case "/trailing":
        return send("gzip", Buffer.concat([gzipSync(text), Buffer.from("rubbish")]));
      case "/slow-gzip": {
        response.writeHead(200, { "content-encoding": "gzip" });
        response.write(gzipSync(Buffer.concat([text, noise])).subarray(0, 60_000));
        return undefined;
      }
      case "/empty":
        return send("gzip", Buffer.alloc(0));
      case "/chunks":
        response.writeHead(200, { trailer: "x-sum" });
        response.write("chunk");
        return void setTimeout(() => response.socket?.end("\r\nnot a chunk\r\n"), 20);
      case "/cut-noise":
        return send("gzip", gzipSync(noise).subarray(0, 90_000));
      case "/exact":
        return void response.end(Buffer.alloc(MIB));
      case "/over":
        return void response.end(Buffer.alloc(MIB + 1));
      case "/headers":
        return void response.writeHead(200, { "x-big": "x".repeat(MIB) }).end();
      case "/drip": {
        response.writeHead(200);
        const timer = setInterval(() => response.write("."), 20);
        return void response.on("close", () => clearInterval(timer));
      }
      case "/hang":
        return undefined;
      case "/half":
        response.writeHead(200, { "content-length": "100" });
        response.write("half");
        return void setTimeout(() => response.destroy(), 20);
      default:
        return void response.writeHead(200).end(JSON.stringify(request.headers));
    }
  });
  const client = new Outbound({
    isHttpAllowed: false,
    privateOrigins: [server.origin],
    userAgent: "test-agent",
  });
  t.teardown(() => client.close());

  const get = async (path: string, more: object = {}): Promise<string> => {
    try {
      const { body } = await client.request({ url: server.origin + path, ...more });
      return body.toString();
    } catch (error) {
      if (error instanceof OutboundError) return `!${error.failure}`;
      throw error;
    }
  };

  t.equal(await get("/endless"), "!too_large", "an endless body is left at the limit");
  const before = process.memoryUsage().arrayBuffers;
  t.equal(await get("/bomb"), "!too_large", "a gzip bomb is left at the limit");
  t.ok(process.memoryUsage().arrayBuffers - before < 32 * MIB, "and was not unpacked");
  t.equal(await get("/exact", { maxBytes: MIB }), "\0".repeat(MIB), "the limit itself passes");
  t.equal(await get("/over", { maxBytes: MIB }), "!too_large", "one byte more does not");
  t.equal(await get("/headers"), "!too_large", "a megabyte of headers");
  for (const path of ["/gzip", "/br", "/deflate"]) t.equal(await get(path), text.toString(), path);
  t.equal(await get("/twice"), "!undecodable", "packed twice");
  t.equal(await get("/broken"), "!undecodable");
  t.equal(await get("/broken-br"), "!undecodable");
  t.equal(await get("/cut"), "!undecodable", "a gzip stream that ends early");
  t.equal(await get("/half"), "!unreachable", "a body shorter than announced");

  const startedMs = performance.now();
  t.equal(await get("/drip", { timeoutMs: 300 }), "!timeout", "a drip resets no clock");
  t.equal(await get("/hang", { timeoutMs: 300 }), "!timeout");
  t.ok(performance.now() - startedMs < 30_000, "both ended by the total timeout");

  await t.test("whoever wants what came gets it, and why there is no more", async (t) => {
    const part = async (path: string, more: object = {}) => {
      const { status, body, truncated, contentEncoding } = await client.request({
        url: server.origin + path,
        isPartialWanted: true,
        ...more,
      });
      return { status, bytes: body.length, text: body.toString(), truncated, contentEncoding };
    };
    const whole = { text: text.toString(), truncated: undefined, contentEncoding: undefined };
    for (const path of ["/gzip", "/br", "/deflate"]) t.match(await part(path), whole, path);
    t.match(await part("/trailing"), { ...whole, truncated: "encoding" }, "all, and rubbish");
    t.match(await part("/exact", { maxBytes: MIB }), { bytes: MIB, truncated: undefined });
    t.match(await part("/over", { maxBytes: MIB }), { bytes: MIB, truncated: "size" });
    t.match(await part("/endless", { maxBytes: 1000 }), { bytes: 1000, truncated: "size" });
    const held = process.memoryUsage().arrayBuffers;
    t.match(await part("/bomb", { maxBytes: MIB }), { bytes: MIB, truncated: "size" });
    t.ok(process.memoryUsage().arrayBuffers - held < 32 * MIB, "a bomb is not unpacked");
    t.match(await part("/half"), { text: "half", truncated: "connection" });
    t.match(await part("/chunks"), { text: /^chunk/, truncated: "connection" });
    t.match(await part("/drip", { timeoutMs: 300 }), { text: /^\.+$/, truncated: "timeout" });
    const slow = await part("/slow-gzip", { timeoutMs: 500 });
    t.equal(slow.truncated, "timeout");
    t.ok(slow.bytes > 40_000, `${slow.bytes} bytes unpacked before the time was over`);
    t.match(await part("/crc"), { text: text.toString(), truncated: "encoding" });
    const cut = await part("/cut-noise");
    t.match(cut, { truncated: "encoding", contentEncoding: undefined });
    t.ok(cut.bytes > 85_000, `${cut.bytes} bytes of what was cut`);
    const raw = { truncated: undefined };
    t.match(await part("/cut"), { ...raw, bytes: 30, contentEncoding: "gzip" }, "too little");
    t.match(await part("/broken"), { ...raw, text: "this is not gzip", contentEncoding: "gzip" });
    t.match(await part("/broken-br"), {
      ...raw,
      text: "this is not brotli",
      contentEncoding: "br",
    });
    t.match(await part("/mislabelled"), { ...raw, bytes: 300_000, contentEncoding: "gzip" });
    t.match(await part("/mislabelled", { maxBytes: 1000 }), { bytes: 1000, truncated: "size" });
    t.match(await part("/zstd"), { ...raw, bytes: 4, contentEncoding: "zstd" });
    t.match(await part("/twice"), { ...raw, contentEncoding: "gzip, gzip" });
    t.match(await part("/empty"), { bytes: 0, truncated: undefined, contentEncoding: undefined });
    for (const path of ["/endless", "/bomb", "/mislabelled"])
      await t.rejects(
        part(path, { mayRead: () => false }),
        OutboundError,
        `${path}: no room for it is no answer`,
      );
    t.equal(
      await get("/hang", { timeoutMs: 200, isPartialWanted: true }),
      "!timeout",
      "no headers",
    );
  });

  await t.test("only what never had a connection is known not to have arrived", async (t) => {
    const fails = async (url: string, more: object = {}): Promise<unknown> =>
      client.request({ url, method: "POST", body: "x", timeoutMs: 2_000, ...more }).then(
        () => "answered",
        (error: unknown) => (error as OutboundError).neverSent,
      );
    const silent = createServer((socket) => void socket.once("data", () => socket.destroy()));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    t.teardown(() => silent.close());
    const { port } = silent.address() as { port: number };
    const origin = `http://127.0.0.1:${port}`;
    const other = new Outbound({
      isHttpAllowed: true,
      privateOrigins: [origin, "http://127.0.0.1:1", `https://127.0.0.1:${port}`],
      userAgent: "t",
    });
    t.teardown(() => other.close());
    const told = async (url: string): Promise<unknown> =>
      other
        .request({ url, method: "POST", body: "x", timeoutMs: 2_000 })
        .catch((error: unknown) => (error as OutboundError).neverSent);
    t.equal(await told("http://127.0.0.1:9/"), true, "a forbidden address");
    t.equal(await told("https://127.0.0.1:1/"), true, "a forbidden port");
    t.equal(await told(`https://127.0.0.1:${port}/`), true, "no TLS");
    t.equal(await told(origin), false, "read, and closed without an answer");
    await new Promise((resolve) => silent.close(resolve));
    t.equal(await told(origin), true, "refused");
    t.equal(await fails(`${server.origin}/hang`, { timeoutMs: 200 }), false, "no answer in time");
    t.equal(await fails(`${server.origin}/headers`), false, "headers too large");
  });

  const controller = new AbortController();
  setTimeout(() => controller.abort(), 50);
  t.equal(await get("/hang", { signal: controller.signal }), "!unreachable", "the caller left");

  const seen = JSON.parse(await get("/echo", { headers: { "x-mine": "1" } })) as object;
  t.match(seen, { "user-agent": "test-agent", "accept-encoding": "gzip", "x-mine": "1" });
});
