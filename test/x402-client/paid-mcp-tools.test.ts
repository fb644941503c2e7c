// Goal: a tool of a remote MCP server is paid as an API is: the same limits, one payment, one run, and the truth about what failed, whoever the server is.
// Tier: full (tries every variant of one feature).
import { execFile, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t from "tap";
import { cashier } from "../../packages/paywall/src/mcp.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testAccount } from "../helpers/chain.ts";
import { pythonWith } from "../helpers/python.ts";
import { until } from "../helpers/until.ts";
import { newToolServer, oldToolServer } from "../paywall/tool-servers.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";
import { scriptedTools, type ToolScript } from "./scripted-tools.ts";

const STOCK = fileURLToPath(new URL("stock_mcp.py", import.meta.url));
const python = await pythonWith(["x402[evm]==2.25.0", "mcp==1.30.0"], (clean) => t.teardown(clean));
const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "4000" } });
const { app, agent, chain, config, seller, baseUrl } = made;
const network = `eip155:${chain.chainId}`;
const facilitator = `${baseUrl}/api/x402`;
const desk = cashier({ facilitator, networks: [network], payTo: PAYEE });
const open = (origin: string): void => void config.fetchPrivateOrigins.push(origin);
const WIEN = { tool: "get_weather", arguments: { city: "Wien" } };

for (const [name, start] of [
  ["with a session, streaming", () => oldToolServer(t, desk)],
  ["with a session, in JSON", () => oldToolServer(t, desk, { json: true })],
  ["without sessions", () => newToolServer(t, desk)],
  ["without a handshake", () => newToolServer(t, desk, { legacy: "reject" })],
] as const)
  t.test(`a server ${name}`, async (t) => {
    const shop = await start();
    const { url } = shop;
    open(shop.origin);

    const quote = await made.fetch({ url, mcp: WIEN, dryRun: true });
    t.match(quote, {
      status: 200,
      body: { dryRun: true, price: "0.01", payTo: PAYEE, verdict: { allowed: true } },
    });
    t.match(await made.fetch({ url, mcp: { tool: "broken" }, dryRun: true }), {
      status: 422,
      body: { code: "price_not_announced" },
    });
    t.match(await made.fetch({ url, mcp: { tool: "nothing" }, dryRun: true }), {
      status: 502,
      body: { code: "upstream_error", detail: /lists no tool/ },
    });
    t.same(shop.runs, [], "a quote calls nothing");
    t.match(await made.fetch({ url, mcp: WIEN, maxAmount: "0.009" }), {
      status: 403,
      body: { code: "price_exceeds_max" },
    });

    const bought = await made.fetch({ url, mcp: WIEN, maxAmount: "0.01" });
    t.match(bought, {
      status: 200,
      body: {
        paid: true,
        amountPaid: "0.01",
        txHash: /^0x/,
        delivered: true,
        status: 200,
        data: {
          content: [{ type: "text", text: "sunny in Wien" }],
          structuredContent: { city: "Wien", degrees: 21 },
        },
        thirdParty: { paymentResponse: { success: true, payer: agent.walletAddress } },
      },
    });
    t.match(shop.runs, [{ city: "Wien", receipt: { transaction: bought.body["txHash"] } }]);
    t.match(await made.lastPayment(), {
      url: `${url}#get_weather`,
      status: "settled",
      delivered: true,
      upstream_status: 200,
    });

    t.match(await made.fetch({ url, mcp: { tool: "ping" } }), {
      status: 200,
      body: { paid: false, amountPaid: "0", data: { content: [{ text: "pong" }] } },
    });
    t.match(await made.fetch({ url, mcp: { tool: "broken" } }), {
      status: 502,
      body: {
        code: "paid_upstream_failed",
        amountPaid: "0.02",
        thirdParty: { data: { content: [{ text: "out of order" }] } },
      },
    });
    t.same(
      shop.runs.map(({ tool }) => tool),
      ["get_weather", "ping", "broken"],
    );
    await until(async () => shop.sessions() === 0, 5_000);
    t.pass("no session is left behind");
  });

