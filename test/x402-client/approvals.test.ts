// Goal: an approval of a paid URL applies to the payee, price and origin that the owner saw, over HTTP, client, command line and MCP.
import { encodePaymentRequiredHeader } from "@x402/core/http";
import type { PaymentRequired } from "@x402/core/types";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { main } from "../../packages/purser/src/cli.ts";
import { ApprovalNeeded, Purser } from "../../packages/purser/src/index.ts";
import { asOwner, createAgent } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";
import { toolResult } from "../helpers/tool-result.ts";

t.test("approvals of paid URLs", async (t) => {
  const made = await market(t, { listen: true, agent: { allowlist: [] } });
  const { app, agent, owner, seller, baseUrl, database } = made;
  const url = seller.url;
  const approve = async (id: unknown) => {
    const answer = await asOwner(app, owner, {
      method: "POST",
      url: `/api/approvals/${String(id)}/approve`,
      body: {},
    });
    t.equal(answer.statusCode, 200, answer.body);
    return answer.json<Record<string, unknown>>();
  };
  const stateOf = async (id: unknown) =>
    (await database.pool.query("SELECT state FROM approvals WHERE id = $1", [id])).rows[0];
  const withApproval = { url, requestApproval: true, reason: "Needed for the report." };
  const key = (name: string) => ({ "idempotency-key": name });
  const paidTo = () => made.balanceOf(PAYEE);

  await t.test("requested with its site, approved, paid once with its data", async (t) => {
    seller.script = {};
    const requested = await made.fetch(withApproval, key("one"));
    t.match(requested, {
      status: 202,
      body: { payee: PAYEE, amount: "0.001", site: seller.origin, idempotencyKey: "one" },
    });
    const quote = await made.fetch({ url, dryRun: true });
    t.match(quote.body["verdict"], {
      allowed: false,
      rules: [{}, {}, { rule: "allowlist", passed: false, liftable: true }],
    });
    t.match(await approve(requested.body["approvalId"]), { site: seller.origin, url });
    t.match(
      (await made.fetch({ url, dryRun: true }, key("one"))).body["verdict"],
      { allowed: true, rules: [{}, {}, { passed: true, detail: /allows it once/ }] },
      "a dry run sees the approval, and does not use it",
    );
    const paid = await made.fetch(withApproval, key("one"));
    t.match(
      paid,
      { status: 200, body: { paid: true, data: { answer: 42 } } },
      JSON.stringify(paid.body),
    );
    t.match(await made.fetch(withApproval, key("one")), { status: 200, body: paid.body });
    t.equal(await paidTo(), 1000n);
    t.match(await stateOf(requested.body["approvalId"]), { state: "used" });
  });

  await t.test("an approved payment has the approval's nonce, not the route's", async (t) => {
    const required = {
      x402Version: 2,
      resource: { url: seller.url },
      accepts: [seller.entry()],
      extensions: { mppx: { info: { method: "GET", opaque: "e30" }, schema: {} } },
    } as unknown as PaymentRequired;
    seller.script = {
      onUnpaid: ({ response }) =>
        void response
          .writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) })
          .end("{}"),
    };
    const requested = await made.fetch(withApproval, key("bound"));
    t.equal(requested.status, 202, requested.text);
    await approve(requested.body["approvalId"]);
    const paid = await made.fetch(withApproval, key("bound"));
    t.match(paid, { status: 200, body: { paid: true } }, paid.text);
    t.same(
      (seller.proofs.at(-1) as { extensions?: unknown } | undefined)?.extensions,
      required.extensions,
      "so it claims no binding",
    );
  });

  await t.test("another price or payee needs another approval", async (t) => {
    const entry = seller.entry();
    const other = privateKeyToAccount(generatePrivateKey()).address;
    const before = await paidTo();
    for (const [name, over] of Object.entries({
      dearer: { amount: "2000" },
      elsewhere: { payTo: other },
    })) {
      seller.script = {};
      const requested = await made.fetch(withApproval, key(name));
      await approve(requested.body["approvalId"]);
      seller.script = { terms: () => ({ ...entry, ...over }) };
      const changed = await made.fetch(withApproval, key(name));
      t.equal(changed.status, 202, name);
      t.not(changed.body["approvalId"], requested.body["approvalId"]);
      t.match(await stateOf(requested.body["approvalId"]), { state: "expired" });
      t.match(await made.fetch({ url }, key(name)), {
        status: 403,
        body: { code: "recipient_not_allowed", approvable: true },
      });
    }
    t.equal(await paidTo(), before);
    t.equal(await made.balanceOf(other), 0n);
    seller.script = {};
    const cheap = await made.fetch(withApproval, key("cheaper"));
    await approve(cheap.body["approvalId"]);
    seller.script = { terms: () => ({ ...entry, amount: "400" }) };
    t.match(await made.fetch(withApproval, key("cheaper")), {
      status: 200,
      body: { amountPaid: "0.0004" },
    });
  });

  await t.test("a site's new payee and a payee bound to a site, for one payment", async (t) => {
    const bound = await createAgent(made, owner, {
      allowlist: [{ address: PAYEE, site: seller.origin }],
      fetch: "sites",
    });
    await made.chain.mint(bound.walletAddress, 1_000_000n);
    const other = privateKeyToAccount(generatePrivateKey()).address;
    const send = async (path: string, body: object, name: string) => {
      const answer = await app.inject({
        method: "POST",
        url: `/api/agents/${path}`,
        headers: { ...bound.headers, ...key(name) },
        payload: JSON.stringify({ ...body, requestApproval: true }),
      });
      return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
    };
    seller.script = { terms: () => ({ ...seller.entry(), payTo: other }) };
    const moved = await send("x402-fetch", { url }, "moved");
    t.match(moved, {
      status: 202,
      body: { payee: other, site: seller.origin, denial: { code: "site_payee_changed" } },
    });
    await approve(moved.body["approvalId"]);
    t.match(await send("x402-fetch", { url }, "moved"), { status: 200, body: { paid: true } });
    t.equal(await made.balanceOf(other), 1000n);
    const plain = await send("spend", { recipient: PAYEE, amount: "0.002" }, "plain");
    t.match(plain, {
      status: 202,
      body: { denial: { code: "payee_bound_to_site" }, site: null },
    });
    await approve(plain.body["approvalId"]);
    t.match(await send("spend", { recipient: PAYEE, amount: "0.002" }, "plain"), { status: 200 });
    t.match(await send("x402-fetch", { url: "http://127.0.0.1:9/" }, "out"), {
      status: 403,
      body: { code: "origin_not_allowed" },
    });
  });

  await t.test("a refusal that no approval can lift creates none", async (t) => {
    t.match(await made.fetch({ ...withApproval, url: "http://169.254.169.254/" }, key("no")), {
      status: 403,
      body: { code: "url_blocked" },
    });
    seller.script = {};
    t.match(await made.fetch({ ...withApproval, maxAmount: "0.0001" }, key("max")), {
      status: 403,
      body: { code: "price_exceeds_max" },
    });
  });

  const open = async (): Promise<string> => {
    let id = "";
    await until(async () => {
      const { rows } = await database.pool.query<{ id: string }>(
        "SELECT id FROM approvals WHERE state = 'open' AND expires_at > now() ORDER BY created_at DESC LIMIT 1",
      );
      id = rows[0]?.id ?? "";
      return id !== "";
    });
    return id;
  };
  const clear = () =>
    database.pool.query("UPDATE approvals SET state = 'declined' WHERE state = 'open'");

  await t.test("the client waits and pays; the command line prints the approval", async (t) => {
    await clear();
    const purser = new Purser({ apiKey: agent.apiKey, baseUrl });
    const recipient = privateKeyToAccount(generatePrivateKey()).address;
    const request = { recipient, amount: "0.01", requestApproval: true };
    const needed = await purser.spend(request).then(
      () => undefined,
      (error: unknown) => error,
    );
    t.ok(needed instanceof ApprovalNeeded);
    const waiting = purser.spend(request, { waitForApprovalMs: 30_000 });
    await approve(await open());
    t.match(await waiting, { success: true, amount: "0.01" });

    const lines: string[] = [];
    const env = { AGENT_API_KEY: agent.apiKey, PURSER_URL: baseUrl };
    const run = (...args: string[]) => main(args, env, (line) => lines.push(line));
    const pay = ["spend", recipient, "0.02", "--request-approval", "--reason", "Rent"];
    t.equal(await run(...pay), 5);
    const requested = JSON.parse(lines.at(-1) ?? "") as Record<string, string>;
    t.equal(await run("approval", requested["approvalId"] ?? "", "--wait", "0"), 0);
    await approve(requested["approvalId"]);
    t.equal(await run(...pay, "--idempotency-key", requested["idempotencyKey"] ?? ""), 0);
    t.equal(await made.balanceOf(recipient), 30_000n);
  });

  await t.test("a model requests, waits and repeats over MCP", async (t) => {
    const client = new Client({ name: "test", version: "1" });
    await client.connect(
      new StreamableHTTPClientTransport(new URL(`${baseUrl}/mcp`), {
        requestInit: { headers: { authorization: `Bearer ${agent.apiKey}` } },
      }),
    );
    t.teardown(() => client.close());
    const { tools } = await client.listTools();
    t.match(tools.find(({ name }) => name === "send_usdc")?.description, /request_approval once/);
    const call = async (name: string, args: Record<string, unknown>) =>
      toolResult(await client.callTool({ name, arguments: args })) as Record<string, string>;
    const recipient = privateKeyToAccount(generatePrivateKey()).address;
    const args = { recipient, amount: "0.03", requestApproval: true, reason: "Paper" };
    const requested = await call("send_usdc", args);
    t.match(requested, { status: "approval_required", idempotencyKey: /^approval-/ });
    t.match(await call("send_usdc", args), {
      approvalId: requested["approvalId"],
      idempotencyKey: requested["idempotencyKey"],
    });
    const waiting = call("wait_for_approval", { approvalId: requested["approvalId"] });
    await approve(requested["approvalId"]);
    t.match(await waiting, { status: "granted", idempotencyKey: requested["idempotencyKey"] });
    t.match(await call("send_usdc", { ...args, idempotencyKey: requested["idempotencyKey"] }), {
      success: true,
    });
    t.equal(await made.balanceOf(recipient), 30_000n);
  });
  await assertLedgerIsChain(t, made);
});
