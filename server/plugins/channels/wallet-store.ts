/** The statements of an agent's channels. What decides is in prisma/functions. */
import type { Address, Hex } from "viem";
import type { ChannelConfig } from "../../core/authorization.ts";
import { bytea, type Sql } from "../../infra/db/pool.ts";
import {
  atomicOf,
  databaseNow,
  placeOf,
  readKeyset,
  secondsAfter,
  type Db,
} from "../../infra/db/prisma.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import type { ClosingChannel } from "./closing.ts";
import type { ChannelOrder } from "../../schemes/batch-settlement/paying.ts";
import type { StoredSnapshot } from "../guardrails/store.ts";
import { readFacts } from "../guardrails/rules.ts";
import type { PaymentKey } from "../payments/idempotency.ts";

export async function voucherSigned(
  sql: Sql,
  { agentId, paymentId, voucher }: PaymentKey & { voucher: Hex },
): Promise<void> {
  // SQL: part of every payment through a channel; it calls a function.
  await sql.query({
    name: "voucher-signed",
    text: "SELECT purser_voucher_signed($1, $2, $3::bytea)",
    values: [agentId, paymentId, bytea(Buffer.from(voucher.slice(2), "hex"))],
  });
}

export async function voucherAgain(
  sql: Sql,
  { agentId, paymentId, seconds }: PaymentKey & { seconds: number },
): Promise<boolean> {
  // SQL: calls a function.
  const { rows } = await sql.query<{ taken: boolean }>(
    "SELECT purser_voucher_again($1, $2, $3) AS taken",
    [agentId, paymentId, seconds],
  );
  return rows[0]?.taken ?? false;
}

export async function channelCorrected(
  sql: Sql,
  correction: PaymentKey & {
    total: bigint;
    ceiling: bigint;
    voucher: Hex | null;
    wasShown: boolean;
  },
): Promise<void> {
  const { agentId, paymentId, total, ceiling, voucher, wasShown } = correction;
  // SQL: calls a function.
  await sql.query(
    "SELECT purser_channel_corrected($1, $2, $3::numeric, $4::numeric, $5::bytea, $6::boolean)",
    [
      agentId,
      paymentId,
      String(total),
      String(ceiling),
      voucher && bytea(Buffer.from(voucher.slice(2), "hex")),
      wasShown,
    ],
  );
}

/** A payment whose voucher was signed, and its channel now. */
export interface StoredVoucher {
  order: Omit<ChannelOrder, "deposit">;
  voucher: Hex;
  priceAtomic: bigint;
  /** What the receiver had charged before it. */
  chargedBefore: bigint;
  /** What it charged for it; null: not known. */
  chargedAtomic: bigint | null;
  /** It is final that this is not known: why. */
  undecided: string | undefined;
  /** The channel is being closed: when its withdrawal can be finished, if that has begun. */
  closing: { returnsAt: Date | null } | undefined;
  depositId: string | undefined;
  balanceAtomic: bigint;
}

export async function findVoucher(
  db: Db,
  { agentId, paymentId }: PaymentKey,
): Promise<StoredVoucher | undefined> {
  const payment = await db.payment.findUnique({
    where: { agentId_id: { agentId, id: paymentId } },
    include: { agent: { select: { walletAddress: true } } },
  });
  if (!payment?.voucher || payment.channelId === null || payment.ceiling === null) return undefined;
  const channel = await db.channel.findUnique({
    where: { agentId_id: { agentId, id: payment.channelId } },
  });
  const facts = readFacts((payment.policy ?? {}) as StoredSnapshot);
  if (!channel || !facts.channel) return undefined;
  const config = configIn(channel, payment.agent.walletAddress as Address);
  return {
    order: { chainId: Number(channel.chainId), config, ceiling: atomicOf(payment.ceiling) },
    voucher: `0x${Buffer.from(payment.voucher).toString("hex")}`,
    priceAtomic: facts.price ?? 0n,
    chargedBefore: BigInt(facts.channel.charged),
    chargedAtomic: payment.charged === null ? null : atomicOf(payment.charged),
    undecided:
      payment.failureCode === "charge_not_known" ? (payment.failureDetail ?? "") : undefined,
    closing: channel.status === "closing" ? { returnsAt: channel.returnsAt } : undefined,
    depositId: facts.channel.depositId,
    balanceAtomic: BigInt(facts.channel.balance) + BigInt(facts.channel.deposit ?? "0"),
  };
}

