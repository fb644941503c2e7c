/**
 * Closes channels of agents' wallets: asks the receiver for the rest, and otherwise withdraws it after the channel's delay.
 * Nobody has to watch: each look reads the chain and does the next step, so it goes on after restarts, in any process.
 *
 * ask       the receiver's API for a refund, which also claims what it has charged
 * begin     the withdrawal, if the receiver did not return the rest
 * finish    it, when its delay is over; the receiver can still claim until then
 * closed    when the chain shows, at a final block, that nothing is left to come back
 */
import { keccak256, toHex, type Address, type Hex } from "viem";
import type { ChannelConfig, SignedAuthorization } from "../../core/authorization.ts";
import { CHANNELS, type ChannelState } from "../../schemes/batch-settlement/index.ts";

/** A channel that is to be closed, with its deposits. */
export interface ClosingChannel {
  agentId: string;
  id: Hex;
  chainId: number;
  config: ChannelConfig;
  reason: string;
  ceiling: bigint;
  charged: bigint;
  voucher: Hex | null;
  url: string | null;
  refundTries: number;
  /** Final deposits, and how many are not final yet. */
  depositedAtomic: bigint;
  openDeposits: number;
  /** The newest block with one of the final deposits. */
  depositBlock: bigint;
}

/** The channel as of the newest block, and as of the newest final one. */
interface ShownStates {
  newest: ChannelState;
  final: ChannelState;
  finalBlock: bigint;
  timeSeconds: bigint;
}

interface ClosingDeps {
  /** Those whose time to look at has come. Channels that are used no more begin to close. */
  due(): Promise<ClosingChannel[]>;
  states(channel: ClosingChannel): Promise<ShownStates | undefined>;
  /** Asks the receiver's API to return the rest; false if it did not. */
  askForRefund(channel: ClosingChannel): Promise<boolean>;
  /** Gives a step of the withdrawal to the engine; the same step once. */
  accept(channel: ClosingChannel, order: SignedAuthorization): Promise<void>;
  store: {
    lookAgain(channel: ClosingChannel, how: { afterMs: number; hasAsked: boolean }): Promise<void>;
    returned(channel: ClosingChannel, amount: bigint): Promise<void>;
    returnsAt(channel: ClosingChannel, at: Date): Promise<void>;
    closed(channel: ClosingChannel, ended: { claimed: bigint; returned: bigint }): Promise<void>;
  };
  log: { info(fields: object, message: string): void; warn(fields: object, message: string): void };
}

/** A receiver is asked so often before the withdrawal begins without it. */
const REFUND_TRIES = 2;
/** A transaction needs a few blocks. */
const NEXT_LOOK_MS = 10_000;
const LATER_MS = 60_000;
/** How long a step stays valid; after that it is given to the engine again. */
const STEP_SECONDS = 3_600n;

type Step =
  | { kind: "wait"; forMs: number }
  | { kind: "ask" }
  | { kind: "begin"; amount: bigint }
  | { kind: "finish"; amount: bigint }
  | { kind: "closed"; claimed: bigint };

/** The next step, by what the chain shows. */
export function nextStep(
  channel: Pick<ClosingChannel, "openDeposits" | "reason" | "url" | "refundTries" | "config">,
  { newest, final, timeSeconds }: Omit<ShownStates, "finalBlock">,
): Step {
  // A deposit under way would be left behind.
  if (channel.openDeposits > 0) return { kind: "wait", forMs: NEXT_LOOK_MS };
  const left = newest.balance - newest.totalClaimed;
  if (left === 0n) {
    const isFinal = final.balance === final.totalClaimed && final.balance === newest.balance;
    return isFinal
      ? { kind: "closed", claimed: final.totalClaimed }
      : { kind: "wait", forMs: NEXT_LOOK_MS };
  }
  if (newest.withdrawRequestedAt !== 0n) {
    const readyAt = newest.withdrawRequestedAt + BigInt(channel.config.withdrawDelay);
    return timeSeconds >= readyAt
      ? { kind: "finish", amount: left }
      : { kind: "wait", forMs: Math.min(Number(readyAt - timeSeconds) * 1_000, LATER_MS) };
  }
  const mayAsk = channel.reason !== "seller_broke_rules" && channel.url !== null;
  return mayAsk && channel.refundTries < REFUND_TRIES
    ? { kind: "ask" }
    : { kind: "begin", amount: left };
}

export class Closing {
  readonly #deps: ClosingDeps;

  constructor(deps: ClosingDeps) {
    this.#deps = deps;
  }

  /** Looks at every channel that is due. One that fails does not hold up the others. */
  async run(): Promise<void> {
    for (const channel of await this.#deps.due())
      await this.#look(channel).catch((err: unknown) =>
        this.#deps.log.warn({ err, channelId: channel.id }, "a channel was not closed yet"),
      );
  }

  async #look(channel: ClosingChannel): Promise<void> {
    const { store } = this.#deps;
    const again = (afterMs: number, hasAsked = false) =>
      store.lookAgain(channel, { afterMs, hasAsked });
    // Before anything else, so that another process does not do the same meanwhile.
    await again(LATER_MS);
    const states = await this.#deps.states(channel);
    if (!states) return;
    // In a block before the deposit, as an endpoint that is behind shows it, all of it would seem to have come back.
    if (states.finalBlock < channel.depositBlock) return again(NEXT_LOOK_MS);
    const returned = channel.depositedAtomic - states.final.balance;
    if (channel.openDeposits === 0 && returned > 0n) await store.returned(channel, returned);
    const begunAt = states.newest.withdrawRequestedAt;
    if (begunAt !== 0n)
      await store.returnsAt(
        channel,
        new Date((Number(begunAt) + channel.config.withdrawDelay) * 1_000),
      );
    const step = nextStep(channel, states);
    switch (step.kind) {
      case "wait":
        return again(step.forMs);
      case "ask": {
        const isReturned = await this.#deps.askForRefund(channel);
        return again(isReturned ? NEXT_LOOK_MS : 0, true);
      }
      case "closed":
        await store.closed(channel, { claimed: step.claimed, returned });
        return this.#deps.log.info(
          { channelId: channel.id, agentId: channel.agentId },
          "a channel is closed",
        );
      default:
        await this.#deps.accept(channel, withdrawal(channel, step, states.timeSeconds));
        return again(NEXT_LOOK_MS);
    }
  }
}

/**
 * A step of the withdrawal as the engine sends it: once in its time, whichever process gives it. After a claim of the receiver's
 * the contract refuses to begin with the former amount, so beginning with another is another step.
 */
function withdrawal(
  { id: channelId, chainId, config }: ClosingChannel,
  { kind: step, amount }: Extract<Step, { kind: "begin" | "finish" }>,
  timeSeconds: bigint,
): SignedAuthorization {
  const period = timeSeconds / STEP_SECONDS;
  const what = step === "begin" ? `${step} ${amount}` : step;
  const name = `channel withdrawal ${what} ${channelId} ${period}`;
  return {
    chainId,
    asset: config.token,
    from: config.payer,
    to: CHANNELS.toLowerCase() as Address,
    value: amount,
    validAfter: 0n,
    validBefore: (period + 2n) * STEP_SECONDS,
    nonce: `channel:${keccak256(toHex(name))}`,
    signature: "0x",
    terms: {
      scheme: "channel-withdraw",
      step,
      channelId,
      config,
      facilitator: config.payerAuthorizer,
    },
  };
}
