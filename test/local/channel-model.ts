// What the payment channels' contract should do, in a few lines: for a random sequence of calls, which are refused and
// with which error, and where the money is after each.
import * as fc from "fast-check";

interface ChannelModel {
  deposited: bigint;
  claimed: bigint;
  refunded: bigint;
  withdrawn: bigint;
  refundNonce: bigint;
  pending: { amount: bigint; isDue: boolean } | undefined;
}
export interface WorldModel {
  channels: ChannelModel[];
  /** Paid to the receiver, by receiver. */
  settled: bigint[];
}

/** Channels 0 and 1 differ only in their salt. Channel 2 has another receiver, and no authorizer of its payer. */
export const RECEIVER_OF = [0, 0, 1] as const;
export const CHANNEL_COUNT = RECEIVER_OF.length;
const AUTHORIZED_CHANNELS = [true, true, false] as const;

export interface Row {
  channel: number;
  ceiling: bigint;
  total: bigint;
  voucher: "good" | "of another key" | "of another channel" | "cut";
}
type Sender = "payer" | "payerAuthorizer" | "receiver" | "receiverAuthorizer" | "stranger";
export type Step =
  | { call: "deposit"; channel: number; amount: bigint }
  | { call: "claim"; sender: Sender; rows: Row[] }
  | { call: "claimWithSignature"; rows: Row[]; signer: "authorizer" | "stranger" }
  | { call: "settle"; receiver: number }
  | { call: "refund"; sender: Sender; channel: number; amount: bigint }
  | {
      call: "refundWithSignature";
      channel: number;
      amount: bigint;
      ahead: bigint;
      signer: "authorizer" | "stranger";
    }
  | { call: "claim and refund"; row: Row; amount: bigint }
  | { call: "initiateWithdraw"; sender: Sender; channel: number; amount: bigint }
  | { call: "finalizeWithdraw"; sender: Sender; channel: number }
  | { call: "wait" };

export const emptyWorld = (): WorldModel => ({
  channels: Array.from({ length: CHANNEL_COUNT }, () => ({
    deposited: 0n,
    claimed: 0n,
    refunded: 0n,
    withdrawn: 0n,
    refundNonce: 0n,
    pending: undefined,
  })),
  settled: [0n, 0n],
});

export const balanceOf = (channel: ChannelModel): bigint =>
  channel.deposited - channel.refunded - channel.withdrawn;
const freeOf = (channel: ChannelModel): bigint => balanceOf(channel) - channel.claimed;
const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);

export const claimedBy = (world: WorldModel, receiver: number): bigint =>
  world.channels
    .filter((_, index) => RECEIVER_OF[index] === receiver)
    .reduce((sum, { claimed }) => sum + claimed, 0n);

/** The world after the step, or the error's name: then nothing changed. */
export function after(world: WorldModel, step: Step): WorldModel | string {
  const next = structuredClone(world);
  return change(next, step) ?? next;
}

function change(world: WorldModel, step: Step): string | undefined {
  const at = (index: number): ChannelModel => world.channels[index] as ChannelModel;
  switch (step.call) {
    case "deposit":
      if (step.amount === 0n) return "ZeroDeposit";
      at(step.channel).deposited += step.amount;
      break;
    case "claim":
      if (step.rows.length === 0) return "EmptyBatch";
      return first(step.rows, (row) =>
        isReceiverSide(step.sender, row.channel)
          ? claim(at(row.channel), row)
          : "NotAuthorizedToClaim",
      );
    case "claimWithSignature":
      if (step.rows.length === 0) return "EmptyBatch";
      if (step.signer === "stranger") return "InvalidSignature";
      return first(step.rows, (row) => claim(at(row.channel), row));
    case "settle":
      world.settled[step.receiver] = claimedBy(world, step.receiver);
      break;
    case "refund":
      return isReceiverSide(step.sender, step.channel)
        ? refund(at(step.channel), step.amount)
        : "NotAuthorizedToRefund";
    case "refundWithSignature":
      if (step.ahead !== 0n) return "InvalidRefundNonce";
      if (step.signer === "stranger") return "InvalidSignature";
      return refund(at(step.channel), step.amount);
    case "claim and refund":
      return claim(at(step.row.channel), step.row) ?? refund(at(step.row.channel), step.amount);
    case "initiateWithdraw": {
      const channel = at(step.channel);
      if (!isPayerSide(step.sender, step.channel)) return "InvalidChannel";
      if (step.amount === 0n) return "NothingToWithdraw";
      if (channel.pending) return "WithdrawalAlreadyPending";
      if (step.amount > freeOf(channel)) return "WithdrawAmountExceedsAvailable";
      channel.pending = { amount: step.amount, isDue: false };
      break;
    }
    case "finalizeWithdraw": {
      const channel = at(step.channel);
      if (!isPayerSide(step.sender, step.channel)) return "NotAuthorizedToFinalizeWithdraw";
      if (!channel.pending) return "WithdrawalNotPending";
      if (!channel.pending.isDue) return "WithdrawDelayNotElapsed";
      channel.withdrawn += least(channel.pending.amount, freeOf(channel));
      channel.pending = undefined;
      break;
    }
    case "wait":
      for (const { pending } of world.channels) if (pending) pending.isDue = true;
      break;
  }
  return undefined;
}

