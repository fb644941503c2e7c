// Goal: a hostile answer (endless, packed, slow, huge headers, broken) costs a bounded amount of time and memory, and is told apart.
import { gzipSync, brotliCompressSync, deflateSync } from "node:zlib";
import t from "tap";
import { OutboundError } from "../../server/infra/outbound/guard.ts";
import { Outbound } from "../../server/infra/outbound/outbound.ts";
import { localServer } from "./sellers.ts";

const MIB = 1024 * 1024;

t.test("hostile and odd answers", async (t) => {
  const bomb = gzipSync(Buffer.alloc(64 * MIB));
  const text = Buffer.from("hello ".repeat(1000));
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

  const startedAt = Date.now();
  t.equal(await get("/drip", { timeoutMs: 300 }), "!timeout", "a drip resets no clock");
  t.equal(await get("/hang", { timeoutMs: 300 }), "!timeout");
  t.ok(Date.now() - startedAt < 5_000, "both ended by the total timeout");

  const controller = new AbortController();
  setTimeout(() => controller.abort(), 50);
  t.equal(await get("/hang", { signal: controller.signal }), "!unreachable", "the caller left");

  const seen = JSON.parse(await get("/echo", { headers: { "x-mine": "1" } })) as object;
  t.match(seen, { "user-agent": "test-agent", "accept-encoding": "gzip", "x-mine": "1" });
});
