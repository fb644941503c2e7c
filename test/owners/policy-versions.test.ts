// Goal: a setting that a release adds leaves every policy that was signed before valid; one that uses it is as safe as
// any other; and a release that does not know it refuses such an agent by name, with nothing signed.
// Own process (it adds a setting to the table of rules).
import { randomBytes } from "node:crypto";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { halt, HALT_COLUMN, policyOf, signPolicy } from "../helpers/newer-setting.ts";
import { AGENT_FIELDS } from "../../packages/rules/src/fields.ts";
import { readOrder, rulesOfPolicy, typedDataOf, REQUESTED_FORM } from "../../server/core/orders.ts";
import { rulesDigest } from "../../server/core/rules.ts";
import { verifyChain } from "../../server/plugins/audit/verify.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { rowsOf } from "./audit.helper.ts";

// These build their statements and schemas from the table of settings when they are loaded, so they come after it.
const { Custody } = await import("../../server/plugins/custody/custody.ts");
const { sentRules } = await import("../../server/plugins/custody/vault-calls.ts");
const { vaultHere } = await import("../../server/plugins/custody/wiring.ts");
const { testApp } = await import("../helpers/app.ts");

const database = await testDatabase(t);
await database.pool.query(HALT_COLUMN);
const service = await testApp(t, { database });
const { app, chain } = service;
const sql = database.pool;
const owner = await signIn(service);
const payee = privateKeyToAccount(generatePrivateKey()).address;

const made = async () => {
  const agent = await createAgent(service, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 10n ** 7n);
  return agent;
};

/** Signs with a process that has just started, and with the running one. */
async function codesOf(agent: NewTestAgent, value = 1_000n): Promise<string[]> {
  const fresh = new Custody({
    vault: vaultHere(app, { trustsCaller: true }),
    alarm: () => undefined,
  });
  const authorization = {
    chainId: chain.chainId,
    asset: chain.usdc,
    from: agent.walletAddress,
    to: payee,
    value,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + 100),
    nonce: `0x${randomBytes(32).toString("hex")}` as const,
  };
  return Promise.all(
    [fresh, app.custody].map((custody) =>
      custody.signAuthorization(agent.id, authorization, { kind: "policy" }).then(
        () => "signed",
        (error: Error & { code?: string }) => error.code ?? error.message,
      ),
    ),
  );
}
const both = (code: string) => [code, code];

const rulesVersionOf = async (agentId: string) => {
  const { rows } = await sql.query<{ rules_version: number }>(
    "SELECT rules_version FROM agent_wallets WHERE agent_id = $1",
    [agentId],
  );
  return rows[0]?.rules_version;
};

const before = await made();
const user = await made();

t.test("an agent that does not use the setting keeps its document of version 1", async (t) => {
  const { document } = await policyOf(database, before.id);
  t.notOk("documentVersion" in document || "halt" in document);
  const { types } = typedDataOf("AgentPolicy", document, 1, REQUESTED_FORM);
  t.notOk(JSON.stringify(types).includes("halt"), "the wallet signs the struct of version 1");
  t.equal(await rulesVersionOf(before.id), 1);
  t.same(await codesOf(before), both("signed"));
  const raised = await asOwner(app, owner, {
    method: "PATCH",
    url: `/api/agents/${before.id}`,
    body: { dailyLimit: "11" },
  });
  t.equal(raised.statusCode, 200, raised.body);
  t.notOk("documentVersion" in (await policyOf(database, before.id)).document, "signed again");
  t.same(await codesOf(before), both("signed"));
});

t.test("its column counts as signed: not set", async (t) => {
  await sql.query("UPDATE agents SET halt = 'large' WHERE id = $1", [before.id]);
  t.same(await codesOf(before), both("policy_not_signed"));
  await sql.query("UPDATE agents SET halt = NULL WHERE id = $1", [before.id]);
  t.same(await codesOf(before), both("signed"));
});

t.test("an agent that uses it has a document of its version, which custody checks", async (t) => {
  await signPolicy(service, owner.account, user, "large");
  const { document } = await policyOf(database, user.id);
  t.match(document, { halt: "large", documentVersion: String(halt.since) });
  t.equal(await rulesVersionOf(user.id), halt.since);
  t.same(await codesOf(user), both("signed"));
  t.same(
    await codesOf(user, 1_001n),
    both("service_unavailable"),
    "custody refuses by the setting",
  );
  for (const value of ["NULL", "'all'"]) {
    await sql.query(`UPDATE agents SET halt = ${value} WHERE id = $1`, [user.id]);
    t.same(await codesOf(user), both("policy_not_signed"), value);
  }
  await sql.query("UPDATE agents SET halt = 'large' WHERE id = $1", [user.id]);
  // Without the member that names the version, the document is another one.
  const { documentVersion: _version, ...older } = document;
  for (const changed of [older, { ...document, halt: "" }, { ...document, documentVersion: "1" }]) {
    await sql.query("UPDATE owner_orders SET document = $2 WHERE document->>'nonce' = $1", [
      document.nonce,
      changed,
    ]);
    t.equal((await codesOf(user))[0], "policy_not_signed");
  }
  await sql.query("UPDATE owner_orders SET document = $2 WHERE document->>'nonce' = $1", [
    document.nonce,
    document,
  ]);
  t.same(await codesOf(user), both("signed"));
  t.equal(readOrder("AgentPolicy", { ...document, documentVersion: "02" }), undefined);
});

