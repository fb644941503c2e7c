// Goal: if any setting of a rule is edited in the database, custody signs nothing; an owner tightens each one without a
// wallet, the tighter value is in force at once, and the audit names it.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { AGENT_FIELDS, PAYEE_FIELDS, type Field } from "../../packages/rules/src/fields.ts";
import { Custody } from "../../server/plugins/custody/custody.ts";
import { vaultHere } from "../../server/plugins/custody/wiring.ts";
import { verifyChain } from "../../server/plugins/audit/verify.ts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
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
      const agent = await createAgent(service, owner, {
        dailyLimit: "20",
        allowlist: [{ address: payee, site }],
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
      const unset = field.required === true ? "20" : field.kind.wire(field.kind.unset);
      t.match(entry, { before: { [name]: unset }, after: tight }, "the audit names it");
      const value = sqlOf(field, widestOf(field));
      await edited(t, { table, agentId: agent.id, column, value }, async () => {
        t.same(await sign(agent), REFUSED, "the earlier value is not in force any more");
      });
      const loosened = await callApi(app, owner, "PATCH", url, { dailyLimit: "21" });
      t.match(loosened.json(), { code: "owner_signature_required" });
    }
});

t.test("the audit of all this is valid", async (t) => {
  const exported = await app.inject({ url: "/api/audit/export", headers: owner.headers });
  t.match(await verifyChain(rowsOf(exported.body)), { ok: true });
});
