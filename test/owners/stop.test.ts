// Goal: when the answer to "stop everything" is there, nothing of this owner is reserved or signed any more, in any
// process; only the owner's signature returns exactly the agents that the stop paused.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { connect, renew } from "../helpers/oauth.ts";
import {
  asOwner,
  createAgent,
  nameRecoveryWallet,
  signIn,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { statusesOf } from "../spending/ledger.helper.ts";
import { postWhenFree, startReplica } from "../spending/replica.helper.ts";
import { assertAuditsHold } from "./audit.helper.ts";

const ctx = await testApp(t, { listen: true });
const { app, chain, database } = ctx;
const { pool } = database;
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;
const ANOTHER = privateKeyToAccount(generatePrivateKey()).address;

type Who = Pick<SignedInOwner, "headers">;
type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
const call = (who: Who, method: Method, url: string, body?: unknown) =>
  callApi(app, who, method, url, body);
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code?: string }).code;
const stop = (who: Who) => call(who, "POST", "/api/owner/stop");
const resume = (owner: SignedInOwner) =>
  asOwner(app, owner, { method: "POST", url: "/api/owner/resume", body: {} });
const spend = (agent: NewTestAgent) => spendAs(app, agent, { recipient: PAYEE, amount: "0.5" });
const statusOf = async (agent: { id: string }) => {
  const { rows } = await pool.query<{ status: string; by: string | null }>(
    "SELECT status, paused_by AS by FROM agents WHERE id = $1",
    [agent.id],
  );
  return `${rows[0]?.status} ${rows[0]?.by ?? "-"}`;
};

async function funded(owner: SignedInOwner, body: Record<string, unknown> = {}) {
  const agent = await createAgent(ctx, owner, { dailyLimit: "100", allowlist: [PAYEE], ...body });
  await chain.mint(agent.walletAddress, 100_000_000n);
  return agent;
}

interface ToSign {
  order: Record<string, string>;
  typedData: Parameters<PrivateKeyAccount["signTypedData"]>[0];
}

t.test("a stop refuses what would spend or allow more, and nothing else", async (t) => {
  const owner = await signIn(ctx);
  const agent = await funded(owner);
  const idle = await createAgent(ctx, owner, { name: "idle" });
  const byHand = await createAgent(ctx, owner, { name: "by hand" });
  await call(owner, "PATCH", `/api/agents/${byHand.id}`, { status: "paused" });
  t.equal((await spend(agent)).statusCode, 200, "before");
  const asked = await spendAs(
    app,
    agent,
    { recipient: ANOTHER, amount: "0.5", requestApproval: true },
    "approval",
  );
  const { approvalId } = asked.json<{ approvalId: string }>();

  const stopped = await stop(owner);
  t.match(stopped.json(), {
    success: true,
    stopped: { by: owner.account.address, agents: 2, at: String },
  });
  t.equal((await stop(owner)).body, stopped.body, "stopping twice is no error");
  t.same(await Promise.all([agent, idle, byHand].map(statusOf)), [
    "paused stop",
    "paused stop",
    "paused -",
  ]);
  t.match((await spend(agent)).json(), {
    code: "agent_paused",
    detail: "The owner stopped everything, so no agent can pay.",
  });
  const url = `/api/agents/${agent.id}`;
  const refused: [Method, string, unknown][] = [
    ["PATCH", url, { status: "active" }],
    ["POST", `${url}/keys`, {}],
    ["POST", `${url}/keys/${agent.keyId}/rotate`, {}],
    ["POST", "/api/agents", { name: "new", dailyLimit: "1", allowlist: [] }],
    ["POST", `/api/approvals/${approvalId}/approve`, {}],
  ];
  for (const [method, path, body] of refused) {
    const answer = await asOwner(app, owner, { method, url: path, body });
    t.equal(codeOf(answer), "owner_stopped", path);
    t.notMatch(answer.body, "/api/", "the app shows it to the owner: no route in it");
  }
  t.match((await call(owner, "GET", "/api/auth/session")).json(), { stopped: { agents: 2 } });

  t.equal((await call(owner, "PATCH", url, { dailyLimit: "50" })).statusCode, 200, "tightening");
  const withdrawal = `${url}/withdrawals`;
  const prepared = (
    await call(owner, "POST", `${withdrawal}/prepare`, { amount: "1" })
  ).json<ToSign>();
  const signature = await owner.account.signTypedData(prepared.typedData);
  const taken = await call(owner, "POST", withdrawal, { order: prepared.order, signature });
  t.equal(taken.statusCode, 200, `withdrawing: ${taken.body}`);
  const raised = await asOwner(app, owner, { method: "PATCH", url, body: { dailyLimit: "70" } });
  t.equal(raised.statusCode, 200, "rules may be signed; the agent stays paused");
  t.equal(await statusOf(agent), "paused stop");

  const resumed = await resume(owner);
  t.match(resumed.json(), { success: true, stopped: null, agents: 2 });
  t.same(await Promise.all([agent, idle, byHand].map(statusOf)), [
    "active -",
    "active -",
    "paused -",
  ]);
  t.equal((await spend(agent)).statusCode, 200, "custody signs again, under the newer rules");
  t.match((await call(owner, "POST", "/api/owner/resume", {})).json(), { agents: 0 });
  const { rows } = await pool.query(
    `SELECT n.type FROM notifications n JOIN agents a ON a.owner_id = n.owner_id
      WHERE a.id = $1 AND n.type LIKE 'owner.%' ORDER BY n.created_at`,
    [agent.id],
  );
  t.same(rows, [{ type: "owner.stopped" }, { type: "owner.resumed" }], "one event each");
  await assertAuditsHold(t, app.prisma);
});