const configIn = (
  channel: {
    receiver: string;
    receiverAuthorizer: string;
    signer: string;
    asset: string;
    withdrawDelay: number;
    salt: string;
  },
  payer: Address,
): ChannelConfig => ({
  payer,
  payerAuthorizer: channel.signer as Address,
  receiver: channel.receiver as Address,
  receiverAuthorizer: channel.receiverAuthorizer as Address,
  token: channel.asset as Address,
  withdrawDelay: channel.withdrawDelay,
  salt: channel.salt as Hex,
});

/** What was deposited into these channels, for good or not yet: the chain's newest final block lacks the latter. */
async function readDeposits(db: Db, channels: readonly { agentId: string; id: string }[]) {
  const deposits = await db.payment.findMany({
    select: { agentId: true, channelId: true, amount: true, finalAt: true, blockNumber: true },
    where: {
      kind: "deposit",
      OR: channels.map(({ agentId, id: channelId }) => ({ agentId, channelId })),
      status: { in: ["reserved", "submitted", "unknown", "settled"] },
    },
  });
  return ({ agentId, id }: { agentId: string; id: string }) => {
    const own = deposits.filter((one) => one.agentId === agentId && one.channelId === id);
    const final = own.filter(({ finalAt }) => finalAt !== null);
    const sumOf = (some: typeof own) =>
      some.reduce((sum, { amount }) => sum + atomicOf(amount), 0n);
    const block = final.reduce(
      (newest, { blockNumber }) =>
        blockNumber !== null && blockNumber > newest ? blockNumber : newest,
      0n,
    );
    return { all: sumOf(own), final: sumOf(final), openCount: own.length - final.length, block };
  };
}

const MAX_DUE = 50;

/** Channels to be closed whose time to look at has come, and that no request uses. */
export async function closingChannels(db: Db): Promise<ClosingChannel[]> {
  const now = await databaseNow(db);
  const channels = await db.channel.findMany({
    where: { status: "closing", lookAt: { lte: now }, busyUntil: { lte: now } },
    orderBy: { lookAt: "asc" },
    take: MAX_DUE,
    include: { agent: { select: { walletAddress: true } } },
  });
  if (channels.length === 0) return [];
  const depositsIn = await readDeposits(db, channels);
  return channels.map((channel) => {
    const { agentId, id, voucher } = channel;
    const deposits = depositsIn(channel);
    return {
      agentId,
      id: id as Hex,
      chainId: Number(channel.chainId),
      config: configIn(channel, channel.agent.walletAddress as Address),
      reason: channel.reason ?? "",
      ceiling: atomicOf(channel.ceiling),
      charged: atomicOf(channel.charged),
      voucher: voucher && `0x${Buffer.from(voucher).toString("hex")}`,
      url: channel.url,
      refundTries: channel.refundTries,
      depositedAtomic: deposits.final,
      openDeposits: deposits.openCount,
      depositBlock: deposits.block,
    };
  });
}

export async function lookAgain(
  db: Db,
  { agentId, id }: ClosingChannel,
  { afterMs, hasAsked }: { afterMs: number; hasAsked: boolean },
): Promise<void> {
  const lookAt = secondsAfter(await databaseNow(db), afterMs / 1_000);
  await db.channel.updateMany({
    where: { agentId, id, status: "closing" },
    data: { lookAt, ...(hasAsked && { refundTries: { increment: 1 } }) },
  });
}

