// Goal: whenever the process is killed, no payment is made twice, lost or left out of the limits, and a reservation
// is released only on proof.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Config } from "../../server/config.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf, usdcOf } from "./ledger.helper.ts";
import { killedMidway, post, startReplica } from "./replica.helper.ts";

const usdc = 1_000_000n;
const path = "/api/agents/spend";
/** Longer than the test runs: no request counts as dead until the test ages it. */
const configure = (config: Config): void => void (config.settleWaitMs = 90_000);
const ctx = await testApp(t, { configure });
const { app, database } = ctx;
const owner = await signIn(ctx);

/** An agent that may pay 1 USDC today and has not paid yet. */
async function spender(to: Pick<TestApp, "app" | "chain"> = ctx, by: SignedInOwner = owner) {
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(to, by, { dailyLimit: "1", allowlist: [payee] });
  await to.chain.mint(agent.walletAddress, 5n * usdc);
  return { agent, payee, body: { recipient: payee, amount: "1" } };
}

async function spend(
  { agent, body }: { agent: NewTestAgent; body: object },
  key?: string,
  from: Pick<TestApp, "app"> = ctx,
) {
  const headers = { ...agent.headers, ...(key !== undefined && { "idempotency-key": key }) };
  const payload = JSON.stringify(body);
  const answer = await from.app.inject({ method: "POST", url: path, headers, payload });
  const { statusCode: status, headers: answered } = answer;
  return { status, body: answer.json<Record<string, unknown>>(), headers: answered };
}

const age = (agent: NewTestAgent, seconds: number) =>
  database.pool.query(
    "UPDATE payments SET created_at = created_at - make_interval(secs => $2) WHERE agent_id = $1 AND status = 'reserved'",
    [agent.id, seconds],
  );

/** Each case with and without an Idempotency-Key. */
const doomed = {
  keyed: { reserved: await spender(), signed: await spender(), accepted: await spender() },
  keyless: { reserved: await spender(), signed: await spender(), accepted: await spender() },
};
const requests = Object.entries(doomed).flatMap(([kind, spenders]) =>
  Object.entries(spenders).map(([point, { agent, body }]) => ({
    point,
    path,
    headers: { ...agent.headers, ...(kind === "keyed" && { "idempotency-key": "crash" }) },
    body,
  })),
);
await killedMidway(t, ctx, requests);

for (const point of ["reserved", "signed"] as const)
  t.test(`killed at ${point}: counted until the sweep, then released, paid once`, async (t) => {
    const { agent, payee, body } = doomed.keyed[point];
    t.same(await statusesOf(ctx, agent.id), { reserved: 1 });
    const other = await spend({ agent, body: { ...body, amount: "0.5" } });
    t.equal(other.body["code"], "daily_limit_exceeded", "the reservation still counts");
    t.equal(await app.payments.sweepUnsigned({ olderThanSeconds: 600 }), 0, "too young to release");
    await age(agent, 601);
    t.equal(await app.payments.sweepUnsigned({ olderThanSeconds: 600 }), 1);
    const retry = await spend({ agent, body }, "crash");
    t.equal(retry.status, 200, `the same key pays now: ${JSON.stringify(retry.body)}`);
    t.equal(await usdcOf(ctx, payee), usdc);
    t.same(await statusesOf(ctx, agent.id), { blocked: 1, settled: 1, voided: 1 });
    await checkLedger(t, ctx, { agentId: agent.id, payee });
  });

for (const point of ["reserved", "signed"] as const)
  t.test(
    `killed at ${point}, without a key: the same call on another replica pays once`,
    async (t) => {
      const { agent, payee, body } = doomed.keyless[point];
      // They wait for the killed call: nothing proves yet that it is dead.
      let answered = 0;
      const again = [1, 2, 3].map(async () => {
        const answer = await spend({ agent, body });
        answered += 1;
        return answer;
      });
      // Leaves time for a premature response. On a slow machine the check is weaker, but cannot fail wrongly.
      await new Promise((resolve) => setTimeout(resolve, 300));
      t.equal(answered, 0);
      t.same(await statusesOf(ctx, agent.id), { reserved: 1 });
      await age(agent, 601);
      const answers = await Promise.all(again);
      t.same(
        answers.map(({ status }) => status),
        [200, 200, 200],
        "one pays, and the others join it",
      );
      t.equal(
        answers.filter(({ body }) => body["replayed"] === undefined).length,
        1,
        "one payment, not replayed",
      );
      t.equal(await usdcOf(ctx, payee), usdc);
      await checkLedger(t, ctx, { agentId: agent.id, payee });
    },
  );

