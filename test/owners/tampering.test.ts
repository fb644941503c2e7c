// Goal: an intruder with write access to the database cannot make an agent's wallet sign beyond its owner's signed
// policy: nothing is signed, and an alarm is raised.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  orderDigest,
  typedDataOf,
  type Orders,
  type OrderKind,
  REQUESTED_FORM,
} from "../../server/core/orders.ts";
import type { Authorization } from "../../server/core/authorization.ts";
import type { Cover } from "../../server/plugins/custody/covers.ts";
import { Custody } from "../../server/plugins/custody/custody.ts";
import { vaultHere } from "../../server/plugins/custody/wiring.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, signOrder, type NewTestAgent } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const service = await testApp(t);
const { app, chain } = service;
const sql = service.database.pool;
const owner = await signIn(service);
const thief = await signIn(service);
const newAddress = (): Address => privateKeyToAccount(generatePrivateKey()).address;
const payee = newAddress();
const unlistedPayee = newAddress();
const RULES = {
  dailyLimit: "10",
  weeklyLimit: "20",
  monthlyLimit: "30",
  perPaymentLimit: "2",
  paymentsPerHour: 50,
  fetch: "sites",
  expiresAt: "2036-01-01T00:00:00Z",
  allowlist: [{ address: payee, dailyLimit: "9", perPaymentLimit: "1.5" }],
};
const agent = await createAgent(service, owner, RULES);
const other = await createAgent(service, owner, { dailyLimit: "1000", allowlist: [unlistedPayee] });
const thiefsAgent = await createAgent(service, thief, {
  dailyLimit: "1000",
  allowlist: [unlistedPayee],
});
for (const { walletAddress } of [agent, other, thiefsAgent])
  await chain.mint(walletAddress, 10n ** 9n);

const TABLES = [
  "owners",
  "agents",
  "allowlist_entries",
  "agent_wallets",
  "owner_orders",
  "withdrawal_orders",
];

/** Restores the tables after `work`, with constraints and triggers disabled. */
async function undone(work: () => Promise<void>): Promise<void> {
  for (const table of TABLES) await sql.query(`CREATE TABLE kept_${table} AS TABLE ${table}`);
  try {
    await work();
  } finally {
    await edit(
      ...TABLES.flatMap((table) => [
        `DELETE FROM ${table}`,
        `INSERT INTO ${table} SELECT * FROM kept_${table}`,
        `DROP TABLE kept_${table}`,
      ]),
    );
  }
}

