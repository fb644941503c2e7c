// Goal: whenever the process is killed during a withdrawal, repeating the order results in one withdrawal or
// provably none, and its money is released only on proof.
import t, { type Test } from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import { callApi } from "../helpers/call.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf, usdcOf } from "./ledger.helper.ts";
import { killedMidway, post, startReplica } from "./replica.helper.ts";

const usdc = 1_000_000n;
const FUNDS = 10n * usdc;

/** An agent's wallet with 10 USDC and the owner's signed order to withdraw 1. */
interface Withdrawal {
  name: string;
  agent: NewTestAgent;
  to: Address;
  path: string;
  headers: Record<string, string>;
  body: { order: unknown; signature: Hex };
}

type World = Pick<TestApp, "app" | "chain" | "database"> & { owner: SignedInOwner };
type Prepared = Parameters<SignedInOwner["account"]["signTypedData"]>[0];

const path = (agent: NewTestAgent): string => `/api/agents/${agent.id}/withdrawals`;

async function prepare({ app, owner }: World, agent: NewTestAgent, body: object) {
  const answer = await callApi(app, owner, "POST", `${path(agent)}/prepare`, body);
  if (answer.statusCode !== 200) throw new Error(answer.body);
  return answer.json<{ order: { amount: string }; typedData: Prepared }>();
}

async function signedWithdrawal(
  world: World,
  name: string,
  options: { isKeyed: boolean },
): Promise<Withdrawal> {
  const { owner, chain } = world;
  const agent = await createAgent(world, owner, { dailyLimit: "0" });
  await chain.mint(agent.walletAddress, FUNDS);
  const to = privateKeyToAccount(generatePrivateKey()).address;
  const { order, typedData } = await prepare(world, agent, { amount: "1", to });
  const signature = await owner.account.signTypedData(typedData);
  const headers = { ...owner.headers, ...(options.isKeyed && { "idempotency-key": name }) };
  return { name, agent, to, path: path(agent), headers, body: { order, signature } };
}

async function execute({ app }: World, { path: url, headers, body }: Withdrawal) {
  const payload = JSON.stringify(body);
  const answer = await app.inject({ method: "POST", url, headers, payload });
  return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
}

/** The amount that the owner could withdraw now: the balance less outstanding payments. */
const available = async (world: World, { agent }: Withdrawal): Promise<bigint> =>
  BigInt((await prepare(world, agent, { amount: "max" })).order.amount);

const age = ({ database }: World, { agent }: Withdrawal) =>
  database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '601 seconds' WHERE agent_id = $1 AND status = 'reserved'",
    [agent.id],
  );

async function checkPaidOnce(
  t: Test,
  world: World,
  { agent, to }: Withdrawal,
  statuses: Record<string, number>,
): Promise<void> {
  t.equal(await usdcOf(world, to), usdc, "withdrawn once");
  t.equal(await usdcOf(world, agent.walletAddress), FUNDS - usdc);
  t.same(await statusesOf(world, agent.id), statuses);
  const { rows } = await world.database.pool.query(
    "SELECT count(*)::int AS orders FROM withdrawal_orders WHERE agent_id = $1",
    [agent.id],
  );
  t.same(rows, [{ orders: 1 }]);
  await checkLedger(t, world, { agentId: agent.id, payee: to });
}

t.test("killed before the transaction, while another replica runs", async (t) => {
  // Longer than the test runs: no request counts as dead until the test ages it.
  const app = await testApp(t, { configure: (config) => void (config.settleWaitMs = 90_000) });
  const world = { ...app, owner: await signIn(app) };
  const make = (name: string, isKeyed = true) => signedWithdrawal(world, name, { isKeyed });
  const [reserved, signed, accepted] = [
    await make("reserved"),
    await make("signed"),
    await make("accepted"),
  ];
  const keyless = {
    reserved: await make("reserved", false),
    signed: await make("signed", false),
    accepted: await make("accepted", false),
  };
  const all = [reserved, signed, accepted, ...Object.values(keyless)];
  await killedMidway(
    t,
    world,
    all.map(({ name: point, ...request }) => ({ point, ...request })),
  );

  for (const withdrawal of [reserved, signed])
    await t.test(`at ${withdrawal.name}: counted until it counts as dead`, async (t) => {
      t.match(await execute(world, withdrawal), {
        status: 409,
        body: { code: "idempotency_in_progress" },
      });
      t.equal(await app.app.payments.sweepUnsigned({ olderThanSeconds: 600 }), 0, "too young");
      t.same(await statusesOf(world, withdrawal.agent.id), { reserved: 1 });
      t.equal(await available(world, withdrawal), FUNDS - usdc, "its money is not available");
      await age(world, withdrawal);
      const answers = await Promise.all([1, 2, 3].map(() => execute(world, withdrawal)));
      for (const { status, body } of answers.filter(({ status }) => status !== 200))
        t.match(
          [status, body],
          [409, { code: "idempotency_in_progress" }],
          "one pays, the rest get 409",
        );
      t.match(await execute(world, withdrawal), { status: 200, body: { success: true } });
      await checkPaidOnce(t, world, withdrawal, { settled: 1, voided: 1 });
    });

  for (const withdrawal of [keyless.reserved, keyless.signed])
    await t.test(`at ${withdrawal.name}, without a key`, async (t) => {
      t.match(await execute(world, withdrawal), {
        status: 409,
        body: { code: "withdrawal_replayed" },
      });
      t.equal(await available(world, withdrawal), FUNDS - usdc, "its money is not available");
      await age(world, withdrawal);
      t.equal(await app.app.payments.sweepUnsigned({ olderThanSeconds: 600 }), 1);
      t.equal(await available(world, withdrawal), FUNDS, "nothing was signed: available again");
      const answers = await Promise.all([1, 2, 3].map(() => execute(world, withdrawal)));
      const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
      t.same(statuses, [200, 409, 409], "the order is executed once");
      await checkPaidOnce(t, world, withdrawal, { settled: 1, voided: 1 });
    });

  await t.test("when accepted: it is paid without a repeat", async (t) => {
    for (const withdrawal of [accepted, keyless.accepted])
      await until(async () => (await statusesOf(world, withdrawal.agent.id))["settled"] === 1);
    const txHash = /^0x[0-9a-f]{64}$/;
    t.match(await execute(world, accepted), { status: 200, body: { success: true, txHash } });
    t.match(await execute(world, keyless.accepted), {
      status: 409,
      body: { code: "withdrawal_replayed" },
    });
    for (const withdrawal of [accepted, keyless.accepted])
      await checkPaidOnce(t, world, withdrawal, { settled: 1 });
  });

  await t.test("a request that resumes signing after the sweep sends nothing", async (t) => {
    const withdrawal = await make("late");
    app.app.paymentFaults.at = async (point) => {
      if (point === "signed") await app.app.payments.sweepUnsigned({ olderThanSeconds: 0 });
    };
    t.match(await execute(world, withdrawal), { status: 503 });
    delete app.app.paymentFaults.at;
    t.equal(await usdcOf(world, withdrawal.to), 0n);
    t.same(await statusesOf(world, withdrawal.agent.id), { voided: 1 });
    t.match(
      await execute(world, withdrawal),
      { status: 200 },
      "the same order can be executed, once",
    );
    await checkPaidOnce(t, world, withdrawal, { settled: 1, voided: 1 });
  });
});

