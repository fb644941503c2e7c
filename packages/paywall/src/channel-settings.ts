/** The seller's options for payment channels, and the scheme's part of the terms. */
import { durationMs } from "./again.ts";
import type { ChannelStore } from "./channel-store.ts";
import { parsePayable } from "./money.ts";
import { EXACT_EIP3009, type PaywallScheme } from "./scheme.ts";
import { CHANNEL_SCHEME, isAddress, NO_ADDRESS, type Address, type Hex } from "./voucher.ts";

/** The key that signs claims and refunds of the seller's channels: a viem account, for example. */
export interface ReceiverAuthorizer {
  readonly address: Address;
  signTypedData(typedData: never): Promise<Hex>;
}

export interface ChannelOptions {
  /** `PostgresChannelStore`, or `OneProcessChannelStore` where charges may be lost at a restart. */
  store: ChannelStore;
  /**
   * Signs claims and refunds. A channel names it for good, so keep its key until every channel is empty. Without it the
   * facilitator's is used, if it announces one.
   */
  receiverAuthorizer?: ReceiverAuthorizer | undefined;
  /** How long a payer that takes its deposit back has to wait: "15m" to "30d". Default "1d". */
  withdrawDelay?: string;
  /** The longest time that a charge waits to be claimed. At most a third of the delay. Default "10m". */
  claimEvery?: string;
  /** USDC: a channel with more unclaimed charges is claimed at once. Default "1". */
  claimAbove?: string;
  /** USDC: the deposit that payers are advised to make. Default: ten times the price. */
  minDeposit?: string;
}

/** The options, checked and in the units of the code. */
export interface ChannelSettings {
  store: ChannelStore;
  authorizer: { address: Address; sign: (typedData: object) => Promise<Hex> } | undefined;
  withdrawDelaySeconds: number;
  claimEveryMs: number;
  claimAboveAtomic: bigint;
  minDepositAtomic: bigint | undefined;
}

const MIN_DELAY_MS = 900_000;
const MAX_DELAY_MS = 2_592_000_000;
/** By default, and in the protocol's own server. */
const DEPOSITED_REQUESTS = 10n;

export function channelSettings(options: ChannelOptions): ChannelSettings {
  const { store, receiverAuthorizer, withdrawDelay = "1d", claimEvery = "10m" } = options;
  const delayMs = durationMs(withdrawDelay, "channels.withdrawDelay");
  if (delayMs < MIN_DELAY_MS || delayMs > MAX_DELAY_MS)
    throw new Error('the paywall\'s "channels.withdrawDelay" must be from "15m" to "30d"');
  const claimEveryMs = durationMs(claimEvery, "channels.claimEvery");
  if (claimEveryMs * 3 > delayMs)
    throw new Error(
      'the paywall\'s "channels.claimEvery" must be at most a third of "channels.withdrawDelay": a payer gets back what is not claimed by then',
    );
  const atomic = (name: "claimAbove" | "minDeposit", text: string): bigint => {
    const parsed = parsePayable(text);
    if (!parsed.ok) throw new Error(`the paywall's "channels.${name}" ${parsed.reason}`);
    return parsed.atomic;
  };
  return {
    store,
    authorizer: receiverAuthorizer && {
      address: receiverAuthorizer.address,
      sign: (typedData) => receiverAuthorizer.signTypedData(typedData as never),
    },
    withdrawDelaySeconds: delayMs / 1_000,
    claimEveryMs,
    claimAboveAtomic: atomic("claimAbove", options.claimAbove ?? "1"),
    minDepositAtomic:
      options.minDeposit === undefined ? undefined : atomic("minDeposit", options.minDeposit),
  };
}

/** The scheme's part of the terms. */
export function channelScheme(settings: ChannelSettings): PaywallScheme {
  const { authorizer, withdrawDelaySeconds, minDepositAtomic } = settings;
  return {
    // Deposits move as those payments do.
    ...EXACT_EIP3009,
    name: CHANNEL_SCHEME,
    isMetered: true,
    announcedExtra: ({ amount }, { receiverAuthorizer }) => {
      const named = authorizer?.address ?? receiverAuthorizer;
      if (!isAddress(named) || named === NO_ADDRESS) return undefined;
      const price = BigInt(amount);
      const least = minDepositAtomic ?? price * DEPOSITED_REQUESTS;
      return {
        receiverAuthorizer: named,
        withdrawDelay: withdrawDelaySeconds,
        minDeposit: (least > price ? least : price).toString(),
      };
    },
  };
}
