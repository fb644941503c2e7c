// Goal: if any setting of a rule is edited in the database, custody signs nothing; an owner tightens each one without a
// wallet, the tighter value is in force at once, and the audit names it.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import {
  AGENT,
  AGENT_FIELDS,
  PAYEE,
  PAYEE_FIELDS,
  type Field,
} from "../../packages/rules/src/fields.ts";
import {
  REQUESTED_FORM,
  rulesOfPolicy,
  typedDataOf,
  type AgentPolicyOrder,
} from "../../server/core/orders.ts";
import { coverOf } from "../../server/core/rules.ts";
import { Custody } from "../../server/plugins/custody/custody.ts";
import { vaultHere } from "../../server/plugins/custody/wiring.ts";
import { verifyChain } from "../../server/plugins/audit/verify.ts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { rowsOf } from "./audit.helper.ts";
import { impossibleOf, sampleOf, sqlOf, tighterOf, widestOf } from "../helpers/settings.ts";

const service = await testApp(t);
const { app, chain } = service;
const sql = service.database.pool;
const owner = await signIn(service);
const site = "https://a.example";
const payee = privateKeyToAccount(generatePrivateKey()).address;

const sampled = (fields: readonly Field[]) =>
  Object.fromEntries(fields.map((field) => [field.name, sampleOf(field)]));

/** Signs with a process that has just started, and with the running one, which has cached the policy. */
async function sign(agent: NewTestAgent) {
  const alarmed: string[] = [];
  const fresh = new Custody({
    vault: vaultHere(app, { trustsCaller: true }),
    alarm: ({ error }) => void alarmed.push(error.message),
  });
  const authorization = {
    chainId: chain.chainId,
    asset: chain.usdc,
    from: agent.walletAddress,
    to: payee,
    value: 1n,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + 100),
    nonce: `0x${randomBytes(32).toString("hex")}` as const,
  };
  const codes = await Promise.all(
    [fresh, app.custody].map((custody) =>
      custody.signAuthorization(agent.id, authorization, { kind: "policy", site }).then(
        () => "signed",
        (error: Error & { code?: string }) => error.code ?? error.message,
      ),
    ),
  );
  return { codes, alarms: alarmed.length };
}
const SIGNED = { codes: ["signed", "signed"], alarms: 0 };
const REFUSED = { codes: ["policy_not_signed", "policy_not_signed"], alarms: 1 };

/** Edits a column with the rights of the database's owner. */
async function edited(
  t: Test,
  { table, agentId, column, value }: Record<"table" | "agentId" | "column" | "value", string>,
  work: () => Promise<void>,
): Promise<void> {
  const key = table === "agents" ? "id" : "agent_id";
  const client = await sql.connect();
  try {
    await client.query(
      `CREATE TEMP TABLE kept AS SELECT ${column} AS value FROM ${table} WHERE ${key} = $1`,
      [agentId],
    );
    const { rowCount } = await client.query(
      `UPDATE ${table} SET ${column} = ${value} WHERE ${key} = $1`,
      [agentId],
    );
    t.equal(rowCount, 1);
    await work();
    await client.query(`UPDATE ${table} SET ${column} = kept.value FROM kept WHERE ${key} = $1`, [
      agentId,
    ]);
    await client.query("DROP TABLE kept");
  } finally {
    client.release();
  }
}

const TABLES = [
  { of: "agent", table: "agents", fields: AGENT_FIELDS },
  { of: "payee", table: "allowlist_entries", fields: PAYEE_FIELDS },
] as const;

t.test("a column that was edited is not paid by", async (t) => {
  const agent = await createAgent(service, owner, {
    ...sampled(AGENT_FIELDS),
    allowlist: [{ address: payee, site, ...sampled(PAYEE_FIELDS) }],
  });
  t.same(await sign(agent), SIGNED);
  for (const { of, table, fields } of TABLES)
    for (const field of fields) {
      const { column, name } = field;
      const edits = { wider: widestOf(field), tighter: tighterOf(field) };
      for (const [what, wire] of Object.entries(edits)) {
        if (wire === sampleOf(field)) continue;
        const value = sqlOf(field, wire);
        await edited(t, { table, agentId: agent.id, column, value }, async () => {
          t.same(await sign(agent), REFUSED, `${of}'s ${name}: ${what}`);
        });
      }
      t.same(await sign(agent), SIGNED, "restored");
      const value = impossibleOf(field);
      // Columns of times have no CHECK: custody reads an infinite time as one that nobody signed.
      if (field.kind.column === "timestamp")
        await edited(t, { table, agentId: agent.id, column, value }, async () => {
          t.same(await sign(agent), REFUSED, `${of}'s ${name}: impossible`);
        });
      else
        await t.rejects(
          sql.query(`UPDATE ${table} SET ${column} = ${value}`),
          { code: "23514" },
          `a CHECK holds ${of}'s ${name}`,
        );
    }
});