/** Notes when the withdrawal that has begun can be finished. */
export async function noteReturnsAt(
  db: Db,
  { agentId, id }: ClosingChannel,
  returnsAt: Date,
): Promise<void> {
  await db.channel.updateMany({
    where: { agentId, id, status: "closing", OR: [{ returnsAt: null }, { NOT: { returnsAt } }] },
    data: { returnsAt },
  });
}

export async function noteReturned(
  db: Db,
  { agentId, id }: ClosingChannel,
  returned: bigint,
): Promise<void> {
  await db.channel.updateMany({
    where: { agentId, id, returned: { lt: String(returned) } },
    data: { returned: String(returned) },
  });
}

export async function channelClosed(
  sql: Sql,
  { agentId, id }: ClosingChannel,
  { claimed, returned }: { claimed: bigint; returned: bigint },
): Promise<void> {
  // SQL: calls a function.
  await sql.query("SELECT purser_channel_closed($1, $2, $3::numeric, $4::numeric)", [
    agentId,
    id,
    String(claimed),
    String(returned),
  ]);
}

/** Money that nobody uses must not lie in escrow. */
const UNUSED_DAYS = 30;

/** Closes channels that are used no more: nobody used them for long, or their key is no longer the one for new channels. */
export async function closeUnused(sql: Sql, signer: Address | undefined): Promise<void> {
  // SQL: the reason depends on the row, in one scan of the open channels.
  await sql.query(
    `UPDATE channels
        SET status = 'closing', reason = CASE WHEN signer <> $1 THEN 'key_changed' ELSE 'unused' END
      WHERE status = 'open' AND (signer <> $1
         OR used_at < clock_timestamp() - $2 * interval '1 day' AND busy_until < clock_timestamp())`,
    [signer ?? null, UNUSED_DAYS],
  );
}

/** Uses no channel of this agent any more, or not this one. Returns how many are closing because of it. */
export async function beginClosing(
  db: Db,
  { agentId, channelId }: { agentId: string; channelId?: string | undefined },
): Promise<number> {
  const { count } = await db.channel.updateMany({
    where: { agentId, status: "open", ...(channelId !== undefined && { id: channelId }) },
    data: { status: "closing", reason: "owner" },
  });
  return count;
}

export interface ChannelRow extends Place {
  agentId: string;
  chainId: bigint;
  receiver: Address;
  withdrawDelay: number;
  status: "open" | "closing" | "closed";
  reason: string | null;
  depositedAtomic: bigint;
  ceilingAtomic: bigint;
  chargedAtomic: bigint;
  returnedAtomic: bigint;
  url: string | null;
  usedAt: Date;
  closedAt: Date | null;
  returnsAt: Date | null;
}

/** In escrow beyond what is signed for. */
export function heldIn(row: ChannelRow): bigint {
  const held = row.depositedAtomic - row.returnedAtomic - row.ceilingAtomic;
  return row.status === "closed" || held < 0n ? 0n : held;
}

/** An agent's channels, newest first. Returns one row more than the page. */
export async function listChannels(
  db: Db,
  { agentId, page }: { agentId: string; page: PageRequest },
): Promise<ChannelRow[]> {
  const stored = await readKeyset(page, (where, order) =>
    db.channel.findMany({ where: { AND: [{ agentId }, where] }, ...order }),
  );
  const depositsIn = await readDeposits(db, stored);
  return stored.map((channel) => ({
    ...placeOf(channel),
    agentId: channel.agentId,
    chainId: channel.chainId,
    receiver: channel.receiver as Address,
    withdrawDelay: channel.withdrawDelay,
    status: channel.status as ChannelRow["status"],
    reason: channel.reason,
    depositedAtomic: depositsIn(channel).all,
    ceilingAtomic: atomicOf(channel.ceiling),
    chargedAtomic: atomicOf(channel.charged),
    returnedAtomic: atomicOf(channel.returned),
    url: channel.url,
    usedAt: channel.usedAt,
    closedAt: channel.closedAt,
    returnsAt: channel.returnsAt,
  }));
}