/** Edits with the rights of the database's owner: foreign keys and triggers are disabled. */
async function edit(...statements: string[]): Promise<void> {
  const client = await sql.connect();
  try {
    await client.query("BEGIN; SET LOCAL session_replication_role = replica");
    for (const statement of statements) await client.query(statement);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

const alarms = async (): Promise<number> => {
  const metric = await app.metrics.getSingleMetric("purser_policy_not_signed_total")?.get();
  return metric?.values[0]?.value ?? 0;
};
const signatures = async (): Promise<number> => {
  const { rows } = await sql.query<{ count: number }>("SELECT count(*)::int FROM settlements");
  return rows[0]?.count ?? -1;
};
interface SpendBody {
  recipient: Address;
  amount: string;
  network?: string;
}
const spend = async (body: SpendBody, by: NewTestAgent = agent) => {
  const answer = await spendAs(app, by, body);
  return { status: answer.statusCode, ...answer.json<{ code?: string; paymentId: string }>() };
};
const authorization = (over: Partial<Authorization> = {}): Authorization => ({
  chainId: chain.chainId,
  asset: chain.usdc,
  from: agent.walletAddress,
  to: payee,
  value: 1_000_000n,
  validAfter: 0n,
  validBefore: BigInt(Math.floor(Date.now() / 1000) + 100),
  nonce: `0x${randomBytes(32).toString("hex")}`,
  ...over,
});

/** The custody of a process that has just started, without cached policies. */
function freshCustody(): { custody: Custody; alarmed: string[] } {
  const alarmed: string[] = [];
  const custody = new Custody({
    vault: vaultHere(app, { trustsCaller: true }),
    alarm: ({ error }) => void alarmed.push(error.message),
  });
  return { custody, alarmed };
}

/** Checks that neither a running process, which has cached the agent's policy, nor a fresh one signs. */
async function signsNothing(
  t: Test,
  fields: { to?: Address; value?: bigint; nonce?: Hex; cover?: Cover } = {},
): Promise<void> {
  const wanted = authorization({
    ...(fields.to && { to: fields.to }),
    ...(fields.value !== undefined && { value: fields.value }),
    ...(fields.nonce && { nonce: fields.nonce }),
  });
  const cover = fields.cover ?? { kind: "policy" };
  const refused = { code: "policy_not_signed" };
  const { custody, alarmed } = freshCustody();
  await t.rejects(custody.signAuthorization(agent.id, wanted, cover), refused, "fresh process");
  t.equal(alarmed.length, 1, "an alarm is raised");
  await t.rejects(
    app.custody.signAuthorization(agent.id, wanted, cover),
    refused,
    "running process",
  );
}

const A = `'${agent.id}'`;
const lower = (address: string): string => `'${address.toLowerCase()}'`;

t.test("without tampering, it signs", async (t) => {
  t.match(await spend({ recipient: payee, amount: "1" }), { status: 200 });
  t.ok(
    await freshCustody().custody.signAuthorization(agent.id, authorization(), { kind: "policy" }),
  );
});

t.test("spends after columns were edited", async (t) => {
  const inside = { recipient: payee, amount: "1" };
  const rows: [string, string, SpendBody][] = [
    ["daily limit", `UPDATE agents SET daily_limit = 10^12 WHERE id = ${A}`, inside],
    ["weekly limit", `UPDATE agents SET weekly_limit = NULL WHERE id = ${A}`, inside],
    ["monthly limit", `UPDATE agents SET monthly_limit = 10^12 WHERE id = ${A}`, inside],
    [
      "limit per payment",
      `UPDATE agents SET per_payment_limit = NULL WHERE id = ${A}`,
      { ...inside, amount: "1.4" },
    ],
    ["payments per hour", `UPDATE agents SET payments_per_hour = NULL WHERE id = ${A}`, inside],
    ["fetch", `UPDATE agents SET fetch_scope = 'any' WHERE id = ${A}`, inside],
    [
      "network",
      `UPDATE agents SET network = 'eip155:1' WHERE id = ${A}`,
      { ...inside, network: "eip155:5042002" },
    ],
    ["expiry", `UPDATE agents SET expires_at = NULL WHERE id = ${A}`, inside],
    [
      "a fraction of the expiry",
      `UPDATE agents SET expires_at = expires_at + interval '1 ms' WHERE id = ${A}`,
      inside,
    ],
    [
      "expiry that never comes",
      `UPDATE agents SET expires_at = 'infinity' WHERE id = ${A}`,
      inside,
    ],
    [
      "a new payee",
      `INSERT INTO allowlist_entries (agent_id, address) VALUES (${A}, ${lower(unlistedPayee)})`,
      { ...inside, recipient: unlistedPayee },
    ],
    [
      "the payee's address",
      `UPDATE allowlist_entries SET address = ${lower(unlistedPayee)} WHERE agent_id = ${A}`,
      { ...inside, recipient: unlistedPayee },
    ],
    [
      "another agent's payee",
      `UPDATE allowlist_entries SET agent_id = ${A} WHERE agent_id = '${other.id}'`,
      { ...inside, recipient: unlistedPayee },
    ],
    [
      "the payee's daily limit",
      `UPDATE allowlist_entries SET daily_limit = NULL WHERE agent_id = ${A}`,
      inside,
    ],
    [
      "the payee's limit per payment",
      `UPDATE allowlist_entries SET per_payment_limit = NULL WHERE agent_id = ${A}`,
      inside,
    ],
    [
      "the payee's expiry",
      `UPDATE allowlist_entries SET expires_at = 'infinity' WHERE agent_id = ${A}`,
      inside,
    ],
    [
      "the payee's site",
      `UPDATE allowlist_entries SET site = 'https://evil.example' WHERE agent_id = ${A}`,
      inside,
    ],
  ];
  const before = await signatures();
  for (const [name, statement, body] of rows)
    await undone(async () => {
      const alarmsBefore = await alarms();
      await edit(statement);
      const answer = await spend(body);
      // A rule may refuse the spend before custody is reached: check custody directly.
      if (answer.code !== "policy_not_signed") {
        t.match(answer, { status: 403 }, `${name}: ${answer.code ?? "paid"}`);
        await signsNothing(t, { to: body.recipient });
        return;
      }
      t.equal(answer.status, 503, name);
      t.ok((await alarms()) > alarmsBefore, `${name}: an alarm is raised`);
    });
  t.equal(await signatures(), before, "nothing was signed");
  t.match(service.logs.join(""), /not covered by the owner's signature/);
  const alarmEvents = await sql.query(
    "SELECT 1 FROM events WHERE type = 'alarm' AND agent_id = $1",
    [agent.id],
  );
  t.ok((alarmEvents.rowCount ?? 0) > 0, "the owner is notified");
  const { rows: spent } = await sql.query("SELECT 1 FROM payments WHERE status = 'reserved'");
  t.equal(spent.length, 0, "nothing stays reserved");
});

t.test("paused and expired agents that are reactivated by SQL", async (t) => {
  for (const change of [{ status: "paused" }, { expiresAt: "2020-01-01T00:00:00Z" }]) {
    const stopped = await createAgent(service, owner, { allowlist: [payee] });
    await chain.mint(stopped.walletAddress, 10n ** 7n);
    await asOwner(app, owner, { method: "PATCH", url: `/api/agents/${stopped.id}`, body: change });
    await edit(`UPDATE agents SET status = 'active', expires_at = NULL WHERE id = '${stopped.id}'`);
    const answer = await spend({ recipient: payee, amount: "1" }, stopped);
    t.match(answer, { status: 503, code: "policy_not_signed" }, JSON.stringify(change));
  }
});

t.test("a pause is sealed although the version of the rules was edited", async (t) => {
  const stopped = await createAgent(service, owner, { allowlist: [payee] });
  await chain.mint(stopped.walletAddress, 10n ** 7n);
  const setVersion = (version: number) =>
    edit(`UPDATE agent_wallets SET rules_version = ${version} WHERE agent_id = '${stopped.id}'`);
  await setVersion(9);
  const url = `/api/agents/${stopped.id}`;
  const paused = await asOwner(app, owner, { method: "PATCH", url, body: { status: "paused" } });
  t.equal(paused.statusCode, 200);
  await setVersion(1);
  await edit(`UPDATE agents SET status = 'active' WHERE id = '${stopped.id}'`);
  const answer = await spend({ recipient: payee, amount: "1" }, stopped);
  t.match(answer, { status: 503, code: "policy_not_signed" });
});

/** A forged order with its digest and a valid signature of the thief. */
async function forged<K extends OrderKind>(
  kind: K,
  order: Orders[K],
  by: PrivateKeyAccount,
): Promise<{ document: string; digest: Hex; signature: string }> {
  const typedData = typedDataOf(kind, order, chain.chainId, REQUESTED_FORM);
  const signature = await by.signTypedData(typedData as never);
  return {
    document: `'${JSON.stringify(order)}'::jsonb`,
    digest: orderDigest(kind, order, chain.chainId, REQUESTED_FORM),
    signature: `'\\x${signature.slice(2)}'::bytea`,
  };
}

const policyOf = async (agentId: string): Promise<Orders["AgentPolicy"]> => {
  const { rows } = await sql.query<{ document: Orders["AgentPolicy"] }>(
    "SELECT document FROM owner_orders WHERE agent_id = $1 AND kind = 'AgentPolicy' ORDER BY version DESC LIMIT 1",
    [agentId],
  );
  if (!rows[0]) throw new Error("no policy");
  return rows[0].document;
};

t.test("documents, signatures and envelopes", async (t) => {
  const document = await policyOf(agent.id);
  const wider = {
    ...document,
    payees: [{ ...(document.payees[0] as (typeof document.payees)[0]), payee: unlistedPayee }],
  };
  const allow = `UPDATE allowlist_entries SET address = ${lower(unlistedPayee)} WHERE agent_id = ${A}`;
  const mine = `agent_id = ${A} AND kind = 'AgentPolicy'`;
  const forgery = await forged("AgentPolicy", wider, thief.account);
  const rows: [string, string[]][] = [
    [
      "the document",
      [`UPDATE owner_orders SET document = ${forgery.document} WHERE ${mine}`, allow],
    ],
    [
      "the document, its digest and the thief's signature",
      [
        `UPDATE owner_orders SET document = ${forgery.document}, digest = '${forgery.digest}', signature = ${forgery.signature} WHERE ${mine}`,
        `UPDATE agent_wallets SET policy_digest = '${forgery.digest}' WHERE agent_id = ${A}`,
        allow,
      ],
    ],
    ["the order is gone", [`DELETE FROM owner_orders WHERE ${mine}`]],
    [
      "the order was never signed",
      [`UPDATE owner_orders SET used_at = NULL, signature = NULL WHERE ${mine}`],
    ],
    ["another version", [`UPDATE owner_orders SET version = 7 WHERE ${mine}`]],
    [
      "another chain",
      [
        `UPDATE owner_orders SET chain_id = 1 WHERE ${mine}`,
        `UPDATE agents SET network = 'eip155:1' WHERE id = ${A}`,
      ],
    ],
    [
      "another agent's document, owner and all",
      [
        `DELETE FROM owner_orders WHERE ${mine}`,
        `UPDATE owner_orders SET agent_id = ${A} WHERE agent_id = '${other.id}'`,
        `UPDATE agent_wallets w SET policy_digest = o.policy_digest, rules_digest = o.rules_digest FROM agent_wallets o WHERE w.agent_id = ${A} AND o.agent_id = '${other.id}'`,
        `DELETE FROM allowlist_entries WHERE agent_id = ${A}`,
        `UPDATE allowlist_entries SET agent_id = ${A} WHERE agent_id = '${other.id}'`,
      ],
    ],
    [
      "another agent's envelope",
      [
        `UPDATE agent_wallets w SET kid = o.kid, wrapped_data_key = o.wrapped_data_key, ciphertext = o.ciphertext FROM agent_wallets o WHERE w.agent_id = ${A} AND o.agent_id = '${other.id}'`,
      ],
    ],
    [
      "the policy's digest",
      [`UPDATE agent_wallets SET policy_digest = '${forgery.digest}' WHERE agent_id = ${A}`],
    ],
    [
      "the rules' digest",
      [`UPDATE agent_wallets SET rules_digest = '${forgery.digest}' WHERE agent_id = ${A}`],
    ],
    ["the revision", [`UPDATE agent_wallets SET revision = revision + 1 WHERE agent_id = ${A}`]],
    [
      "another owner",
      [
        `UPDATE agents SET owner_id = (SELECT id FROM owners WHERE address = ${lower(thief.account.address)}) WHERE id = ${A}`,
      ],
    ],
    [
      "another address of the owner",
      [
        `DELETE FROM owners WHERE address = ${lower(thief.account.address)}`,
        `UPDATE owners SET address = ${lower(thief.account.address)} WHERE address = ${lower(owner.account.address)}`,
      ],
    ],
    [
      "another kind of owner",
      [
        `UPDATE owners SET chain_id = ${chain.chainId} WHERE address = ${lower(owner.account.address)}`,
      ],
    ],
  ];
  for (const [name, statements] of rows)
    await t.test(name, (t) =>
      undone(async () => {
        await edit(...statements);
        const isWider = statements.includes(allow) || name.startsWith("another agent's document");
        const to = isWider ? unlistedPayee : payee;
        if (name !== "another chain") return signsNothing(t, { to });
        // A process that verified the policy before the edit keeps signing by that policy, and by no other.
        const { custody, alarmed } = freshCustody();
        const signed = custody.signAuthorization(agent.id, authorization(), { kind: "policy" });
        await t.rejects(signed, { code: "policy_not_signed" });
        t.equal(alarmed.length, 1, "an alarm is raised");
      }),
    );
});

t.test("the agent is moved to another owner, who then signs", (t) =>
  undone(async () => {
    await edit(
      `UPDATE agents SET owner_id = (SELECT id FROM owners WHERE address = ${lower(thief.account.address)}) WHERE id = ${A}`,
    );
    const answer = await asOwner(app, thief, {
      method: "POST",
      url: `/api/agents/${agent.id}/allowlist`,
      body: { address: unlistedPayee },
    });
    t.match(
      { status: answer.statusCode, ...answer.json<object>() },
      { status: 503, code: "policy_not_signed" },
    );
    const { rows } = await sql.query(
      "SELECT 1 FROM allowlist_entries WHERE agent_id = $1 AND address = $2",
      [agent.id, unlistedPayee.toLowerCase()],
    );
    t.equal(rows.length, 0, "nothing of it remains");
    await signsNothing(t);
  }),
);

t.test("an older version is restored", async (t) => {
  const url = `/api/agents/${agent.id}`;
  await sql.query("CREATE TABLE older AS SELECT * FROM agent_wallets WHERE agent_id = $1", [
    agent.id,
  ]);
  await sql.query("CREATE TABLE older_agent AS SELECT * FROM agents WHERE id = $1", [agent.id]);
  const raised = await asOwner(app, owner, { method: "PATCH", url, body: { dailyLimit: "12" } });
  t.equal(raised.statusCode, 200, raised.body);
  const lowered = await asOwner(app, owner, { method: "PATCH", url, body: { dailyLimit: "3" } });
  t.equal(lowered.statusCode, 200, lowered.body);
  t.match(await spend({ recipient: payee, amount: "0.5" }), { status: 200 });
  const putBack = [
    `DELETE FROM agent_wallets WHERE agent_id = ${A}`,
    "INSERT INTO agent_wallets SELECT * FROM older",
    `UPDATE agents a SET daily_limit = o.daily_limit FROM older_agent o WHERE a.id = o.id`,
  ];
  await undone(async () => {
    await edit(...putBack);
    await signsNothing(t);
  });
  await undone(async () => {
    await edit(`UPDATE agents SET daily_limit = 12000000 WHERE id = ${A}`);
    await signsNothing(t);
  });
  await undone(async () => {
    // With the newer order deleted as well, a process that has seen it still refuses.
    await edit(...putBack, `DELETE FROM owner_orders WHERE agent_id = ${A} AND version = 2`);
    await t.rejects(app.custody.signAuthorization(agent.id, authorization(), { kind: "policy" }), {
      code: "policy_not_signed",
    });
  });
  t.match(
    await spend({ recipient: payee, amount: "0.5" }),
    { status: 200 },
    "it pays again after the rows are restored",
  );
});

t.test("a withdrawal order that is edited before custody signs", async (t) => {
  const path = `/api/agents/${agent.id}/withdrawals`;
  const withdraw = async (statement: string) => {
    const prepared = await asOwner(app, owner, {
      method: "POST",
      url: `${path}/prepare`,
      body: { amount: "1" },
    });
    const body = await signOrder(owner.account, prepared.json());
    app.paymentFaults.at = async (point) => {
      if (point === "reserved") await edit(statement);
    };
    const answer = await callApi(app, owner, "POST", path, body);
    delete app.paymentFaults.at;
    return { status: answer.statusCode, ...answer.json<{ code?: string }>() };
  };
  const before = await signatures();
  const signature = `'\\x${(await thief.account.signMessage({ message: "x" })).slice(2)}'::bytea`;
  for (const set of [
    `to_address = ${lower(unlistedPayee)}`,
    "amount = amount + 1",
    "deadline = deadline + 1",
    "deadline = 1",
    `signature = ${signature}`,
    `nonce = '0x${"1".repeat(64)}'`,
  ])
    await undone(async () => {
      const answer = await withdraw(`UPDATE withdrawal_orders SET ${set} WHERE agent_id = ${A}`);
      t.match(answer, { status: 503, code: "policy_not_signed" }, set);
    });
  t.equal(await signatures(), before, "nothing was signed");
  t.match(await withdraw("SELECT 1"), { status: 200 }, "the unedited order is executed");

  // A forged order row, given to custody directly.
  const nonce: Hex = `0x${"2".repeat(64)}`;
  await undone(async () => {
    await edit(
      `INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
       VALUES (${A}, '${nonce}', 'pay_x', ${lower(unlistedPayee)}, 1000000, 9999999999, ${signature})`,
    );
    await t.rejects(
      app.custody.signAuthorization(agent.id, authorization({ to: unlistedPayee, nonce }), {
        kind: "withdrawal",
        orderNonce: nonce,
      }),
      { code: "policy_not_signed" },
    );
  });
});

t.test("an approval", async (t) => {
  const order = (over: object = {}): Orders["ApprovePayment"] => ({
    agent: agent.id,
    payee: unlistedPayee,
    asset: chain.usdc,
    maxAmount: "5000000",
    site: "",
    approvalId: "apr_1",
    nonce: `0x${randomBytes(32).toString("hex")}`,
    deadline: "9999999999",
    ...over,
  });
  const cover: Cover = { kind: "approval", approvalId: "apr_1" };
  const fields = { to: unlistedPayee, value: 5_000_000n, cover };
  const insert = async (document: Orders["ApprovePayment"], by: PrivateKeyAccount) => {
    const made = await forged("ApprovePayment", document, by);
    await edit(
      `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, approval_id, chain_id, document, digest, deadline, signature, used_at)
       SELECT '${document.nonce}', 'ApprovePayment', a.owner_id, a.id, 'apr_1', ${chain.chainId}, ${made.document}, '${made.digest}',
              ${document.deadline}, ${made.signature}, now() FROM agents a WHERE a.id = ${A}`,
    );
    // The only authorization nonce that the approval allows.
    return { ...fields, nonce: made.digest };
  };
  await undone(async () => {
    const signed = await insert(order(), owner.account);
    t.ok(
      await app.custody.signAuthorization(agent.id, authorization(signed), cover),
      "signed by the owner",
    );
    await signsNothing(t, { ...signed, value: 5_000_001n });
    await signsNothing(t, { ...signed, to: newAddress() });
    await signsNothing(t, { ...signed, cover: { ...cover, site: "https://a.example" } });
    await signsNothing(t, { ...signed, cover: { ...cover, approvalId: "apr_2" } });
    await signsNothing(t, { ...signed, nonce: `0x${randomBytes(32).toString("hex")}` });
  });
  await undone(async () => {
    await signsNothing(t, await insert(order(), thief.account));
  });
  await undone(async () => {
    await signsNothing(t, await insert(order({ agent: other.id }), owner.account));
  });
  await undone(async () => {
    const ended = String(Math.floor(Date.now() / 1000) + 30);
    const signed = await insert(order({ deadline: ended }), owner.account);
    await signsNothing(t, signed);
  });
});

t.test("an owner stops and repairs a tampered agent", async (t) => {
  await edit(
    `INSERT INTO allowlist_entries (agent_id, address) VALUES (${A}, ${lower(unlistedPayee)})`,
  );
  const url = `/api/agents/${agent.id}`;
  const paused = await asOwner(app, owner, { method: "PATCH", url, body: { status: "paused" } });
  t.equal(paused.statusCode, 200, "pausing always works");
  await signsNothing(t);
  const body = { allowlist: [payee] };
  const mended = await asOwner(app, owner, { method: "PUT", url: `${url}/allowlist`, body });
  t.equal(mended.statusCode, 200, mended.body);
  const resumed = await asOwner(app, owner, { method: "PATCH", url, body: { status: "active" } });
  t.equal(resumed.statusCode, 200, resumed.body);
  await until(async () => (await spend({ recipient: payee, amount: "0.1" })).status === 200);
  t.pass("the policy that the owner signed is in force again");
});