t.test("each setting is tightened without a wallet, in force and in the audit", async (t) => {
  for (const { of, table, fields } of TABLES)
    for (const field of fields) {
      const { column, name } = field;
      // Only a value above the sample can be tightened to it.
      const wide = { [name]: widestOf(field) };
      const agent = await createAgent(service, owner, {
        dailyLimit: "20",
        ...(of === "agent" && wide),
        allowlist: [{ address: payee, site, ...(of === "payee" && wide) }],
      });
      const url = `/api/agents/${agent.id}`;
      const tight = { [name]: sampleOf(field) };
      const send = (by: { headers: Record<string, string> }) =>
        callApi(
          app,
          by,
          of === "agent" ? "PATCH" : "POST",
          of === "agent" ? url : `${url}/allowlist`,
          of === "agent" ? tight : { address: payee, site, ...tight },
        );
      const answer = await send(owner);
      t.equal(answer.statusCode, of === "agent" ? 200 : 201, `${of}'s ${name}: ${answer.body}`);
      const shown = (await app.inject({ url, headers: owner.headers })).json<{
        allowlist: object[];
      }>();
      t.match(of === "agent" ? shown : shown.allowlist[0], tight, "it is shown");
      t.same(await sign(agent), SIGNED, "it is sealed");
      const audit = await app.inject({ url: `${url}/audit`, headers: owner.headers });
      const [entry] = audit.json<{ items: { before: object; after: object }[] }>().items;
      t.match(entry, { before: wide, after: tight }, "the audit names it");
      const value = sqlOf(field, widestOf(field));
      await edited(t, { table, agentId: agent.id, column, value }, async () => {
        t.same(await sign(agent), REFUSED, "the earlier value is not in force any more");
      });
      const loosened = await callApi(app, owner, "PATCH", url, { dailyLimit: "1000001" });
      t.match(loosened.json(), { code: "owner_signature_required" });
    }
});

const policyOf = async (agentId: string) => {
  const { rows } = await sql.query<{ document: AgentPolicyOrder; rules_version: number }>(
    `SELECT o.document, w.rules_version FROM owner_orders o JOIN agent_wallets w USING (agent_id)
      WHERE agent_id = $1 AND kind = 'AgentPolicy' ORDER BY version DESC LIMIT 1`,
    [agentId],
  );
  if (!rows[0]) throw new Error("no policy");
  return rows[0];
};