/** Kills the only running process when its settlement engine reaches the point, and starts another one. */
async function killedSending(t: Test, point: FaultPoint) {
  const before = await testApp(t);
  const { chain, database } = before;
  const owner = await signIn(before);
  const withdrawal = await signedWithdrawal({ ...before, owner }, point, { isKeyed: true });
  await before.app.close();
  const env = { PURSER_TEST_HOLD_ENGINE_AT: point, LOG_LEVEL: "silent" };
  const doomed = await startReplica(t, { chain, database }, env);
  const held = new Promise((resolve) => doomed.child.once("message", resolve));
  const origin = doomed.url.replace("127.0.0.1", "localhost");
  const url = `${doomed.url}${withdrawal.path}`;
  const cut = t.rejects(
    post(url, { ...withdrawal.headers, origin }, withdrawal.body),
    "no response",
  );
  t.equal(await Promise.race([held, cut]), point, "held before the response");
  doomed.child.kill("SIGKILL");
  await doomed.ended;
  await cut;
  const after = await testApp(t, { chain, database, env: { SETTLE_WAIT_MS: "5000" } });
  const headers = { ...owner.headers, origin: after.config.publicUrl };
  return {
    world: { ...after, owner: { ...owner, headers } },
    withdrawal: { ...withdrawal, headers: { ...withdrawal.headers, ...headers } },
  };
}

/** Ends the lease of the killed process on its relayer lane. */
const freeLane = ({ database }: World) =>
  database.pool.query("UPDATE relayer_lanes SET lease_until = now() WHERE lease_until > now()");

/**
 * Only in the full tier: settlement/crash-recovery kills at the steps of the engine, and the simulation finds
 * "stored-transaction-is-not-sent-again" and "withdrawal-ignores-open-payments" with every change.
 */
const SENDING: FaultPoint[] = isFullTier
  ? ["claimed", "signed", "persisted", "broadcast", "mined", "before-final-write"]
  : [];

for (const point of SENDING)
  t.test(`killed while sending, at ${point}: another replica finishes it`, async (t) => {
    const { world, withdrawal } = await killedSending(t, point);
    await freeLane(world);
    // The outcome may still be unknown or the request in progress: repeat until there is a result.
    let answer = await execute(world, withdrawal);
    for (let turn = 0; answer.status !== 200 && turn < 100; turn += 1) {
      t.match(answer, {
        body: { code: /^(idempotency_in_progress|payment_status_unknown)$/ },
      });
      await until(async () => (await statusesOf(world, withdrawal.agent.id))["settled"] === 1);
      answer = await execute(world, withdrawal);
    }
    t.match(answer, { status: 200, body: { success: true, txHash: /^0x/ } });
    await checkPaidOnce(t, world, withdrawal, { settled: 1 });
  });

const neverSent = async (t: Test): Promise<void> => {
  const { world, withdrawal } = await killedSending(t, "claimed");
  const { chain, database } = world;
  t.equal(await available(world, withdrawal), FUNDS - usdc, "signed: the outcome is open");
  // The authorization has expired: the next block proves that it was not used.
  await database.pool.query(
    "UPDATE settlements SET valid_before = extract(epoch FROM now()) WHERE kind = 'withdrawal'",
  );
  t.equal(await available(world, withdrawal), FUNDS - usdc, "expiry alone proves nothing");
  await freeLane(world);
  await until(async () => {
    await chain.testClient.mine({ blocks: 1 });
    return (await statusesOf(world, withdrawal.agent.id))["submitted"] === undefined;
  });
  t.match(await execute(world, withdrawal), {
    status: 502,
    body: { code: "settlement_failed", txHash: null },
  });
  t.equal(await available(world, withdrawal), FUNDS);
  t.equal(await usdcOf(world, withdrawal.to), 0n);
  t.equal(await usdcOf(world, withdrawal.agent.walletAddress), FUNDS);
  await checkLedger(t, world, { agentId: withdrawal.agent.id, payee: withdrawal.to });
};
if (isFullTier)
  t.test("never sent and expired: the money is available only after proof", neverSent);
