// Goal: a paid response is delivered as it was received: requested once, never replaced, never rounded, and as much of it as arrived.
import { gzipSync } from "node:zlib";
import t from "tap";
import { spendAs } from "../helpers/call.ts";
import { messageOf } from "../helpers/mcp-answer.ts";
import { main } from "../../packages/purser/src/cli.ts";
import { assertLedgerIsChain, market, PAYEE, type Answered } from "./market.ts";
import type { Exchange, Script } from "./scripted-seller.ts";

const OTHER = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const MAX_BYTES = 100_000;

t.test("paid means delivered", async (t) => {
  const made = await market(t, {
    listen: true,
    configure: (config) => void (config.fetchMaxBytes = MAX_BYTES),
  });
  const { seller } = made;
  const { url } = seller;

  /** A seller that settles, records each run of its handler, and answers with the given function. */
  const sells = (answer: (exchange: Exchange, receipt: Record<string, string>) => void) => {
    const ran: string[] = [];
    const script: Script = {
      onProof: async (exchange) => {
        ran.push(`${exchange.request.method} ${exchange.body}`);
        if (ran.length > 1) return seller.refuse(exchange.response, seller.entry());
        const transaction = await seller.settle(exchange.proof);
        answer(exchange, seller.receipt({ transaction }));
      },
    };
    seller.script = script;
    return ran;
  };
  const POST = { method: "POST", body: "once", timeoutMs: 20_000 };
  /** The timeout for responses that never end; long enough for a busy machine to settle in. */
  const SHORT_MS = 4_000;
  type Answer = Parameters<typeof sells>[0];

  await t.test("a POST is sent once, and its first response is returned", async (t) => {
    const cases: [string, Answer, object][] = [
      [
        "500",
        ({ response }, receipt) =>
          void response
            .writeHead(500, {
              "content-type": "application/json",
              "retry-after": "7",
              ...receipt,
            })
            .end('{"why": 1.0}'),
        {
          status: 502,
          body: {
            code: "paid_upstream_failed",
            upstreamStatus: 500,
            thirdParty: {
              untrusted: true,
              status: 500,
              headers: { "retry-after": "7", "content-type": "application/json" },
              data: { why: 1 },
              truncated: false,
              paymentResponse: { success: true, transaction: /^0x/ },
            },
          },
        },
      ],
      [
        "404",
        ({ response }) => void response.writeHead(404, { etag: 'W/"x"' }).end("gone"),
        {
          status: 502,
          body: {
            code: "paid_upstream_failed",
            thirdParty: { status: 404, text: "gone", headers: { etag: 'W/"x"' } },
          },
        },
      ],
      [
        "another 402",
        ({ response }) => seller.refuse(response, seller.entry({ amount: "9999" })),
        {
          body: {
            code: "paid_upstream_failed",
            thirdParty: { status: 402, reason: "payment required", text: "{}" },
          },
        },
      ],
      [
        "no answer",
        () => undefined,
        { body: { code: "paid_upstream_failed", upstreamStatus: null } },
      ],
      [
        "a cut",
        ({ response }) => void response.destroy(),
        { body: { code: "paid_upstream_failed" } },
      ],
      [
        "headers, and a cut",
        ({ response }) => {
          response.writeHead(200, { "content-length": "10" }).flushHeaders();
          setTimeout(() => response.destroy(), 50);
        },
        { body: { code: "paid_upstream_failed", thirdParty: { status: 200, bytes: 0 } } },
      ],
      [
        "too long",
        ({ response }) => void response.writeHead(200).end("x".repeat(MAX_BYTES + 1)),
        {
          status: 200,
          body: { truncated: true, truncatedBy: "size", bytes: MAX_BYTES, note: /maxBytes/ },
        },
      ],
      [
        "badly packed",
        ({ response }) => {
          const packed = gzipSync("hello ".repeat(999));
          packed.writeUInt32LE(0, packed.length - 8);
          response
            .writeHead(200, { "content-encoding": "gzip", "content-type": "text/plain" })
            .end(packed);
        },
        { status: 200, body: { truncatedBy: "encoding", text: "hello ".repeat(999) } },
      ],
      [
        "an unknown encoding",
        ({ response }) =>
          void response
            .writeHead(200, { "content-encoding": "zstd", "content-type": "application/json" })
            .end(Buffer.from([0x28, 0xb5, 0x2f, 0xfd])),
        {
          status: 200,
          body: { dataBase64: "KLUv/Q==", contentEncoding: "zstd", truncated: false },
        },
      ],
      [
        "cut in the middle",
        ({ response }) => {
          response.writeHead(200, { "content-length": "100", "content-type": "text/plain" });
          response.write("half");
          setTimeout(() => response.destroy(), 50);
        },
        { status: 200, body: { text: "half", truncatedBy: "connection", bytes: 4 } },
      ],
      [
        "slower than the time allowed",
        ({ response }) =>
          void response.writeHead(200, { "content-type": "text/plain" }).write("drip"),
        { status: 200, body: { text: "drip", truncatedBy: "timeout" } },
      ],
      [
        "another place",
        ({ response }, receipt) =>
          void response
            .writeHead(303, {
              location: "/orders/1",
              link: ['</a>; rel="next"', "</b>; rel=prev"],
              ...receipt,
            })
            .end(),
        {
          status: 200,
          body: {
            status: 303,
            headers: { location: "/orders/1", link: '</a>; rel="next", </b>; rel=prev' },
            thirdParty: { untrusted: true, paymentResponse: { success: true } },
            note: /did not follow/,
          },
        },
      ],
    ];
    for (const [label, answer, expected] of cases) {
      const ran = sells(answer);
      const before = await made.balanceOf(PAYEE);
      const isEndless = ["no answer", "slower than the time allowed"].includes(label);
      const answered = await made.fetch({
        url,
        ...POST,
        ...(isEndless && { timeoutMs: SHORT_MS }),
      });
      t.match(answered, expected, label);
      const paid = { paid: true, amountPaid: "0.001", txHash: /^0x/, paymentId: /^pay_/ };
      t.match(
        answered.body,
        { ...paid, delivered: answered.status === 200 },
        `${label}: the receipt`,
      );
      t.same(ran, ["POST once"], `${label}: the seller's handler ran once`);
      t.equal((await made.balanceOf(PAYEE)) - before, 1000n, `${label}: paid once`);
    }
  });

  await t.test("a GET is sent at most twice; a refusal replaces no response", async (t) => {
    const ran = sells(({ response }) => void response.writeHead(500).end("first"));
    t.match(await made.fetch({ url }), {
      body: {
        code: "paid_upstream_failed",
        upstreamStatus: 500,
        detail: /returned 500/,
        thirdParty: { status: 500, text: "first" },
      },
    });
    t.same(ran, ["GET ", "GET "]);
  });

  await t.test("a request that was never sent is sent again, also a POST", async (t) => {
    // The port is closed between the price and the proof, and open again for the second attempt.
    const { server, port } = seller;
    let shown = 0;
    seller.script = {
      onUnpaid: async ({ response }) => {
        response.on("finish", () => {
          server.close();
          server.closeAllConnections();
        });
        response.setHeader("connection", "close");
        seller.refuse(response, seller.entry());
      },
      onProof: async ({ response, proof }) => {
        shown += 1;
        await seller.settle(proof);
        response.writeHead(200).end("here");
      },
    };
    const originalRequest = made.app.outbound.request.bind(made.app.outbound);
    const failures: boolean[] = [];
    made.app.outbound.request = async (request) => {
      try {
        return await originalRequest(request);
      } catch (error) {
        failures.push((error as { neverSent: boolean }).neverSent);
        await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
        throw error;
      }
    };
    const answered = await made.fetch({ url, ...POST });
    made.app.outbound.request = originalRequest;
    t.match(answered, { status: 200, body: { paid: true, text: "here" } });
    t.same([failures, shown], [[true], 1]);
  });

  await t.test("numbers and text are returned unchanged, also in a replay", async (t) => {
    const json =
      '{"z": 12345678901234567890, "a": [1e400, -0, 0.1000, 1.0],\n "t": "\\u00fc\\u0000", "a2": {"b":1}, "__proto__": 5}';
    sells(
      ({ response }) =>
        void response.writeHead(200, { "content-type": "application/json" }).end(json),
    );
    const key = { "idempotency-key": "exact" };
    const first = await made.fetch({ url }, key);
    t.equal(first.status, 200);
    t.ok(first.text.includes(`"data":${json}`), "the exact document");
    t.equal(first.body["text"], undefined, "only once");
    t.equal(first.headers["content-type"], "application/json; charset=utf-8");
    const again = await made.fetch({ url }, key);
    t.equal(again.text, first.text);
    t.equal(again.headers["idempotent-replayed"], "true");

    sells(
      ({ response }) =>
        void response.writeHead(400, { "content-type": "application/json" }).end("[1.0,1e400]"),
    );
    const refused = { "idempotency-key": "exact-error" };
    const error = await made.fetch({ url, ...POST }, refused);
    t.ok(error.text.includes('"data":[1.0,1e400]'), "in an error as well");
    const repeated = await made.fetch({ url, ...POST }, refused);
    t.ok(repeated.text.includes('"data":[1.0,1e400]'));
  });

  await t.test("a body is sent as the caller wrote it", async (t) => {
    const sent: string[] = [];
    seller.script = {
      onUnpaid: ({ response, body }) => {
        sent.push(body);
        response.writeHead(200).end("ok");
      },
    };
    const raw = (body: string): string => `{"url":"${url}","method":"POST","body":${body}}`;
    await made.fetch(raw('{"n":12345678901234567890,"m":[1e400,0.10,-0],"s":"1.0"}'));
    await made.fetch(raw("12345678901234567890"));
    await made.fetch({ url, method: "POST", body: ' {"n" : 1.0}\r\n\u00fc' });
    t.same(sent, [
      '{"n":12345678901234567890,"m":[1e400,0.10,-0],"s":"1.0"}',
      "12345678901234567890",
      ' {"n" : 1.0}\r\n\u00fc',
    ]);
    const key = { "idempotency-key": "numbers" };
    await made.fetch(raw("12345678901234567890"), key);
    t.match(
      await made.fetch(raw("12345678901234567000"), key),
      { body: { code: "idempotency_key_reused" } },
      "another number is another request",
    );
    const call = {
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "x402_fetch", arguments: { url, method: "POST", body: { n: 0 } } },
    };
    seller.script = {
      onUnpaid: ({ response, body }) =>
        void response.writeHead(200, { "content-type": "application/json" }).end(body),
    };
    const tool = await made.app.inject({
      method: "POST",
      url: "/mcp",
      headers: { ...made.agent.headers, accept: "application/json, text/event-stream" },
      payload: JSON.stringify(call).replace('"n":0', '"n":12345678901234567890'),
    });
    t.equal(tool.statusCode, 200);
    const { result } = messageOf(tool) as { result: { content: { text: string }[] } };
    t.match(result.content.at(-1)?.text, /"data":\{"n":12345678901234567890\}/);
    t.notOk("structuredContent" in result, "only once");
  });

  await t.test("text in its declared charset, bytes where it is not text", async (t) => {
    const utf16 = Buffer.from('\ufeff{"a":1}', "utf16le");
    const cases: [string, Buffer, object][] = [
      ["text/plain; charset=iso-8859-1", Buffer.from([0xfc, 0x21]), { text: "ü!" }],
      ['text/plain; charset="windows-1252"', Buffer.from([0x80]), { text: "€" }],
      ["text/html;Charset=Shift_JIS", Buffer.from([0x93, 0xfa, 0x96, 0x7b]), { text: "日本" }],
      ["application/json; charset=utf-16", utf16, { data: { a: 1 } }],
      ["application/json", Buffer.from(utf16).swap16(), { data: { a: 1 } }],
      ["text/plain; charset=utf-16be", Buffer.from([0, 0x61]), { text: "a" }],
      ["application/json", Buffer.from('\ufeff{"a":1.0}'), { data: { a: 1 } }],
      ["application/json; charset=latin1", Buffer.from([0x22, 0xe9, 0x22]), { data: "é" }],
      ["text/plain; charset=klingon", Buffer.from("plain"), { text: "plain" }],
      ["text/plain; charset=klingon", Buffer.from([0xff]), { dataBase64: "/w==" }],
      ["text/plain", Buffer.from([0xff]), { dataBase64: "/w==" }],
      ["text/plain; charset=", Buffer.from("x"), { text: "x" }],
      ["image/svg+xml", Buffer.from("<svg/>"), { text: "<svg/>" }],
      ["application/json", Buffer.from("{"), { text: "{" }],
    ];
    for (const [type, bytes, expected] of cases) {
      seller.script = {
        onUnpaid: ({ response }) =>
          void response.writeHead(200, { "content-type": type }).end(bytes),
      };
      const { body } = await made.fetch({ url });
      t.match(body, { ...expected, bytes: bytes.length, truncated: false }, type);
      for (const name of ["text", "data", "dataBase64"])
        t.equal(name in body, name in expected, `${type}: only once`);
    }
    seller.script = {
      onUnpaid: ({ response }) =>
        void response.writeHead(200, { "content-type": "text/plain" }).end("é".repeat(MAX_BYTES)),
    };
    const { body } = await made.fetch({ url });
    t.match(
      body,
      { truncatedBy: "size", text: /^é+$/ },
      "half a character at the end does not make it bytes",
    );
  });

  await t.test("odd headers of a response break nothing", async (t) => {
    const odd: Record<string, string | string[]>[] = [
      { etag: '"\u00fc\u00e9"', location: "/\u00fc" },
      { location: `/${"x".repeat(9_000)}`, "retry-after": "soon" },
      { "content-type": "\u00ff/\u00fe; charset=\u00ff", link: ["<a>", "<b>"] },
      { "payment-response": "\u00ff\u00ff", "content-encoding": "\u00ff" },
      { "content-type": `text/plain; charset=${"x".repeat(9_000)}` },
      { trailer: "x-sum" },
    ];
    for (const headers of odd) {
      seller.script = {
        onUnpaid: ({ response }) => void response.writeHead(200, headers).end("x"),
      };
      const answered: Answered = await made.fetch({ url });
      t.equal(answered.status, 200, JSON.stringify(headers).slice(0, 60));
      t.ok(
        Object.values(answered.body["headers"] as object).every((value) => value.length <= 4_096),
      );
    }
    seller.script = {
      onUnpaid: ({ response }) =>
        void response.socket?.end(
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger than it says",
        ),
    };
    t.match(await made.fetch({ url }), { status: 200, body: { text: "lo" } });
  });

  await t.test("an error response that cost nothing is reported as an error", async (t) => {
    seller.script = {
      onUnpaid: ({ response }) => void response.writeHead(404).end("no such page"),
    };
    const answered = await made.fetch({ url, headers: { Cookie: "a", "X-Mine": "1", Host: "x" } });
    t.match(answered, {
      status: 200,
      body: {
        paid: false,
        status: 404,
        delivered: false,
        note: /returned 404.*Nothing was paid or delivered/,
        omittedHeaders: ["Cookie", "Host"],
      },
    });
    const env = { AGENT_API_KEY: made.agent.apiKey, PURSER_URL: made.baseUrl };
    const exit = (...args: string[]) => main(["fetch", ...args], env, () => undefined);
    t.equal(await exit(url), 1);
    t.equal(await exit(url, "--dry-run"), 0, "a quote is a success");
    seller.script = { onUnpaid: ({ response }) => void response.writeHead(200).end("a page") };
    t.equal(await exit(url), 0);
    seller.script = {};
    t.equal(await exit(url), 0);
  });

  await t.test("a quote contains the size limit", async (t) => {
    seller.script = {};
    t.match(await made.fetch({ url, dryRun: true }), { body: { maxBytes: MAX_BYTES } });
  });

  await t.test("a refusal names the payee to allow, and the valid values", async (t) => {
    seller.script = { terms: () => seller.entry({ payTo: OTHER }) };
    t.match(await made.fetch({ url }), {
      status: 403,
      body: {
        code: "recipient_not_allowed",
        payTo: OTHER,
        site: seller.origin,
        suggestion: `Ask the owner to allow ${OTHER}, for ${seller.origin} or for all sites.`,
      },
    });
    const one = (body: Answered["body"]) => (body["errors"] as object[]).length;
    const method = await made.fetch({ url, method: "get" });
    t.match(method, {
      status: 422,
      body: {
        detail: "body.method must be one of GET, HEAD, POST, PUT, PATCH, DELETE",
      },
    });
    t.equal(one(method.body), 1);
    const spend = await spendAs(made.app, made.agent, {
      recipient: PAYEE,
      amount: "1",
      network: "arc",
    });
    t.match(spend.json(), { detail: /^body\.network must be one of eip155:\d+$/ });
    const otherPayee = await spendAs(made.app, made.agent, { recipient: OTHER, amount: "1" });
    t.match(otherPayee.json(), { code: "recipient_not_allowed", payTo: OTHER, site: null });
  });

  await assertLedgerIsChain(t, made);
});