t.test("the protocol's own", { skip: "missing" in python && python.missing }, async (t) => {
  if ("missing" in python) return;
  const program = (...args: string[]) => [STOCK, ...args];

  await t.test("server is paid", async (t) => {
    const port = await freePort();
    const given = { facilitator, network, asset: chain.usdc, pay_to: PAYEE, port };
    const shop = spawn(python.python, program("serve", JSON.stringify(given)), {
      stdio: ["ignore", "inherit", "inherit"],
    });
    t.teardown(() => shop.kill());
    const url = `http://127.0.0.1:${port}/mcp`;
    open(new URL(url).origin);
    const ran = async () => (await made.fetch({ url, mcp: { tool: "runs" } })).body["data"];
    await until(async () => (await fetch(url).catch(() => undefined)) !== undefined, 30_000);
    t.match(await made.fetch({ url, mcp: WIEN, dryRun: true }), { status: 422 });
    const [first, same] = await Promise.all(
      [1, 2].map(() => made.fetch({ url, mcp: WIEN }, { "idempotency-key": "stock-tool" })),
    );
    const bought = first?.status === 200 ? first : same;
    t.match(bought, {
      status: 200,
      body: { paid: true, amountPaid: "0.01", data: { content: [{ text: /degrees/ }] } },
    });
    t.match(await ran(), { content: [{ text: '["Wien"]' }] }, "it ran once");
  });

  await t.test("client pays a tool of our paywall", async (t) => {
    const payer = testAccount(3);
    await chain.mint(payer.address, 1_000_000n);
    for (const shop of [await oldToolServer(t, desk), await newToolServer(t, desk)]) {
      const { tool, arguments: args } = WIEN;
      const given = { url: shop.url, key: payer.privateKey, tool, arguments: args };
      const paying = program("pay", JSON.stringify(given));
      const { stdout } = await promisify(execFile)(python.python, paying);
      t.match(JSON.parse(stdout), {
        isError: false,
        paid: true,
        text: ["sunny in Wien"],
        receipt: { success: true, transaction: /^0x/ },
      });
      t.match(shop.runs, [{ city: "Wien", receipt: { payer: payer.address } }]);
      t.equal(shop.runs.length, 1);
    }
  });
});

t.test("what the request may say", async (t) => {
  const url = `${seller.origin}/mcp`;
  for (const [body, path] of [
    [{ listingId: "x", mcp: WIEN }, "body.listingId"],
    [{ url, mcp: WIEN, method: "GET" }, "body.method"],
    [{ url, mcp: WIEN, body: "x" }, "body.body"],
    [{ url, mcp: WIEN, maxAge: 5 }, "body.maxAge"],
    [{ url, mcp: { tool: "" } }, "body.mcp.tool"],
    [{ url, mcp: { tool: "x", more: 1 } }, "body.mcp"],
  ] as const)
    t.match(await made.fetch(body), { status: 422, body: { errors: [{ path }] } }, path);
  t.equal(seller.connections(), 0, "nobody was asked");
});