t.test("killed when accepted: it is paid, and the same call returns the result", async (t) => {
  const [keyed, keyless] = [doomed.keyed.accepted, doomed.keyless.accepted];
  const joined = await spend(keyless);
  t.match(joined, { status: 200, body: { replayed: true } });
  await until(async () => (await statusesOf(ctx, keyed.agent.id))["settled"] === 1);
  const late = await spend(keyed, "crash");
  t.match(late, { status: 200, headers: { "idempotent-replayed": "true" } });
  for (const { agent, payee } of [keyed, keyless]) {
    t.equal(await usdcOf(ctx, payee), usdc);
    await checkLedger(t, ctx, { agentId: agent.id, payee });
  }
});

t.test("a request that resumes signing after the sweep sends nothing", async (t) => {
  const { agent, payee, body } = await spender();
  app.paymentFaults.at = async (point) => {
    if (point === "signed") await app.payments.sweepUnsigned({ olderThanSeconds: 0 });
  };
  const answer = await spend({ agent, body });
  delete app.paymentFaults.at;
  t.equal(answer.status, 503, JSON.stringify(answer.body));
  t.equal(await usdcOf(ctx, payee), 0n);
  t.same(await statusesOf(ctx, agent.id), { voided: 1 });
  const { rows } = await database.pool.query("SELECT 1 FROM settlements WHERE agent_id = $1", [
    agent.id,
  ]);
  t.equal(rows.length, 0, "no settlement");
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

t.test("when signing fails, the budget is released at once", async (t) => {
  const { agent, payee, body } = await spender();
  app.paymentFaults.at = async () => {
    delete app.paymentFaults.at;
    throw new Error("the signer is broken");
  };
  t.equal((await spend({ agent, body })).status, 500);
  t.same(await statusesOf(ctx, agent.id), { voided: 1 });
  t.equal((await spend({ agent, body })).status, 200);
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

/** Only in the full tier: the simulation finds "open-call-is-not-joined" and "timeout-means-failed" with every change. */
const killedAfterBroadcast = async (t: Test): Promise<void> => {
  const before = await testApp(t);
  const { chain, database } = before;
  const by = await signIn(before);
  const [keyed, keyless] = [await spender(before, by), await spender(before, by)];
  await before.app.close();
  // The only process: it holds the relayer lane, and its transaction waits for a block.
  const replica = await startReplica(t, before);
  await chain.testClient.setAutomine(false);
  const url = `${replica.url}${path}`;
  const cut = [
    post(url, { ...keyed.agent.headers, "idempotency-key": "broadcast" }, keyed.body),
    post(url, keyless.agent.headers, keyless.body),
  ].map((request) => t.rejects(request, "no response"));
  await until(async () => {
    const { rows } = await database.pool.query(
      "SELECT 1 FROM settlements WHERE status = 'submitted'",
    );
    return rows.length === 2 && (await chain.testClient.getTxpoolStatus()).pending > 0;
  });
  replica.child.kill("SIGKILL");
  await Promise.all([replica.ended, ...cut]);
  const after = await testApp(t, { chain, database, configure });
  const early = await spend(keyed, "broadcast", after);
  t.match(early, { status: 409, body: { code: "idempotency_in_progress" } });
  await chain.testClient.setAutomine(true);
  await chain.testClient.mine({ blocks: 1 });
  await database.pool.query(
    "UPDATE relayer_lanes SET lease_until = now() WHERE lease_until > now()",
  );
  let joined = await spend(keyless, undefined, after);
  // A 504 means that the outcome is still unknown: the same call joins it again.
  for (let turn = 0; joined.status === 504 && turn < 60; turn += 1)
    joined = await spend(keyless, undefined, after);
  t.match(joined, { status: 200, body: { replayed: true } });
  await until(async () => (await statusesOf(after, keyed.agent.id))["settled"] === 1, 60_000);
  const late = await spend(keyed, "broadcast", after);
  t.match(late, { status: 200, headers: { "idempotent-replayed": "true" } });
  for (const { agent, payee } of [keyed, keyless]) {
    t.equal(await usdcOf(after, payee), usdc);
    await checkLedger(t, after, { agentId: agent.id, payee });
  }
};
if (isFullTier)
  t.test(
    "killed between broadcast and receipt: another process reports the outcome",
    killedAfterBroadcast,
  );
