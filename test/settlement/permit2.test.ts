// Goal: Permit2 payments are settled, found and proven as reliably as EIP-3009's, although no event contains their nonce.
// Tier: full (tries every variant of one feature).
import t, { type Test } from "tap";
import { encodeFunctionData, multicall3Abi, parseAbi, type Hex } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import { MULTICALL3 } from "../../server/local/chain-contracts.ts";
import { testChain, type TestAccount } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
  TOKEN_ABI,
} from "../helpers/engine.ts";
import {
  approvePermit2,
  authorizePermit2,
  EXACT_PROXY,
  exactSettleData,
  PERMIT2,
  PERMIT2_ABI,
  permit2Message,
  signPermit2,
} from "../helpers/permit2.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { denying, PASSING, rpcProxy } from "../helpers/rpc-proxy.ts";

/** An ERC-1271 wallet that accepts every signature. */
const YES = "0x631626ba7e60e01b60005260206000f3";

async function world(t: Test, count: number) {
  const chain = await testChain(t, { blockTimeSeconds: 0.2 });
  const database = await testDatabase(t);
  const proxy = await rpcProxy(t, chain.rpcUrl, { keepsCalls: false });
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    confirmations: 2,
    rpcUrls: [proxy.url],
    blockTimeMs: 200,
    timings: BRISK,
  });
  const accounts = payers(count);
  await chain.mint(
    accounts.map(({ address }) => address),
    100_000n,
  );
  await approvePermit2(chain, accounts);
  const send = async (from: PrivateKeyAccount | TestAccount, to: Hex, data: Hex) => {
    const hash = await chain.walletClient(from).sendTransaction({ to, data, gas: 1_000_000n });
    return chain.publicClient.waitForTransactionReceipt({ hash });
  };
  const balanceOf = (account: Hex): Promise<bigint> => chain.usdcOf(account);
  return { chain, database, node, proxy, accounts, send, balanceOf };
}

