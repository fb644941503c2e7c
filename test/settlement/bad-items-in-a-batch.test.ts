// Goal: in a batch of 100 with seven bad ones, the good ones settle, the front-run one is settled by the third party's transaction, and each of the rest fails with its own reason.
import t from "tap";
import type { Hex } from "viem";
import { cancelCalldata, transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  signCancel,
  startEngine,
  TOKEN_ABI,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const COUNT = 100;

t.test("seven bad ones among a hundred", { timeout: 60_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const [thirdParty] = chain.accounts;
  if (!thirdParty) throw new Error("no account");
  const outsider = chain.walletClient(thirdParty);
  const send = async (data: Hex) => {
    const hash = await outsider.sendTransaction({ to: chain.usdc, data });
    return chain.publicClient.waitForTransactionReceipt({ hash });
  };

  const to = randomAddress();
  const accounts = payers(COUNT);
  const at = (index: number) => {
    const account = accounts[index];
    if (!account) throw new Error("no such payer");
    return account;
  };
  await chain.mint(
    accounts.slice(0, 99).map((account) => account.address),
    10_000n,
  ); // The last one is empty.
  const requests = await Promise.all(
    accounts.map(async (payer, index) => {
      const isExpired = index === 94;
      const validBefore = BigInt(Math.floor(Date.now() / 1_000) + (isExpired ? -5 : 600));
      const signed = await authorize(chain, payer, { to, validBefore });
      // Signed by another key than the payer's.
      if (index === 95)
        return request({ ...(await authorize(chain, at(0), { to })), from: payer.address });
      return request(signed);
    }),
  );
  const wanted = (index: number) => {
    const found = requests[index];
    if (!found) throw new Error("no such request");
    return found;
  };
  const relayed = (index: number) => {
    const { authorization } = wanted(index);
    return send(transferCalldata(authorization, authorization.signature));
  };

  // 96: its nonce is used before it is presented; 97: its payer is blocklisted.
  const used = await relayed(96);
  const blocked = await chain.walletClient(chain.admin).writeContract({
    address: chain.usdc,
    abi: TOKEN_ABI,
    functionName: "blacklist",
    args: [at(97).address],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash: blocked });
  const usedBlock = await chain.publicClient.getBlock({ blockNumber: used.blockNumber });
  await until(() => Date.now() > Number(usedBlock.timestamp) * 1_000 + 2_000);

  // Between the check and the send, 93 is canceled by its payer and 98 is front-run by a third party.
  let frontRun: Hex | undefined;
  let isFirst = true;
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    fault: async (point) => {
      if (point !== "signed" || !isFirst) return;
      isFirst = false;
      const { nonce } = wanted(93).authorization;
      const cancel = await signCancel(chain, at(93), nonce);
      await send(cancelCalldata(at(93).address, nonce, cancel));
      frontRun = (await relayed(98)).transactionHash;
    },
  });
  const outcomes = await Promise.all(requests.map((one) => settle(node, one, 30_000)));

  const good = outcomes.filter((outcome) => outcome.status === "settled");
  t.equal(good.length, 94, "93 good ones and the front-run one");
  t.match(outcomes[98], { status: "settled", txHash: frontRun, byOther: true });
  const reasonOf = (index: number) => {
    const outcome = outcomes[index];
    return outcome && "reason" in outcome
      ? `${outcome.status}: ${outcome.reason}`
      : outcome?.status;
  };
  t.equal(reasonOf(93), "failed: invalid_exact_evm_nonce_already_used", "canceled in between");
  t.equal(reasonOf(94), "expired: invalid_exact_evm_payload_authorization_valid_before", "expired");
  t.equal(reasonOf(95), "failed: invalid_exact_evm_signature", "wrong signature");
  t.equal(reasonOf(96), "failed: invalid_exact_evm_nonce_already_used", "used before");
  t.equal(reasonOf(97), "failed: invalid_exact_evm_transaction_simulation_failed", "blocklisted");
  t.equal(reasonOf(99), "failed: invalid_exact_evm_insufficient_balance", "empty wallet");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("two payments of a wallet that can pay one", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain });
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 1_500n);
  const requests = await Promise.all(
    [1, 2].map(async () =>
      request(await authorize(chain, payer, { to: randomAddress(), value: 1_000n })),
    ),
  );
  const outcomes = await Promise.all(requests.map((one) => settle(node, one)));
  t.same(outcomes.map((outcome) => outcome.status).sort(), ["failed", "settled"]);
  const { rows } = await database.pool.query(
    "SELECT count(*)::int AS count FROM settlement_transactions",
  );
  t.same(rows, [{ count: 1 }], "preflight removed the unpayable one before it cost gas");
  await expectLedgerEqualsChain(t, chain, database.pool);
});