t.test("hostile servers", async (t) => {
  const tools = await scriptedTools(t, seller);
  const { url, reply, terms } = tools;
  open(tools.origin);
  let calls = 0;
  async function run(script: ToolScript, more: Record<string, unknown> = {}) {
    calls += 1;
    tools.script = script;
    const [proofs, messages, earned] = [
      tools.proofs.length,
      tools.messages.length,
      await made.balanceOf(PAYEE),
    ];
    const mcp = { tool: "answer", arguments: { call: calls } };
    const answer = await made.fetch({ url, mcp, timeoutMs: 1_000, ...more });
    return {
      ...answer,
      proofs: tools.proofs.length - proofs,
      called: tools.messages.slice(messages).filter(({ method }) => method === "tools/call").length,
      earned: (await made.balanceOf(PAYEE)) - earned,
      reserved: await made.reserved(),
    };
  }
  const NOTHING = { earned: 0n, reserved: "0", proofs: 1, called: 2 };
  const UNASKED = { earned: 0n, reserved: "0", proofs: 0 };
  const sse = (events: object[]) =>
    events.map((one) => `data: ${JSON.stringify(one)}\n\n`).join("");

  await t.test("honest, with exact numbers both ways", async (t) => {
    const body = `{"url":"${url}","mcp":{"tool":"answer","arguments":{"big":12345678901234567890}}}`;
    tools.script = {
      onProof: async ({ message, response, proof }) => {
        await seller.settle(proof);
        response
          .writeHead(200, { "content-type": "application/json" })
          .end(
            `{"jsonrpc":"2.0","id":${message.id},"result":{"content":[],"big":98765432109876543210}}`,
          );
      },
      onAsk: ({ request: _request, ...exchange }) => reply(exchange, terms()),
    };
    const answer = await made.fetch(body);
    t.match(answer, { status: 200, body: { paid: true } });
    t.match(answer.text, /"big":98765432109876543210/);
  });

  await t.test("402 forever, at any price", async (t) => {
    for (const over of [{}, { amount: "9999" }, { payTo: testAccount(8).address }])
      t.match(await run({ onProof: (exchange) => reply(exchange, terms(over)) }), {
        status: 502,
        body: {
          code: "settlement_failed",
          paid: false,
          thirdParty: { reason: "Payment required" },
        },
        ...NOTHING,
      });
  });

  await t.test("an error after the proof", async (t) => {
    const failures: [string, ToolScript["onProof"]][] = [
      ["of the tool", (one) => reply(one, { isError: true, content: [] })],
      ["that asks for more", (one) => reply(one, { resultType: "input_required", content: [] })],
      [
        "another id",
        (one) => reply({ ...one, message: { ...one.message, id: 77 } }, { content: [] }),
      ],
      ["no result", ({ response }) => void response.writeHead(200).end("{}")],
      ["no MCP", ({ response }) => void response.writeHead(200).end("<html>")],
      ["a redirect", ({ response }) => void response.writeHead(307, { location: "/" }).end()],
      ["the session lost", ({ response }) => void response.writeHead(404).end()],
      ["402 of HTTP", ({ response }) => void response.writeHead(402).end("{}")],
      ["broken off", ({ response }) => void response.destroy()],
      [
        "JSON-RPC",
        ({ message: { id }, response }) =>
          void response.end(
            JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32603, message: "no" } }),
          ),
      ],
      [
        "a stream that ends without it",
        ({ response }) =>
          void response
            .writeHead(200, { "content-type": "text/event-stream" })
            .end(sse([{ jsonrpc: "2.0", method: "notifications/progress" }])),
      ],
    ];
    for (const [name, onProof] of failures)
      t.match(
        await run({ ...(onProof && { onProof }) }),
        { status: 502, body: { code: "upstream_error", paid: false }, ...NOTHING },
        name,
      );
    t.match(
      await run({
        onProof: async (exchange) => {
          await seller.settle(exchange.proof);
          reply(exchange, { isError: true, content: [{ type: "text", text: "sorry" }] });
        },
      }),
      {
        status: 502,
        body: {
          code: "paid_upstream_failed",
          txHash: /^0x/,
          thirdParty: { data: { content: [{ text: "sorry" }] } },
        },
        earned: 1_000n,
        proofs: 1,
        called: 2,
      },
    );
  });

  await t.test("silence", async (t) => {
    t.match(await run({ onProof: () => undefined }), {
      status: 504,
      body: { code: "upstream_timeout", paid: false },
      ...NOTHING,
    });
    t.match(await run({ onAsk: () => undefined }), {
      status: 504,
      body: { code: "upstream_timeout" },
      ...UNASKED,
      called: 1,
    });
    t.match(await run({ onInitialize: () => undefined }), {
      status: 504,
      body: { code: "upstream_timeout" },
      ...UNASKED,
      called: 0,
    });
  });

  await t.test("streams", async (t) => {
    const result = (id: unknown) => ({ jsonrpc: "2.0", id, result: { content: [], said: 1 } });
    const settled: ToolScript["onProof"] = async ({ message, response, proof }) => {
      await seller.settle(proof);
      response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
      const progress = { jsonrpc: "2.0", method: "notifications/progress", params: {} };
      // Left open: what was asked for has come.
      response.write(`: hello\r\nid: 1\r\n\r\n${sse([progress, result(message.id)])}`);
    };
    t.match(await run({ onProof: settled }), {
      status: 200,
      body: { paid: true, data: { said: 1 } },
      earned: 1_000n,
    });
    // Opened, kept alive, and never answered: no answer of the tool's, whether it was collected or not.
    for (const isCollected of [false, true])
      for (const isCut of [false, true]) {
        const pinging: ToolScript["onProof"] = async ({ response, proof }) => {
          if (isCollected) await seller.settle(proof);
          response.writeHead(200, { "content-type": "text/event-stream" });
          response.write(": ping\n\n");
          if (isCut) setTimeout(() => response.destroy(), 50);
        };
        t.match(
          await run({ onProof: pinging }),
          isCollected
            ? { status: 502, body: { code: "paid_upstream_failed", txHash: /^0x/ }, earned: 1_000n }
            : {
                status: isCut ? 502 : 504,
                body: { code: isCut ? "upstream_error" : "upstream_timeout", paid: false },
                ...NOTHING,
              },
          `${isCollected ? "collected" : "not collected"}, ${isCut ? "cut" : "silent"}`,
        );
      }
    const endless: ToolScript["onProof"] = ({ response }) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const event = sse([
        { jsonrpc: "2.0", method: "notifications/message", params: "x".repeat(65_536) },
      ]);
      const pour = (): void => {
        while (!response.destroyed && response.write(event));
        if (!response.destroyed) response.once("drain", pour);
      };
      pour();
    };
    const giant = await run({ onProof: endless }, { timeoutMs: 20_000 });
    t.match(giant, {
      status: 502,
      body: { code: "upstream_error", detail: /larger than allowed/, paid: false },
      ...NOTHING,
    });
  });

  await t.test("a list without an end takes no longer than the call may", async (t) => {
    let page = 0;
    const startedMs = performance.now();
    const answer = await run(
      {
        onAsk: async (one) => {
          await new Promise((resolve) => setTimeout(resolve, 400));
          reply(one, { tools: [], nextCursor: String((page += 1)) });
        },
      },
      { dryRun: true },
    );
    t.match(answer, { status: 504, body: { code: "upstream_timeout" }, ...UNASKED });
    t.ok(page > 1, "page after page, until the time was over");
    t.ok(performance.now() - startedMs < 30_000, `${page} pages`);
  });

  await t.test("before the proof", async (t) => {
    const asked = (onAsk: ToolScript["onAsk"]) => run({ ...(onAsk && { onAsk }) });
    t.match(await asked((one) => reply(one, terms({ amount: "400000000" }))), {
      status: 403,
      body: { code: /limit_exceeded/ },
      ...UNASKED,
    });
    t.match(await asked((one) => reply(one, terms({ payTo: testAccount(8).address }))), {
      status: 403,
      body: { code: "recipient_not_allowed" },
      ...UNASKED,
    });
    t.match(
      await asked((one) =>
        reply(one, {
          isError: true,
          structuredContent: { x402Version: 2, accepts: [] },
          content: [],
        }),
      ),
      {
        status: 502,
        body: { code: "upstream_invalid_402" },
        ...UNASKED,
      },
    );
    t.match(await asked(({ response }) => void response.writeHead(302, { location: "/" }).end()), {
      status: 502,
      body: { code: "upstream_redirect" },
      ...UNASKED,
    });
    t.match(await asked(({ response }) => void response.writeHead(402).end("{}")), {
      status: 502,
      body: { code: "upstream_error", detail: /asks to be paid over HTTP/ },
      ...UNASKED,
    });
    t.match(await asked((one) => reply(one, { isError: true, content: [] })), {
      status: 200,
      body: { paid: false, delivered: false, status: 500 },
      ...UNASKED,
    });
    for (const onInitialize of [
      ({ response }) => void response.writeHead(307, { location: "http://169.254.169.254/" }).end(),
      ({ response }) => void response.writeHead(200).end("<html>"),
      (one) => reply(one, { protocolVersion: "none" }),
    ] satisfies ToolScript["onInitialize"][])
      t.match(await run({ onInitialize }), { status: 502, ...UNASKED, called: 0 });
    const spoof = { headers: { "mcp-session-id": "mine", accept: "*/*", "x-ok": "1" } };
    t.match(await run({}, spoof), {
      body: { paid: true, omittedHeaders: ["mcp-session-id", "accept"] },
    });
  });

  await t.test("text alone, version 1's error, and a private address", async (t) => {
    const { content } = terms() as { content: object[] };
    t.match(await run({ onAsk: (one) => reply(one, { isError: true, content }) }), {
      body: { paid: true },
    });
    const old: ToolScript["onAsk"] = ({ message: { id }, response }) => {
      const { structuredContent: data } = terms() as { structuredContent: object };
      const error = { code: 402, message: "Payment required", data };
      response.end(JSON.stringify({ jsonrpc: "2.0", id, error }));
    };
    t.match(await run({ onAsk: old }), { body: { paid: true } });
    for (const blocked of ["http://127.0.0.1:9/mcp", "http://10.0.0.1/mcp"])
      t.match(await made.fetch({ url: blocked, mcp: WIEN }), {
        status: 403,
        body: { code: "url_blocked" },
      });
  });

  await t.test("one key, many calls", async (t) => {
    tools.script = {};
    const before = tools.proofs.length;
    const mcp = { tool: "answer", arguments: { once: true } };
    const call = () => made.fetch({ url, mcp }, { "idempotency-key": "one-key" });
    const answers = await Promise.all(Array.from({ length: 8 }, call));
    const paid = answers.filter(({ status }) => status === 200);
    t.ok(paid.length >= 1);
    for (const answer of answers)
      t.match(
        answer.status === 200 ? answer.body["paid"] : answer.body["code"],
        /^true$|in_progress/,
      );
    t.equal(new Set(paid.map(({ body }) => body["txHash"])).size, 1);
    t.match(await call(), { status: 200, headers: { "idempotent-replayed": "true" } });
    t.match(
      await made.fetch(
        { url, mcp: { ...mcp, arguments: { once: false } } },
        { "idempotency-key": "one-key" },
      ),
      { status: 422, body: { code: "idempotency_key_reused" } },
      "other arguments are another call",
    );
    t.equal(tools.proofs.length, before + 1, "the tool was called once with a proof");
  });

  t.equal(await made.reserved(), "0");
  await assertLedgerIsChain(t, made);
  app.server.closeAllConnections();
});
