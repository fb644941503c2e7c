// Goal: a payment that failed in flight because the token was paused can be retried by its own caller after the
// pause, exactly once; and a refusal names its cause and stores nothing.
import t, { type Test } from "tap";
import { parseAbi } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestAppOptions } from "../helpers/app.ts";
import { until } from "../helpers/until.ts";
import { post, signedPayment, type Body } from "./payments.ts";

const ABI = parseAbi(["function pause()", "function unpause()", "function blacklist(address)"]);
const account = () => privateKeyToAccount(generatePrivateKey());

async function world(t: Test, timings: TestAppOptions["timings"] = {}) {
  const chainOptions = { blockTimeSeconds: 0.5 };
  const { app, chain, database } = await testApp(t, { chainOptions, timings });
  const payer = account();
  await chain.mint(payer.address, 10_000n);
  const token = async (functionName: "pause" | "unpause") => {
    const admin = chain.walletClient(chain.admin);
    const hash = await admin.writeContract({ address: chain.usdc, abi: ABI, functionName });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  const make = (over = {}): Promise<Body> =>
    signedPayment({ chain, payer, payTo: account().address, ...over });
  const settle = async (body: Body, key?: string) =>
    (
      await app.inject({
        method: "POST",
        url: "/api/x402/settle",
        payload: body,
        headers: key === undefined ? {} : { "idempotency-key": key },
      })
    ).json();
  /** Accepted while the token works; the token is paused before the relayer lane sends the payment. */
  const failedInFlight = async (key?: string) => {
    const body = await make();
    // The service makes its lane soon after its start.
    await until(async () => {
      const { rowCount } = await database.pool.query(
        "UPDATE relayer_lanes SET lease_until = 'infinity', lease_owner = 'x'",
      );
      return (rowCount ?? 0) > 0;
    });
    const settling = settle(body, key);
    await until(async () => {
      const { rowCount } = await database.pool.query("SELECT 1 FROM settlements");
      return (rowCount ?? 0) > 0;
    });
    await token("pause");
    await database.pool.query("UPDATE relayer_lanes SET lease_until = '-infinity'");
    return { body, first: await settling };
  };
  const rows = async () =>
    (
      await database.pool.query(
        `SELECT status, (SELECT count(*)::int FROM settlement_transactions) AS sent FROM settlements`,
      )
    ).rows;
  return { app, chain, payer, token, make, settle, failedInFlight, rows };
}

t.jobs = 2;
t.test("retried by its own caller, many times in parallel", { timeout: 90_000 }, async (t) => {
  const { token, settle, failedInFlight, rows } = await world(t);
  const { body, first } = await failedInFlight("the seller's");
  t.match(first, {
    success: false,
    errorReason: "invalid_exact_evm_transaction_simulation_failed",
    errorMessage: /paused/,
  });
  t.match(await settle(body, "the seller's"), { success: false, errorMessage: /paused/ });
  await token("unpause");
  t.match(
    await settle(body, "another's"),
    { success: false },
    "a caller with another key cannot retry it",
  );
  t.match(await rows(), [{ status: "failed", sent: 0 }]);
  const answers = await Promise.all(Array.from({ length: 8 }, () => settle(body, "the seller's")));
  t.ok(
    answers.every(({ success }) => success === true),
    "its own caller always gets the result",
  );
  t.match(await rows(), [{ status: "settled", sent: 1 }], "one row, one transaction");
});

t.test("without a key, success is returned once", { timeout: 90_000 }, async (t) => {
  const { token, settle, failedInFlight, rows } = await world(t);
  const { body, first } = await failedInFlight();
  t.match(first, { success: false, errorMessage: /paused/ });
  await token("unpause");
  const answers = await Promise.all(Array.from({ length: 6 }, () => settle(body)));
  t.equal(answers.filter(({ success }) => success === true).length, 1);
  t.match(await rows(), [{ status: "settled", sent: 1 }]);
});

t.test("retried once, not forever", { timeout: 90_000 }, async (t) => {
  const { app, token, settle, failedInFlight, rows } = await world(t);
  const { body } = await failedInFlight("k");
  await token("unpause");
  // As if the retry had failed in flight as well: the row is marked as retried.
  const { pool } = app;
  await pool.query("UPDATE settlements SET tried_again_at = now()");
  t.match(await settle(body, "k"), { success: false, errorMessage: /paused/ });
  t.match(await rows(), [{ status: "failed", sent: 0 }]);
});

t.test("refusals name their cause", { timeout: 60_000 }, async (t) => {
  const { app, chain, payer, token, make } = await world(t);
  const { timestamp } = await chain.publicClient.getBlock();
  // Valid from now by the local clock, but not yet by the newest block's.
  const early = await make({ validAfter: String(timestamp + 1n) });
  await until(() => Date.now() / 1_000 > Number(timestamp) + 1);
  const edge = await post(app, "verify", early);
  if (edge["isValid"] !== true)
    t.match(edge, { invalidReason: "invalid_exact_evm_payload_authorization_valid_after" });
  await token("pause");
  const body = await make();
  for (const operation of ["verify", "settle"] as const) {
    const answer = await post(app, operation, body);
    t.match(answer["invalidMessage"] ?? answer["errorMessage"], /paused/, operation);
    t.match(
      answer["invalidReason"] ?? answer["errorReason"],
      "invalid_exact_evm_transaction_simulation_failed",
    );
  }
  await token("unpause");
  const admin = chain.walletClient(chain.admin);
  const hash = await admin.writeContract({
    address: chain.usdc,
    abi: ABI,
    functionName: "blacklist",
    args: [payer.address],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  t.match(await post(app, "verify", body), { isValid: false, invalidMessage: /blocks the payer/ });
});

t.test("a token that stopped working as a token", { timeout: 60_000 }, async (t) => {
  const { chain, make, settle, rows } = await world(t, { chainStatusFreshMs: 0 });
  const body = await make();
  const code = await chain.publicClient.getCode({ address: chain.usdc });
  // Every call succeeds with empty data, so a simulation alone would find nothing wrong.
  await chain.testClient.setCode({ address: chain.usdc, bytecode: "0x00" });
  t.match(await settle(body), { success: false, errorMessage: /does not work as a token/ });
  t.same(await rows(), []);
  await chain.testClient.setCode({ address: chain.usdc, bytecode: code ?? "0x" });
  t.match(await settle(body), { success: true });
  t.match(await rows(), [{ status: "settled", sent: 1 }]);
});

t.test("a relayer without gas money", { timeout: 60_000 }, async (t) => {
  const { chain, make, settle, rows } = await world(t, { chainStatusFreshMs: 0 });
  const body = await make();
  const { address } = chain.relayer;
  await chain.testClient.setBalance({ address, value: 0n });
  t.match(await settle(body), { success: false, errorMessage: /cannot pay for gas/ });
  t.same(await rows(), []);
  await chain.testClient.setBalance({ address, value: 10n ** 20n });
  t.match(await settle(body), { success: true });
  t.match(await rows(), [{ status: "settled", sent: 1 }]);
});
