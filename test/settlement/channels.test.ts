// Goal: a process killed at any step loses nothing that was accepted for payment channels, and does nothing twice:
// deposits of both kinds, claims, settles and refunds.
import t, { type Test } from "tap";
import { keccak256, toHex, type Address, type Hex } from "viem";
import type {
  ChannelClaim,
  SchemeTerms,
  SignedAuthorization,
} from "../../server/core/authorization.ts";
import { accountsOf } from "../../server/core/gas.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import { readDeposit, readVoucher } from "../../server/schemes/batch-settlement/index.ts";
import { channelWorld, type OpenChannel } from "../facilitator/channel-bodies.ts";
import type { Body } from "../facilitator/payments.ts";
import {
  CHANNELS,
  CHANNELS_ABI,
  signClaims,
  signRefund,
  signVoucher,
} from "../helpers/batch-settlement.ts";
import { mineEvery, replaceAfter } from "../helpers/blocks.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { DEPTHS, doomedReplica, endLeases, FAULT_POINTS } from "../helpers/engine-crash.ts";
import { BRISK, request, startEngine } from "../helpers/engine.ts";
import { differingGasAccounts } from "../helpers/gas-accounts.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";

const POINTS: FaultPoint[] = isFullTier ? FAULT_POINTS : ["persisted"];
const HOLD = 10n ** 15n;

let steady: TestChain;
t.before(async () => {
  steady = await testChain(t, { blockTimeSeconds: 0.2 });
});
t.jobs = 2;

for (const point of POINTS)
  t.test(`killed at "${point}", then started again`, { timeout: 90_000 }, async (t) => {
    const made = await queued(t);
    await doomedReplica(made.chain, made.database.url, point);
    await endLeases(made.database);
    await expectAllDone(t, made);
  });

t.test("a reorganisation removes all of it", { timeout: 90_000 }, async (t) => {
  const made = await queued(t, await testChain(t));
  const { chain, database, requests, claimed, world } = made;
  await chain.testClient.setAutomine(false);
  const before = await chain.publicClient.getBlockNumber();
  const mining = mineEvery(t, chain, 200);
  const node = await made.start({ confirmations: 500, inclusionDepth: 1 });
  const settled = () =>
    Promise.all(requests.map(({ id }) => node.engine.settlement.wait(id, 25_000)));
  t.ok(
    (await settled()).every(({ status }) => status === "settled"),
    node.logText(),
  );
  await mining.pause();
  await replaceAfter(chain, before);
  // Without a block nothing settles again, so each is seen open.
  await until(async () => {
    const { rows } = await database.pool.query<{ open: boolean }>(
      "SELECT bool_and(status <> 'settled') AS open FROM settlements",
    );
    return rows[0]?.open === true;
  }, 15_000);
  mining.resume();
  t.ok(
    (await settled()).every(({ status }) => status === "settled"),
    node.logText(),
  );
  t.same(await world.stateOf(claimed), { balance: 10_000n, claimed: 700n });
  t.ok(node.corrections.length > 0);
  await node.stop();
  await expectAllDone(t, made);
});