t.test("a pause by hand during the stop stays after it", async (t) => {
  const owner = await signIn(ctx);
  const [agent, other] = [await funded(owner), await funded(owner)];
  await stop(owner);
  const url = `/api/agents/${agent.id}`;
  t.equal((await call(owner, "PATCH", url, { status: "paused" })).statusCode, 200);
  t.match((await resume(owner)).json(), { agents: 1 });
  t.equal(await statusOf(agent), "paused -");
  t.equal(
    codeOf(await call(owner, "PATCH", url, { status: "active" })),
    "owner_signature_required",
  );
  t.equal(
    (await asOwner(app, owner, { method: "PATCH", url, body: { status: "active" } })).statusCode,
    200,
  );
  for (const one of [agent, other]) t.equal((await spend(one)).statusCode, 200);
  await assertAuditsHold(t, app.prisma);
});

t.test("only the owner's wallet resumes, once, and only the stop that it saw", async (t) => {
  const owner = await signIn(ctx);
  const agent = await funded(owner);
  const wallet = privateKeyToAccount(generatePrivateKey());
  await nameRecoveryWallet(app, owner, wallet);
  const second = await signIn(ctx, wallet, owner.account.address);
  t.match((await stop(second)).json(), { stopped: { by: wallet.address } }, "it may stop");
  t.equal(
    codeOf(await call(second, "POST", "/api/owner/resume", {})),
    "second_wallet_only_tightens",
  );
  const ask = async () => (await call(owner, "POST", "/api/owner/resume", {})).json<ToSign>();
  const signedBy = async ({ order, typedData }: ToSign, account: PrivateKeyAccount) => ({
    authorization: { order, signature: await account.signTypedData(typedData) },
  });
  const send = (body: object) => call(owner, "POST", "/api/owner/resume", body);
  const first = await ask();
  t.match(first.order, { owner: owner.account.address, stoppedAt: /^[0-9]+$/ });
  t.equal(codeOf(await send(await signedBy(first, wallet))), "invalid_signature");
  const mine = await signedBy(first, owner.account);
  const altered = { ...first.order, stoppedAt: "1" };
  const tampered = { authorization: { ...mine.authorization, order: altered } };
  t.equal(codeOf(await send(tampered)), "invalid_signature");
  t.equal(await statusOf(agent), "paused stop");
  const spare = await signedBy(await ask(), owner.account);
  t.equal((await send(mine)).statusCode, 200);
  await stop(owner);
  t.equal(codeOf(await send(mine)), "order_used", "a used order");
  await pool.query(
    `UPDATE owners SET stopped_at = stopped_at + interval '10 seconds' WHERE stopped_at IS NOT NULL`,
  );
  t.equal(codeOf(await send(spare)), "policy_changed", "an order for an earlier stop");
  t.equal(await statusOf(agent), "paused stop");
  await resume(owner);
});