t.test("channels: none by default, more by a document of version 2, less at once", async (t) => {
  const plain = await createAgent(service, owner, { allowlist: [{ address: payee, site }] });
  const { document: first, rules_version } = await policyOf(plain.id);
  t.equal(rules_version, 1);
  t.notOk("documentVersion" in first, "an agent without channels keeps version 1");
  const read = async (id: string) =>
    (await app.inject({ url: `/api/agents/${id}`, headers: owner.headers })).json<object>();
  t.match(await read(plain.id), {
    channelHeld: "0",
    channelDelay: 86_400,
    allowlist: [{ channelHeld: null }],
  });
  const deposit = (depositAtomic: bigint, withdrawDelaySeconds = 900n) =>
    ({
      payee,
      site,
      valueAtomic: 1n,
      nowSeconds: 0n,
      depositAtomic,
      withdrawDelaySeconds,
    }) as const;
  t.match(coverOf(rulesOfPolicy(first))(deposit(0n)), { covered: false, why: /signed|sign for/ });

  const body = {
    name: "a",
    dailyLimit: "10",
    channelHeld: "5",
    channelDelay: 604_800,
    allowlist: [{ address: payee, site, channelHeld: "2" }],
  };
  const asked = await callApi(app, owner, "POST", "/api/agents", body);
  const { order } = asked.json<{ order: AgentPolicyOrder }>();
  t.match(asked.json(), {
    code: "owner_signature_required",
    order: {
      channelHeld: "5000000",
      channelDelay: "604800",
      documentVersion: "2",
      payees: [{ channelHeld: "2000000" }],
    },
    typedData: {
      types: typedDataOf("AgentPolicy", order, 1, REQUESTED_FORM).types,
    },
  });
  const agent = await createAgent(service, owner, body);
  const { document, rules_version: version } = await policyOf(agent.id);
  t.equal(version, 2);
  t.match(document, { documentVersion: "2", channelHeld: "5000000" });
  t.same(await sign(agent), SIGNED, "custody verifies it");
  const cover = coverOf(rulesOfPolicy(document));
  t.same(cover(deposit(2_000_000n, 604_800n)), { covered: true });
  t.match(cover(deposit(2_000_001n)), { why: PAYEE.channelHeld.refusal });
  t.match(cover(deposit(5_000_001n)), { why: AGENT.channelHeld.refusal });
  t.match(cover(deposit(0n, 604_801n)), { why: AGENT.channelDelay.refusal });
  t.same(await sign(agent), SIGNED);

  const url = `/api/agents/${agent.id}`;
  const listed = (channelHeld: string | null) => ({ address: payee, site, channelHeld });
  const patch = (change: object) => callApi(app, owner, "PATCH", url, change);
  const post = (change: object) => callApi(app, owner, "POST", `${url}/allowlist`, change);
  for (const loosened of [
    await patch({ channelHeld: "5.000001" }),
    await patch({ channelDelay: 604_801 }),
    await post(listed("2.000001")),
    await post(listed(null)),
  ])
    t.match(loosened.json(), { code: "owner_signature_required" });
  const lowered = await patch({ channelHeld: "1.5", channelDelay: 3_600 });
  t.match(lowered.json(), { channelHeld: "1.5", channelDelay: 3_600 });
  t.equal((await post(listed("0"))).statusCode, 201);
  t.match(await read(agent.id), { channelHeld: "1.5", allowlist: [{ channelHeld: "0" }] });
  const self = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(self.json(), { channelHeld: "1.5", channelDelay: 3_600 }, "the agent reads it");
  t.same(await sign(agent), SIGNED, "custody sealed it");
  for (const [table, column, value] of [
    ["agents", "channel_held", "5000000"],
    ["agents", "channel_delay", "604800"],
    ["allowlist_entries", "channel_held", "2000000"],
  ] as const)
    await edited(t, { table, agentId: agent.id, column, value }, async () => {
      t.same(await sign(agent), REFUSED, `what was signed before is not in force: ${column}`);
    });
  const raised = await asOwner(app, owner, { method: "PATCH", url, body: { channelHeld: "2" } });
  t.match(raised.json(), { channelHeld: "2", channelDelay: 3_600 });
  t.match((await policyOf(agent.id)).document, {
    channelHeld: "2000000",
    channelDelay: "3600",
    payees: [{ channelHeld: "0" }],
  });
  t.same(await sign(agent), SIGNED);
  const wrong = [
    { channelHeld: "-1" },
    { channelHeld: null },
    { channelDelay: 899 },
    { channelDelay: 2_592_001 },
    { channelDelay: 1_000.5 },
    { channelDelay: null },
  ];
  for (const change of wrong)
    t.equal((await patch(change)).statusCode, 422, JSON.stringify(change));
});

t.test("an owner reads why a channel was refused, and what to sign", async (t) => {
  const agent = await createAgent(service, owner, { allowlist: [{ address: payee, site }] });
  const facts = {
    status: "active",
    expired: false,
    refusal: null,
    allowed: true,
    maxAmount: null,
    requested: "1000",
    price: "2000",
    perPaymentLimit: null,
    limit: "10000000",
    spent: "0",
    reserved: "0",
    balance: "10",
    outstanding: "0",
    channelDeposit: "20000",
    channelHeld: "5",
    channelLimit: "0",
    channelDelay: "604800",
    channelLongestDelay: "86400",
  };
  await sql.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, denial_code, policy)
     VALUES ($1, 'pay_channel', 'x402', 'blocked', $2, $3, $4, 1000, 'channel_not_allowed', $5)`,
    [agent.id, chain.chainId, chain.usdc.toLowerCase(), payee.toLowerCase(), facts],
  );
  const url = `/api/agents/${agent.id}/payments`;
  const shown = await app.inject({ url, headers: owner.headers });
  const [payment] = shown.json<{ items: { trace: object[] }[] }>().items;
  t.match(payment, {
    denial: {
      code: "channel_not_allowed",
      suggestion: /sign `channelHeld`/,
      policy: {
        rule: "channels",
        window: "held",
        limit: "0",
        spent: "0.000005",
        reserved: "0",
        remaining: "0",
        requested: "0.02",
      },
      needs: { channelHeld: "0.020005", channelDelay: 604_800 },
    },
  });
  t.notOk(
    payment?.trace.some((verdict) => "liftable" in verdict),
    "an approval does not lift it",
  );
  const info = await app.inject({ url: "/api/info" });
  t.match(
    info.json<{ rules: { name: string }[] }>().rules.find(({ name }) => name === "channels"),
    {
      field: { name: "channelHeld" },
      otherFields: [{ name: "channelDelay" }, { name: "channelHeld", of: "payee" }],
    },
  );
});

t.test("the audit of all this is valid", async (t) => {
  const exported = await app.inject({ url: "/api/audit/export", headers: owner.headers });
  t.match(await verifyChain(rowsOf(exported.body)), { ok: true });
});
