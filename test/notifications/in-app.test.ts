// Goal: an owner who set up neither a webhook nor an e-mail address still finds what happened, with the number of what is
// unread; payments as usual cost no row; and nobody can fill the table or read for another owner.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import type { Json } from "./world.ts";

interface Page {
  items: Json[];
  unread: number;
  nextCursor: string | null;
}

t.test("notifications without a receiver", async (t) => {
  const made = await testApp(t);
  const { app, chain, database } = made;
  const owner = await signIn(made);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(made, owner, {
    name: "research-agent",
    dailyLimit: "2",
    allowlist: [payee],
  });
  await chain.mint(agent.walletAddress, 5_000_000n);
  const readChain = async (): Promise<void> => {
    while (await app.reconciliation.read(chain.chainId));
  };
  await readChain();
  const read = async (query = "", by = owner): Promise<Page> =>
    (await callApi(app, by, "GET", `/api/notifications${query}`)).json<Page>();
  const types = async (query = "") => (await read(query)).items.map(({ type }) => type);
  const mark = async (body: Json, by = owner) =>
    (await callApi(app, by, "POST", "/api/notifications/read", body)).json<{ unread: number }>();
  const refuse = (amount = "1", more: Json = {}) =>
    spendAs(app, agent, {
      recipient: privateKeyToAccount(generatePrivateKey()).address,
      amount,
      ...more,
    });

  await t.test("what the owner did is listed and read from the start", async (t) => {
    const { items, unread } = await read();
    t.same(
      items.map(({ type }) => String(type)).sort(),
      ["key.created", "policy.changed", "session.created"],
      "the first sign-in, and the creation of an agent",
    );
    for (const item of items) t.match(item, { readAt: /Z$/, at: item["createdAt"] as string });
    t.equal(unread, 0);
    t.same(await types("?unread=true"), []);
  });

  await t.test(
    "refusals, requests, limits and withdrawals are unread; a payment is not listed",
    async (t) => {
      t.equal((await spendAs(app, agent, { recipient: payee, amount: "1.5" })).statusCode, 200);
      t.equal((await spendAs(app, agent, { recipient: payee, amount: "0.3" })).statusCode, 200);
      t.equal((await refuse("1.25")).statusCode, 403);
      t.equal(
        (await refuse("0.4", { requestApproval: true, reason: "It is new" })).statusCode,
        202,
      );
      const prepared = await asOwner(app, owner, {
        method: "POST",
        url: `/api/agents/${agent.id}/withdrawals/prepare`,
        body: { amount: "1" },
      });
      const { order, typedData } = prepared.json<{ order: Json; typedData: never }>();
      const signature = await owner.account.signTypedData(typedData);
      const url = `/api/agents/${agent.id}/withdrawals`;
      t.equal((await callApi(app, owner, "POST", url, { order, signature })).statusCode, 200);
      const { items, unread } = await read("?unread=true");
      t.same(items.map(({ type }) => String(type)).sort(), [
        "agent.limit_reached",
        "approval.requested",
        "payment.blocked",
        "payment.blocked",
        "withdrawal.settled",
      ]);
      t.equal(unread, 5);
      t.notOk((await types()).includes("payment.settled"), "the agent's activity has it");
      const of = (type: string) => items.find((item) => item["type"] === type);
      t.match(of("approval.requested"), {
        agentId: agent.id,
        title: "research-agent requests approval for 0.40 USDC",
        detail: /^To: 0x[0-9a-f]{40} · Open until: 2/,
        readAt: null,
        data: { thirdParty: { reason: "It is new" } },
      });
      t.notMatch(JSON.stringify(items.map(({ title, detail }) => [title, detail])), "It is new");
      t.match(of("agent.limit_reached"), {
        title: "research-agent has used 80 % of its daily limit of 2.00 USDC",
      });
    },
  );

  await t.test("a stop by somebody else than the owner's wallet is unread", async (t) => {
    await database.pool.query(
      `SELECT purser_notify(owner_id, 'policy.changed', id, id,
         jsonb_build_object('agentId', id, 'change', 'agent.paused', 'by', '0x' || repeat('1', 40))) FROM agents WHERE id = $1`,
      [agent.id],
    );
    t.match((await read("?unread=true")).items[0], { title: "research-agent was paused" });
    await callApi(app, owner, "PATCH", `/api/agents/${agent.id}`, { status: "paused" });
    const [own] = (await read("?type=policy.changed")).items;
    t.match(own, { title: "research-agent was paused", readAt: /Z$/ }, "her own is not");
  });

  await t.test("some are marked as read, then all; never another owner's", async (t) => {
    const before = await read("?unread=true");
    const [first] = before.items;
    const stranger = await signIn(made);
    t.same(await mark({ ids: [first?.["id"]] }, stranger), { unread: 0 });
    t.same(await mark({}, stranger), { unread: 0 });
    t.equal((await read()).unread, before.unread, "unchanged");
    t.same(await mark({ ids: [first?.["id"]] }), { unread: before.unread - 1 });
    t.notOk((await read("?unread=true")).items.some(({ id }) => id === first?.["id"]));
    t.ok((await read("?unread=false")).items.some(({ id }) => id === first?.["id"]));
    t.same(await mark({}), { unread: 0 });
    t.same(await types("?unread=true"), []);
    const page = await read("?limit=1");
    t.equal(page.items.length, 1);
    t.ok(page.nextCursor, "the list still has pages");
    t.equal(
      (await callApi(app, owner, "POST", "/api/notifications/read", { ids: [] })).statusCode,
      422,
    );
  });

  await t.test(
    "a sign-in from a new device is unread, one from a known device is not",
    async (t) => {
      await signIn(made, owner.account);
      t.equal((await read()).unread, 0);
      await database.pool.query("UPDATE sessions SET user_agent = 'another browser'");
      await signIn(made, owner.account);
      t.same(await types("?unread=true"), ["session.created"]);
    },
  );

  await t.test("a sign-in is news although the older sessions were deleted", async (t) => {
    const before = await signIn(made);
    await database.pool.query(
      `WITH old AS (UPDATE owners SET created_at = now() - interval '1 day' WHERE address = $1 RETURNING id)
       DELETE FROM sessions WHERE owner_id IN (SELECT id FROM old)`,
      [before.account.address.toLowerCase()],
    );
    const after = await signIn(made, before.account);
    t.equal((await read("", after)).unread, 1);
  });

  await t.test("money that arrives is listed, and hides nothing", async (t) => {
    const { unread } = await read();
    await database.pool.query(
      `SELECT purser_notify(owner_id, 'agent.funded', id, 'pay_dust', '{"amount": "0.000001"}') FROM agents WHERE id = $1`,
      [agent.id],
    );
    const page = await read("?type=agent.funded");
    t.match(page.items, [{ readAt: /Z$/ }]);
    t.equal(page.unread, unread);
  });

  await t.test("a key's end and a request's end have words of their own", async (t) => {
    await database.pool.query(
      `SELECT purser_notify(owner_id, 'key.created', id, 'key_1', '{"expiresAt": "2030-01-01T00:00:00.000Z"}') FROM agents
        WHERE id = $1`,
      [agent.id],
    );
    const [created] = (await read("?type=key.created")).items;
    t.match(created, { detail: "Valid until: 2030-01-01T00:00:00.000Z" });
  });

  await t.test("failed, and settled after all: both owners read it", async (t) => {
    const merchant = await signIn(made);
    const recipient = merchant.account.address;
    const payer = await signIn(made);
    const other = await createAgent(made, payer, { dailyLimit: "2", allowlist: [recipient] });
    await chain.mint(other.walletAddress, 2_000_000n);
    const paid = await spendAs(app, other, { recipient, amount: "1" });
    const { paymentId } = paid.json<{ paymentId: string }>();
    const { rows } = await database.pool.query(
      "SELECT from_address AS from, asset, nonce, proof FROM settlements WHERE id = $1",
      [paymentId],
    );
    const [{ proof, ...key }] = rows;
    const refusal = { kind: "refusal", block: "1", blockHash: `0x${"1".repeat(64)}` };
    // In one transaction: between two, the engine would settle it by itself.
    const client = await database.pool.connect();
    t.teardown(() => client.release());
    await client.query("BEGIN");
    for (const outcome of [
      { status: "open", proof },
      { status: "failed", proof: refusal, reason: "transaction_failed", message: "No." },
      { status: "settled", proof },
    ])
      await client.query("SELECT purser_settlements_finalize($1, $2)", [
        chain.chainId,
        JSON.stringify([{ ...key, isFinal: true, ...outcome }]),
      ]);
    await client.query("COMMIT");
    for (const [by, kind] of [
      [payer, "payment"],
      [merchant, "settlement"],
    ] as const) {
      const { items } = await read("?unread=true", by);
      t.same(items.map(({ type }) => String(type)).sort(), [`${kind}.failed`, `${kind}.settled`]);
      for (const { data } of items) t.match(data, { corrected: true });
    }
  });

  await t.test("an agent that is refused all the time cannot fill the table", async (t) => {
    await database.pool.query(
      `SELECT purser_notify(owner_id, 'payment.blocked', id, 'pay_' || n, '{}') FROM agents, generate_series(1, 300) n
        WHERE id = $1`,
      [agent.id],
    );
    const { rows } = await database.pool.query(
      "SELECT count(*)::int AS count FROM notifications WHERE type = 'payment.blocked'",
    );
    t.equal(rows[0].count, 50);
  });

  await t.test("a low balance is listed too", async (t) => {
    t.notOk((await types()).includes("agent.low_balance"));
    await database.pool.query("UPDATE agents SET daily_limit = 100000000 WHERE id = $1", [
      agent.id,
    ]);
    await chain.mint(agent.walletAddress, 1_000n);
    await readChain();
    t.match((await read("?unread=true")).items[0], {
      type: "agent.low_balance",
      title: /^research-agent has only \d\.\d+ USDC left$/,
    });
  });
});