function claim(channel: ChannelModel, { ceiling, total, voucher }: Row): string | undefined {
  if (total <= channel.claimed) return undefined;
  if (total > ceiling) return "ClaimExceedsCeiling";
  if (total > balanceOf(channel)) return "ClaimExceedsBalance";
  if (voucher !== "good") return "InvalidSignature";
  channel.claimed = total;
  return undefined;
}

function refund(channel: ChannelModel, amount: bigint): string | undefined {
  if (amount === 0n) return "ZeroRefund";
  channel.refundNonce += 1n;
  const refunded = least(amount, freeOf(channel));
  channel.refunded += refunded;
  if (channel.pending && refunded > 0n) {
    channel.pending.amount -= refunded;
    if (channel.pending.amount <= 0n) channel.pending = undefined;
  }
  return undefined;
}

/** "receiver" is the one of channels 0 and 1. */
const isReceiverSide = (sender: Sender, channel: number): boolean =>
  sender === "receiverAuthorizer" || (sender === "receiver" && RECEIVER_OF[channel] === 0);
const isPayerSide = (sender: Sender, channel: number): boolean =>
  sender === "payer" || (sender === "payerAuthorizer" && AUTHORIZED_CHANNELS[channel] === true);

function first(rows: Row[], tried: (row: Row) => string | undefined): string | undefined {
  for (const row of rows) {
    const refusal = tried(row);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

// Small amounts, so that equal ones, and those one too large, are frequent.
const amount = fc.bigInt({ min: 0n, max: 30n });
const channel = fc.nat({ max: CHANNEL_COUNT - 1 });
const receiverSide = fc.constantFrom<Sender>("receiver", "receiverAuthorizer", "stranger", "payer");
const payerSide = fc.constantFrom<Sender>("payer", "payer", "payerAuthorizer", "receiver");
const signer = fc.constantFrom("authorizer", "authorizer", "authorizer", "stranger");
const row: fc.Arbitrary<Row> = fc.record({
  channel,
  ceiling: amount,
  total: amount,
  voucher: fc.constantFrom(
    "good",
    "good",
    "good",
    "good",
    "of another key",
    "of another channel",
    "cut",
  ),
});
/** Mostly claims that can succeed. */
const plausible: fc.Arbitrary<Row> = fc
  .record({ channel, ceiling: amount, below: fc.bigInt({ min: 0n, max: 3n }) })
  .map(({ channel, ceiling, below }) => ({
    channel,
    ceiling,
    total: ceiling > below ? ceiling - below : ceiling,
    voucher: "good",
  }));
const rows = fc.array(fc.oneof(row, plausible, plausible), { maxLength: 3 });

export const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.record({ call: fc.constant("deposit"), channel, amount }) },
    { weight: 2, arbitrary: fc.record({ call: fc.constant("claim"), sender: receiverSide, rows }) },
    { weight: 4, arbitrary: fc.record({ call: fc.constant("claimWithSignature"), rows, signer }) },
    {
      weight: 2,
      arbitrary: fc.record({ call: fc.constant("settle"), receiver: fc.nat({ max: 1 }) }),
    },
    fc.record({ call: fc.constant("refund"), sender: receiverSide, channel, amount }),
    fc.record({
      call: fc.constant("refundWithSignature"),
      channel,
      amount,
      ahead: fc.constantFrom(0n, 0n, 0n, 1n, -1n),
      signer,
    }),
    fc.record({ call: fc.constant("claim and refund"), row: fc.oneof(row, plausible), amount }),
    {
      weight: 2,
      arbitrary: fc.record({
        call: fc.constant("initiateWithdraw"),
        sender: payerSide,
        channel,
        amount,
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({ call: fc.constant("finalizeWithdraw"), sender: payerSide, channel }),
    },
    { weight: 2, arbitrary: fc.record({ call: fc.constant("wait") }) },
  ) as fc.Arbitrary<Step>,
  { minLength: 25, maxLength: 40 },
);