t.test("the audit of both is valid", async (t) => {
  const exported = await app.inject({ url: "/api/audit/export", headers: owner.headers });
  t.match(await verifyChain(rowsOf(exported.body)), { ok: true });
});

t.test("rules of version 1 have the seal that they had before", async (t) => {
  const { document } = await policyOf(database, before.id);
  const rules = { ...rulesOfPolicy(document), status: "active" as const };
  const place = AGENT_FIELDS.indexOf(halt);
  AGENT_FIELDS.splice(place, 1);
  const { halt: _halt, ...known } = rules as typeof rules & { halt: unknown };
  const then = rulesDigest(known);
  AGENT_FIELDS.push(halt);
  t.equal(rulesDigest(rules), then);
  t.not(rulesDigest({ ...rules, halt: "large" } as typeof rules), then);
});

t.test("the custody process before gets the setting only where it is used", async (t) => {
  const { document } = await policyOf(database, before.id);
  const rules = { ...rulesOfPolicy(document), status: "active" as const };
  const used = { ...rules, halt: "large" } as typeof rules;
  t.notOk("halt" in sentRules(rules));
  t.match(sentRules(used), { halt: "large" });
  t.equal(rulesDigest(sentRules(rules)), rulesDigest(rules));
  t.equal(rulesDigest(sentRules(used)), rulesDigest(used));
});

t.test("a release without the setting refuses by name, with nothing signed", async (t) => {
  // What a newer release leaves: the version of the rules, and of the document if the owner signed it.
  const rulesNeed = (version: number) =>
    sql.query("UPDATE agent_wallets SET rules_version = $2 WHERE agent_id = $1", [
      user.id,
      version,
    ]);
  const { document } = await policyOf(database, user.id);
  const unknown = "policy_version_unknown";
  await rulesNeed(halt.since + 1);
  t.same(await codesOf(user), both(unknown), "the rules");
  await rulesNeed(halt.since);
  await sql.query("UPDATE owner_orders SET document = $2 WHERE document->>'nonce' = $1", [
    document.nonce,
    { ...document, documentVersion: String(halt.since + 1), newer: "1" },
  ]);
  t.equal((await codesOf(user))[0], unknown, "the document");
  await rulesNeed(halt.since + 1);
  const spend = await spendAs(app, user, { recipient: payee, amount: "0.001" });
  t.match({ status: spend.statusCode, ...spend.json<object>() }, { status: 503, code: unknown });
  const count = async (query: string, value: string) => (await sql.query(query, [value])).rowCount;
  const wallet = user.walletAddress.toLowerCase();
  t.equal(await count("SELECT 1 FROM settlements WHERE from_address = $1", wallet), 0);
  const reserved = "SELECT 1 FROM payments WHERE agent_id = $1 AND status = 'reserved'";
  t.equal(await count(reserved, user.id), 0, "nothing stays reserved");
  const url = `/api/agents/${user.id}`;
  const change = async (body: object) => {
    const answer = await asOwner(app, owner, { method: "PATCH", url, body });
    return { status: answer.statusCode, code: answer.json<{ code?: string }>().code };
  };
  t.match(await change({ dailyLimit: "1" }), { status: 503, code: unknown }, "lower");
  t.match(await change({ dailyLimit: "100" }), { status: 503, code: unknown }, "raise");
  t.equal((await app.inject({ url, headers: owner.headers })).statusCode, 200, "it is shown");
  t.same(await codesOf(before), both("signed"), "other agents pay");
  t.equal((await change({ status: "paused" })).status, 200, "it can be stopped");
  t.same(await codesOf(user), both(unknown));
  const exported = await app.inject({ url: "/api/audit/export", headers: owner.headers });
  t.match(await verifyChain(rowsOf(exported.body)), { ok: false, why: /newer release/ });
});

t.test("a refusal by SQL functions of a newer release is refused by name", async (t) => {
  const { rows } = await sql.query<{ text: string }>(
    "SELECT pg_get_functiondef('purser_first_refusal'::regproc) AS text",
  );
  const text = rows[0]?.text ?? "";
  await sql.query(text.replace("CASE", "CASE WHEN p_requested = 7000 THEN 'newer_rule'"));
  const spend = (amount: string) => spendAs(app, before, { recipient: payee, amount });
  const refused = await spend("0.007");
  t.match(
    { status: refused.statusCode, ...refused.json<object>() },
    {
      status: 503,
      code: "policy_version_unknown",
      detail: /newer_rule/,
    },
  );
  const { rows: payments } = await sql.query<{ status: string; denial_code: string }>(
    "SELECT status, denial_code FROM payments WHERE agent_id = $1",
    [before.id],
  );
  t.same(payments, [{ status: "blocked", denial_code: "newer_rule" }]);
  const url = `/api/agents/${before.id}/payments`;
  const shown = await app.inject({ url, headers: owner.headers });
  t.match(shown.json(), { items: [{ status: "blocked", denial: null, trace: [] }] }, "it is shown");
  t.equal((await spend("0.006")).statusCode, 200, "others pay");
  await sql.query(text);
});