t.test("settled by us", { timeout: 90_000 }, async (t) => {
  const { chain, database, node, accounts, balanceOf } = await world(t, 12);
  const [busy, coded, ...others] = accounts;
  if (!busy || !coded) throw new Error("no account");
  await chain.testClient.setCode({ address: coded.address, bytecode: YES });
  const to = randomAddress();
  const signed = await Promise.all([
    // They differ only in their nonces: their logs are identical.
    ...Array.from({ length: 6 }, () => authorizePermit2(chain, busy, { to })),
    authorizePermit2(chain, coded, { to }),
    ...others.map((payer) => authorizePermit2(chain, payer, { to })),
  ]);
  const requests = signed.map((authorization) => request(authorization));
  const outcomes = await Promise.all(requests.map((wanted) => settle(node, wanted, 40_000)));
  t.same(
    outcomes.map(({ status }) => status),
    requests.map(() => "settled"),
    node.logText(),
  );
  t.equal(await balanceOf(to), 1_000n * BigInt(requests.length));
  const { rows } = await database.pool.query<{ payers: string[] }>(
    `SELECT array_agg(from_address) AS payers FROM settlement_transactions GROUP BY lane_address, lane_nonce`,
  );
  t.ok(
    rows.some(({ payers }) => payers.length > 1),
    "others share a transaction",
  );
  for (const { payers } of rows) {
    t.ok(
      payers.filter((payer) => payer === busy.address.toLowerCase()).length <= 1,
      "two with identical logs never share one",
    );
    if (payers.includes(coded.address.toLowerCase()))
      t.equal(payers.length, 1, "a payer with code goes alone");
  }
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("used by others", { timeout: 180_000 }, async (t) => {
  const { chain, database, node, proxy, accounts, send, balanceOf } = await world(t, 10);
  const [thirdParty] = chain.accounts;
  if (!thirdParty) throw new Error("no account");
  const at = (index: number): PrivateKeyAccount => accounts[index] as PrivateKeyAccount;
  const to = randomAddress();
  const watched = async (index: number) => {
    const authorization = await authorizePermit2(chain, at(index), { to });
    const wanted = request(authorization, { relay: false });
    await node.engine.settlement.accept(node.pool, wanted);
    // Wait for a block later than the one of its acceptance.
    const number = await chain.publicClient.getBlockNumber();
    await until(async () => (await chain.publicClient.getBlockNumber()) > number);
    return { wanted, data: exactSettleData(authorization.message, authorization.signature) };
  };
  const batched = (calls: readonly Hex[]): Hex =>
    encodeFunctionData({
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [calls.map((callData) => ({ target: EXACT_PROXY, allowFailure: true, callData }))],
    });
  const unclear: string[] = [];
  const outcomeOf = (id: string) => node.engine.settlement.wait(id, 20_000, { look: true });

  await t.test("a third party's call is a settlement", async (t) => {
    const { wanted, data } = await watched(0);
    const { transactionHash } = await send(thirdParty, EXACT_PROXY, data);
    t.match(await outcomeOf(wanted.id), {
      status: "settled",
      txHash: transactionHash,
      byOther: true,
    });
  });

  await t.test("one in a third party's batch is a settlement", async (t) => {
    const { wanted, data } = await watched(1);
    const other = await authorizePermit2(chain, at(1), { to, amount: 7n });
    const { transactionHash } = await send(
      thirdParty,
      MULTICALL3,
      batched([exactSettleData(other.message, other.signature), data]),
    );
    t.match(await outcomeOf(wanted.id), { status: "settled", txHash: transactionHash });
  });

  await t.test("a lookup without a result proves nothing", async (t) => {
    for (const method of ["eth_getTransactionByHash", "eth_getTransactionReceipt"]) {
      const { wanted, data } = await watched(7);
      proxy.behave = denying([method]);
      const { transactionHash, blockNumber } = await send(thirdParty, EXACT_PROXY, data);
      // Past the confirmation depth.
      await until(async () => ((await node.heads.refresh()).number ?? 0n) > blockNumber + 2n);
      t.match(await node.engine.settlement.wait(wanted.id, 2_000, { look: true }), {
        status: "pending",
      });
      proxy.behave = PASSING;
      t.match(await outcomeOf(wanted.id), { status: "settled", txHash: transactionHash }, method);
    }
  });

  await t.test("relayed so that it is ambiguous: neither paid nor failed", async (t) => {
    const { wanted, data } = await watched(8);
    const before = await balanceOf(to);
    await send(
      thirdParty,
      MULTICALL3,
      // Like any third-party contract: calls inside `aggregate` are not decoded.
      encodeFunctionData({
        abi: parseAbi([
          "function aggregate((address target, bytes callData)[] calls) payable returns (uint256, bytes[])",
        ]),
        functionName: "aggregate",
        args: [[{ target: EXACT_PROXY, callData: data }]],
      }),
    );
    const twins = await watched(8);
    const twin = await authorizePermit2(chain, at(8), { to });
    const { blockNumber } = await send(
      thirdParty,
      MULTICALL3,
      batched([exactSettleData(twin.message, twin.signature), twins.data]),
    );
    t.equal(await balanceOf(to), before + 3_000n, "the money moved");
    await until(async () => (await node.heads.refresh()).number > blockNumber + 2n);
    unclear.push(wanted.id, twins.wanted.id);
    for (const id of unclear) {
      t.match(await node.engine.settlement.wait(id, 2_000, { look: true }), { status: "pending" });
      t.ok(
        node.logs.some(
          ({ level, fields }) =>
            level === "error" && (fields as { settlement?: string }).settlement === id,
        ),
        "the operator gets an error log",
      );
    }
  });

  await t.test("a payment that only looks like it does not count", async (t) => {
    const { wanted, data } = await watched(2);
    // The same payer pays the same amount to the same payee, after invalidating this nonce.
    const twin = await authorizePermit2(chain, at(2), { to });
    const { nonce } = wanted.authorization.message;
    await send(
      at(2),
      PERMIT2,
      encodeFunctionData({
        abi: PERMIT2_ABI,
        functionName: "invalidateUnorderedNonces",
        args: [nonce >> 8n, 1n << (nonce & 255n)],
      }),
    );
    const before = await balanceOf(to);
    await send(
      thirdParty,
      MULTICALL3,
      batched([exactSettleData(twin.message, twin.signature), data]),
    );
    t.equal(await balanceOf(to), before + 1_000n, "one of the two paid");
    t.match(await outcomeOf(wanted.id), { status: "failed", reason: "permit2_invalid_nonce" });
  });

  await t.test("one transfer never proves two payments", async (t) => {
    const { wanted } = await watched(9);
    const { message } = wanted.authorization;
    // The same payer, payee and amount by an EIP-3009 authorization: that one is paid.
    const own = request(await authorize(chain, at(9), { to, value: message.permitted.amount }), {
      relay: false,
    });
    await node.engine.settlement.accept(node.pool, own);
    const { from, value, validAfter, validBefore, nonce, signature } = own.authorization;
    // A token that returns true to every call and moves nothing: the proxy emits its event anyway.
    const worthless = randomAddress();
    await chain.testClient.setCode({ address: worthless, bytecode: "0x600160005260206000f3" });
    const about = permit2Message(chain, at(9).address, { to });
    about.permitted.token = worthless;
    const badSignature = await signPermit2(chain, at(8), message);
    const calls = [
      // Not the payer's signature.
      { target: EXACT_PROXY, callData: exactSettleData(message, badSignature) },
      {
        target: chain.usdc,
        callData: encodeFunctionData({
          abi: TOKEN_ABI,
          functionName: "transferWithAuthorization",
          args: [from, to, value, validAfter, validBefore, nonce, signature],
        }),
      },
      {
        target: EXACT_PROXY,
        callData: exactSettleData(about, await signPermit2(chain, at(9), about)),
      },
    ];
    const given = encodeFunctionData({
      abi: PERMIT2_ABI,
      functionName: "invalidateUnorderedNonces",
      args: [message.nonce >> 8n, 1n << (message.nonce & 255n)],
    });
    const before = await balanceOf(to);
    await chain.testClient.setIntervalMining({ interval: 0 });
    const hashes = [
      await chain.walletClient(thirdParty).sendTransaction({
        to: MULTICALL3,
        data: encodeFunctionData({
          abi: multicall3Abi,
          functionName: "aggregate3",
          args: [calls.map((call) => ({ ...call, allowFailure: true }))],
        }),
        gas: 1_000_000n,
      }),
      await chain.walletClient(at(9)).sendTransaction({ to: PERMIT2, data: given, gas: 200_000n }),
    ];
    await chain.testClient.mine({ blocks: 1 });
    await chain.testClient.setIntervalMining({ interval: 1 });
    const [batch, last] = await Promise.all(
      hashes.map((hash) => chain.publicClient.waitForTransactionReceipt({ hash })),
    );
    t.equal(batch?.blockNumber, last?.blockNumber, "one block");
    t.ok(
      batch?.logs.some(({ address }) => address.toLowerCase() === EXACT_PROXY.toLowerCase()),
      "the proxy emitted its event",
    );
    t.equal(await balanceOf(to), before + 1_000n, "paid once");
    t.match(await outcomeOf(own.id), { status: "settled", txHash: batch?.transactionHash });
    t.match(await outcomeOf(wanted.id), { status: "failed", reason: "permit2_invalid_nonce" });
  });

  await t.test("a nonce that another payment used is no settlement", async (t) => {
    const { wanted } = await watched(3);
    const { nonce } = wanted.authorization.message;
    const other = await authorizePermit2(chain, at(3), { to: randomAddress(), nonce });
    await send(thirdParty, EXACT_PROXY, exactSettleData(other.message, other.signature));
    t.match(await outcomeOf(wanted.id), {
      status: "failed",
      reason: "permit2_invalid_nonce",
      message: /used the nonce in block/,
    });
  });

  await t.test("used before it was presented: a replay", async (t) => {
    const authorization = await authorizePermit2(chain, at(4), { to });
    const { blockNumber } = await send(
      thirdParty,
      EXACT_PROXY,
      exactSettleData(authorization.message, authorization.signature),
    );
    await until(async () => (await node.heads.refresh()).number >= blockNumber);
    t.match(await settle(node, request(authorization)), {
      status: "failed",
      reason: "permit2_invalid_nonce",
    });
  });

  await t.test("an unused payment expires after the second of its deadline", async (t) => {
    const deadline = BigInt(Math.floor(Date.now() / 1_000) + 3);
    const authorization = await authorizePermit2(chain, at(5), { to, deadline });
    t.equal(authorization.validBefore, deadline + 1n);
    const wanted = request(authorization, { relay: false });
    await node.engine.settlement.accept(node.pool, wanted);
    t.match(await outcomeOf(wanted.id), { status: "expired", reason: "permit2_deadline_expired" });
  });

  await t.test("a Permit2 nonce is one key, and distinct from EIP-3009's", async (t) => {
    const first = await authorizePermit2(chain, at(6), { to });
    const nonce = first.message.nonce;
    const second = await authorizePermit2(chain, at(6), { to, nonce, amount: 2_000n });
    const signature = await signPermit2(chain, at(6), second.message);
    const one = await node.engine.settlement.accept(node.pool, request(first));
    const two = await node.engine.settlement.accept(node.pool, request({ ...second, signature }));
    t.ok(one.created);
    t.notOk(two.created, "two payments with one nonce are one row");
    t.equal(two.settlement.id, one.settlement.id);
    t.match(await node.engine.settlement.wait(one.settlement.id, 20_000), { status: "settled" });
    await t.rejects(
      database.pool.query("UPDATE settlements SET terms = NULL WHERE id = $1", [one.settlement.id]),
      /settlements_nonce_is_its_schemes/,
    );
  });
  const { rows } = await database.pool.query<{ id: string }>(
    "SELECT id FROM settlements WHERE status IN ('queued', 'submitted') ORDER BY id",
  );
  t.same(
    rows.map(({ id }) => id),
    unclear.toSorted(),
    "only the ambiguous ones stay open",
  );
  await expectLedgerEqualsChain(t, chain, database.pool, { isAllFinal: false });
});