t.test("a program's connection is not renewed meanwhile, and is not lost", async (t) => {
  const owner = await signIn(ctx);
  const agent = await funded(owner);
  const program = await connect(ctx, owner, agent.id);
  await stop(owner);
  const refused = await renew(ctx, program);
  t.equal(refused.statusCode, 503, refused.body);
  t.match(refused.json(), { error: "temporarily_unavailable" });
  await resume(owner);
  t.equal((await renew(ctx, program)).statusCode, 200);
});

t.test("what a stop paused is not signed, and an edited row alarms only in its seal", async (t) => {
  const owner = await signIn(ctx);
  const agent = await funded(owner);
  await stop(owner);
  const now = BigInt(Math.floor(Date.now() / 1000));
  const sign = () =>
    app.custody.signAuthorization(
      agent.id,
      {
        chainId: chain.chainId,
        asset: ctx.config.networks[0].usdc.address,
        from: agent.walletAddress.toLowerCase() as `0x${string}`,
        to: PAYEE.toLowerCase() as `0x${string}`,
        value: 1n,
        validAfter: 0n,
        validBefore: now + 60n,
        nonce: `0x${"7".repeat(64)}`,
      },
      { kind: "policy" },
    );
  await t.rejects(sign(), { code: "service_unavailable" }, "reserved before, not signed after");
  // Whoever may write to the database cannot make an agent active while its owner's row says stopped.
  await t.rejects(pool.query("UPDATE agents SET status = 'active' WHERE id = $1", [agent.id]), {
    code: "PU006",
  });
  await t.rejects(
    pool.query(`INSERT INTO api_keys SELECT k.* FROM api_keys k WHERE k.agent_id = $1`, [agent.id]),
    { code: "PU006" },
  );
  await resume(owner);
  t.match(await sign(), /^0x/);
});

t.test("nothing is reserved after the stop's answer, over several processes", async (t) => {
  const owner = await signIn(ctx);
  const agents = [await funded(owner), await funded(owner)];
  const urls = [ctx.baseUrl, (await startReplica(t, ctx)).url];
  const spends = Array.from({ length: 50 }, (_, index) =>
    postWhenFree(`${urls[index % 2]}/api/agents/spend`, agents[(index >> 1) % 2]?.headers ?? {}, {
      recipient: PAYEE,
      amount: "1",
      memo: `${index}`,
    }),
  );
  await Promise.race(spends);
  t.equal((await stop(owner)).statusCode, 200);
  const { rows } = await pool.query<{ at: Date }>("SELECT clock_timestamp() AS at");
  const answers = await Promise.all(spends);
  const ids = agents.map(({ id }) => id);
  const late = await pool.query(
    `SELECT status FROM payments WHERE agent_id = ANY ($1) AND status <> 'blocked' AND created_at > $2`,
    [ids, rows[0]?.at],
  );
  t.same(late.rows, []);
  const paid = answers.filter(({ status }) => status === 200).length;
  t.ok(paid > 0 && paid < 50, `${paid} of 50 were before the stop`);
  for (const { status, body } of answers)
    if (status !== 200) t.match(body["code"], /^(agent_paused|service_unavailable)$/);
  let settled = 0;
  for (const agent of agents) {
    const statuses = await statusesOf(ctx, agent.id);
    settled += statuses["settled"] ?? 0;
  }
  t.equal(settled, paid, "what was signed settled, and what was not signed was released");
});

t.test("a key that is being made while the owner stops everything", async (t) => {
  const owner = await signIn(ctx);
  const agent = await funded(owner);
  const stopping = await pool.connect();
  await stopping.query("BEGIN");
  const { rows } = await stopping.query<{ id: string }>(
    "SELECT id FROM owners WHERE address = $1",
    [owner.account.address.toLowerCase()],
  );
  const ownerId = rows[0]?.id;
  const url = `/api/agents/${agent.id}/keys`;
  await stopping.query("SELECT purser_stop($1, $2)", [ownerId, PAYEE.toLowerCase()]);
  // It comes before the stop is committed, and waits for it.
  const made = asOwner(app, owner, { method: "POST", url, body: { label: "late" } });
  await until(async () => {
    const waiting = await pool.query(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return waiting.rowCount !== 0;
  });
  await stopping.query("COMMIT");
  stopping.release();
  const answer = await made;
  t.match(
    { status: answer.statusCode, code: codeOf(answer) },
    { status: 409, code: "owner_stopped" },
  );
  const keys = await pool.query("SELECT 1 FROM api_keys WHERE agent_id = $1", [agent.id]);
  t.equal(keys.rowCount, 1, "no key was made");
});
