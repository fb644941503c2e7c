// Goal: an owner who set up neither a webhook nor an e-mail address nor a device still finds everything that happened, with the
// number of what is unread; payments as usual do not hide it; and nobody can fill the table or read for another owner.
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
  failing: Json[];
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
    "refusals, requests, limits and withdrawals are unread; a payment is listed as read",
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
      const paid = (await read("?type=payment.settled")).items;
      t.match(
        paid,
        [{ readAt: /Z$/ }, { readAt: /Z$/, title: "research-agent paid 1.50 USDC" }],
        "both are listed, and neither hides what needs the owner",
      );
      for (const { path, subjectId } of paid)
        t.equal(path, `/agents/${agent.id}?payment=${subjectId as string}`);
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

  await t.test("one agent, one type, or both; and a page stays where it was", async (t) => {
    const other = await createAgent(made, owner, { name: "other", dailyLimit: "1", allowlist: [] });
    const of = async (query: string) =>
      (await read(query)).items.map(({ agentId, type }) => `${String(agentId)} ${String(type)}`);
    t.same((await of(`?agentId=${other.id}`)).sort(), [
      `${other.id} key.created`,
      `${other.id} policy.changed`,
    ]);
    t.same(await of(`?agentId=${other.id}&type=key.created`), [`${other.id} key.created`]);
    t.same(await of(`?agentId=${other.id}&unread=true`), []);
    const stranger = await signIn(made);
    t.same((await read(`?agentId=${agent.id}`, stranger)).items, []);
    const whole = (await read(`?limit=100`)).items.map(({ id }) => id);
    const first = await read("?limit=2");
    await callApi(app, owner, "PATCH", `/api/agents/${other.id}`, { status: "paused" });
    const second = await read(`?limit=2&cursor=${String(first.nextCursor)}`);
    t.same(
      [...first.items, ...second.items].map(({ id }) => id),
      whole.slice(0, 4),
      "although a row was added between the pages",
    );
  });

  await t.test("marked up to a time, what came later stays unread", async (t) => {
    t.equal((await refuse("0.21")).statusCode, 403);
    const seen = (await read("?limit=1")).items[0]?.["at"] as string;
    await database.pool.query("SELECT pg_sleep(0.002)");
    t.equal((await refuse("0.22")).statusCode, 403);
    t.same(await mark({ before: seen }), { unread: 1 });
    t.match((await read("?unread=true")).items, [{ title: /0\.22 USDC/ }]);
    t.match(
      (await callApi(app, owner, "POST", "/api/notifications/read", { before: "soon" })).json(),
      { code: "validation_failed" },
    );
    const foreign = await app.inject({
      method: "POST",
      url: "/api/notifications/read",
      headers: { ...owner.headers, origin: "https://evil.example" },
      payload: "{}",
    });
    t.equal(foreign.statusCode, 403, "another site's page cannot mark anything");
    t.same(await mark({}), { unread: 0 });
  });

  await t.test(
    "an unread notification is an event of the live stream, a read one is not",
    async (t) => {
      const events = async (): Promise<string[]> => {
        const { rows } = await database.pool.query(
          "SELECT e.type FROM events e JOIN agents a ON a.owner_id = e.owner_id WHERE a.id = $1 AND e.type = 'notification'",
          [agent.id],
        );
        return rows.map(({ type }) => type as string);
      };
      const before = (await events()).length;
      await database.pool.query(
        `SELECT purser_notify(owner_id, 'payment.settled', id, 'pay_1', '{"amount": "1"}') FROM agents WHERE id = $1`,
        [agent.id],
      );
      t.equal((await events()).length, before);
      await database.pool.query(
        `SELECT purser_notify(owner_id, 'listing.flagged', NULL, 'lst_1', '{}') FROM agents WHERE id = $1`,
        [agent.id],
      );
      t.equal((await events()).length, before + 1);
      await mark({});
    },
  );

  await t.test("a webhook and a mail that fail are named until they work again", async (t) => {
    t.same((await read()).failing, []);
    await database.pool.query(
      `WITH me AS (SELECT owner_id FROM agents WHERE id = $1),
       hook AS (
         INSERT INTO webhooks (id, owner_id, url, types, secret, secret_kid, secret_hint, failures, failing_since)
         SELECT 'whk_00000000000000000000000001', owner_id, 'https://hooks.example/x', '{listing.flagged}', '', 'test', '', 2, now()
           FROM me),
       delivery AS (
         INSERT INTO webhook_deliveries (owner_id, id, webhook_id, notification_id, type, status, last_error, next_attempt_at)
         SELECT owner_id, 'dlv_00000000000000000000000001', 'whk_00000000000000000000000001', 'ntf_x', 'listing.flagged',
                'failed', 'The server returned 500', 'infinity' FROM me),
       address AS (
         INSERT INTO email_addresses (owner_id, address, confirmed_at, digest, urgent, next_digest_at)
         SELECT owner_id, 'owner@mail.example', now(), 'off', '{}', 'infinity' FROM me)
       INSERT INTO mails (id, owner_id, address, kind, content, last_error, next_attempt_at)
       SELECT 'eml_00000000000000000000000001', owner_id, 'owner@mail.example', 'urgent', '{}', 'Connection refused', 'infinity'
         FROM me`,
      [agent.id],
    );
    t.match((await read("?limit=1")).failing, [
      {
        channel: "webhook",
        id: "whk_00000000000000000000000001",
        name: "https://hooks.example/x",
        since: /Z$/,
        error: "The server returned 500",
      },
      { channel: "email", id: null, name: "owner@mail.example", error: "Connection refused" },
    ]);
    t.same((await read("", await signIn(made))).failing, [], "only their owner's");
    await database.pool.query("UPDATE webhooks SET failures = 0, failing_since = NULL");
    await database.pool.query("UPDATE mails SET last_error = NULL");
    t.same((await read()).failing, []);
    await database.pool.query(
      "UPDATE email_addresses SET stopped_at = now(), stopped_reason = 'refused', last_error = 'No such mailbox'",
    );
    t.match((await read()).failing, [{ channel: "email", error: "No such mailbox" }]);
    await database.pool.query("DELETE FROM email_addresses");
    await database.pool.query("DELETE FROM webhooks");
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
    t.equal(rows[0].count, 200);
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