/** One of each kind, accepted and not sent. */
async function queued(t: Test, shared = steady) {
  const chain = await withOwnAccounts(shared);
  const database = await testDatabase(t);
  const world = channelWorld(chain);
  const networks = NETWORKS.filter(({ chainId }) => chainId === chain.chainId).map((network) => ({
    ...network,
    usdc: { ...network.usdc, address: chain.usdc },
  }));
  const seller = world.seller();
  const other = world.seller();

  const deposited = await world.newChannel(seller);
  const byPermit2 = await world.newChannel(seller);
  await approvePermit2(chain, [byPermit2.payer]);
  const depositOf = async (channel: OpenChannel, method: "eip3009" | "permit2") => {
    const body: Body = await world.deposit(channel, { method });
    const voucher = readVoucher(body, networks);
    if ("reason" in voucher) throw new Error(voucher.message);
    const read = readDeposit(voucher);
    if ("reason" in read) throw new Error(read.message);
    return { ...read.authorization, signature: read.signature as Hex };
  };
  const orderOf = (
    from: Address,
    value: bigint,
    signature: Hex,
    terms: SchemeTerms,
  ): SignedAuthorization => ({
    chainId: chain.chainId,
    asset: chain.usdc,
    from,
    to: CHANNELS,
    value,
    validAfter: 0n,
    validBefore: 2n ** 64n,
    nonce: `channel:${keccak256(toHex(JSON.stringify(terms)))}`,
    terms,
    signature,
  });
  const rowOf = async (channel: OpenChannel, total: bigint) => ({
    voucher: { channel: channel.config, maxClaimableAmount: total },
    signature: await signVoucher(chain, channel.payer, channel.id, total),
    totalClaimed: total,
  });
  const claimOf = (row: Awaited<ReturnType<typeof rowOf>>): ChannelClaim => ({
    channel: row.voucher.channel,
    ceiling: `${row.totalClaimed}`,
    signature: row.signature,
    total: `${row.totalClaimed}`,
  });
  const claimed = await world.open(seller);
  const refunded = await world.open(seller);
  const settled = await world.open(other);
  const early = [await rowOf(settled, 250n)];
  const hash = await world.depositor.writeContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "claimWithSignature",
    args: [early, await signClaims(chain, other.authorizer, early)],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  const rows = [await rowOf(claimed, 700n)];
  const authorizations = [
    await depositOf(deposited, "eip3009"),
    await depositOf(byPermit2, "permit2"),
    orderOf(seller.receiver, 0n, await signClaims(chain, seller.authorizer, rows), {
      scheme: "channel-claim",
      claims: rows.map(claimOf),
      lead: { channelId: claimed.id, total: "700" },
    }),
    orderOf(other.receiver, 250n, "0x", { scheme: "channel-settle", claimed: "250" }),
    orderOf(
      refunded.payer.address,
      9_000n,
      await signRefund(chain, seller.authorizer, {
        channelId: refunded.id,
        nonce: 0n,
        amount: 9_000n,
      }),
      {
        scheme: "channel-refund",
        channelId: refunded.id,
        config: refunded.config,
        refundNonce: "0",
        claims: [],
      },
    ),
  ];
  const requests = authorizations.map((authorization) => request(authorization));
  for (const wanted of requests) {
    const accounts = accountsOf({ ...wanted.authorization, merchant: undefined });
    await acceptSettlements(database.pool, [{ ...wanted, gas: { accounts, hold: HOLD } }]);
  }
  const start = (depths = DEPTHS) =>
    startEngine(t, { databaseUrl: database.url, chain, timings: BRISK, ...depths });
  return {
    chain,
    database,
    world,
    requests,
    start,
    other,
    deposited,
    byPermit2,
    claimed,
    refunded,
  };
}

async function expectAllDone(t: Test, made: Awaited<ReturnType<typeof queued>>): Promise<void> {
  const { chain, database, world, requests, deposited, byPermit2, claimed, refunded, other } = made;
  const node = await made.start();
  for (const { id } of requests)
    t.match(
      await node.engine.settlement.wait(id, 25_000),
      { status: "settled", byOther: false },
      node.logText(),
    );
  for (const channel of [deposited, byPermit2])
    t.same(await world.stateOf(channel), { balance: 10_000n, claimed: 0n }, "deposited once");
  t.same(await world.stateOf(claimed), { balance: 10_000n, claimed: 700n });
  t.same(await world.stateOf(refunded), { balance: 1_000n, claimed: 0n }, "refunded once");
  t.equal(await chain.usdcOf(refunded.payer.address), 9_000n);
  t.equal(await chain.usdcOf(other.receiver), 250n);
  await untilFinal(database);
  t.same(await differingGasAccounts(database.pool), []);
}

const untilFinal = ({ pool }: TestDatabase) =>
  until(async () => {
    const { rowCount } = await pool.query("SELECT 1 FROM settlements WHERE final_at IS NULL");
    return rowCount === 0;
  }, 15_000);
