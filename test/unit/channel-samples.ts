// A seller's channel in memory, a facilitator that answers from a list, and a clock that the test sets.
import type {
  PaymentPayload,
  PaymentRequirements,
  SettleResponse,
  VerifyResponse,
} from "@x402/core/types";
import { computeChannelId } from "@x402/evm/batch-settlement/client";
import { mock } from "node:test";
import type { Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { settledPayment, type Settled } from "../../packages/paywall/src/answers.ts";
import { ChannelFacilitator } from "../../packages/paywall/src/channel-facilitator.ts";
import {
  channelSettings,
  type ChannelOptions,
} from "../../packages/paywall/src/channel-settings.ts";
import {
  OneProcessChannelStore,
  type Channel,
  type ChannelState,
  type ChannelStore,
} from "../../packages/paywall/src/channel-store.ts";
import { ChannelClaims } from "../../packages/paywall/src/channel-claims.ts";
import { ChannelCharges } from "../../packages/paywall/src/channels.ts";
import type { PresentedPayment } from "../../packages/paywall/src/resource.ts";
import type { Address, ChannelConfig } from "../../packages/paywall/src/voucher.ts";
import { signVoucher } from "../helpers/batch-settlement.ts";

export const NOW = Date.UTC(2026, 0, 1);
export const NETWORK = "eip155:5042002";
export const PRICE = 1_000n;
export const payer = privateKeyToAccount(`0x${"11".repeat(32)}`);
export const authorizer = privateKeyToAccount(`0x${"22".repeat(32)}`);
export const address = (digit: string): Address => `0x${digit.repeat(40)}`;
export const CONFIG: ChannelConfig = {
  payer: payer.address,
  payerAuthorizer: payer.address,
  receiver: address("2"),
  receiverAuthorizer: authorizer.address,
  token: address("3"),
  withdrawDelay: 900,
  salt: `0x${"00".repeat(32)}`,
};
export const idOf = (config: ChannelConfig): Hex =>
  computeChannelId(config, NETWORK).toLowerCase() as Hex;
export const ID = idOf(CONFIG);

export const stateOf = (over: Partial<ChannelState> = {}): ChannelState => ({
  balance: "10000",
  totalClaimed: "0",
  withdrawRequestedAt: 0,
  refundNonce: "0",
  ...over,
});

/** A record with a voucher for all that was charged. */
export const channelOf = (over: Partial<Channel> = {}): Channel => ({
  id: ID,
  network: NETWORK,
  config: CONFIG,
  charged: "1000",
  voucher: { ceiling: "1000", signature: `0x${"ab".repeat(65)}` },
  state: stateOf(),
  stateReadMs: NOW,
  unclaimedSinceMs: NOW,
  usedMs: NOW,
  ...over,
});

export const termsOf = (over: Partial<PaymentRequirements> = {}): PaymentRequirements => ({
  scheme: "batch-settlement",
  network: NETWORK,
  asset: CONFIG.token,
  amount: String(PRICE),
  payTo: CONFIG.receiver,
  maxTimeoutSeconds: 60,
  extra: { receiverAuthorizer: authorizer.address, withdrawDelay: 900 },
  ...over,
});

interface Sent {
  type?: "voucher" | "deposit" | "refund";
  ceiling: bigint;
  deposit?: string;
  amount?: unknown;
  config?: ChannelConfig;
  body?: unknown;
  resourceKey?: string;
  terms?: PaymentRequirements;
  signature?: Hex;
}

export async function paymentOf(sent: Sent): Promise<PresentedPayment> {
  const {
    type = "voucher",
    ceiling,
    deposit,
    amount,
    config = CONFIG,
    body,
    terms = termsOf(),
  } = sent;
  const channelId = idOf(config);
  const chainId = Number(NETWORK.slice("eip155:".length));
  const signature = sent.signature ?? (await signVoucher({ chainId }, payer, channelId, ceiling));
  return {
    resource: { price: { channel: "0.001" } },
    request: { method: "GET", url: "https://shop.example/", path: "/", headers: {}, body },
    resourceKey: sent.resourceKey ?? "GET /",
    payload: {
      x402Version: 2,
      accepted: terms,
      payload: {
        type,
        channelConfig: config,
        voucher: { channelId, maxClaimableAmount: String(ceiling), signature },
        ...(deposit !== undefined && { deposit: { amount: deposit } }),
        ...(amount !== undefined && { amount }),
      },
    },
    terms,
    required: { x402Version: 2, resource: { url: "https://shop.example/" }, accepts: [terms] },
    version: 2,
  } as unknown as PresentedPayment;
}

type Verified = Pick<VerifyResponse, "isValid" | "invalidReason" | "extra">;

/** Answers in turn; the last one stays. Everything that was sent is recorded. */
export class Answers {
  readonly verified: PaymentPayload[] = [];
  readonly settled: PaymentPayload[] = [];
  readonly terms: PaymentRequirements[] = [];
  verifies: (Verified | Error)[] = [{ isValid: true, extra: { ...stateOf() } }];
  settles: (Partial<SettleResponse> | Error)[] = [{}];

  async verify(payload: PaymentPayload, terms: PaymentRequirements) {
    this.verified.push(payload);
    this.terms.push(terms);
    return next(this.verifies);
  }
  async settle(payload: PaymentPayload, terms: PaymentRequirements): Promise<SettleResponse> {
    this.settled.push(payload);
    this.terms.push(terms);
    const over = next(this.settles);
    return {
      success: true,
      transaction: `0x${"cc".repeat(32)}`,
      network: NETWORK,
      payer: payer.address,
      ...over,
    };
  }
  async getSupported() {
    return { kinds: [], extensions: [], signers: {} };
  }
}

function next<Item>(answers: (Item | Error)[]): Item {
  const answer = answers.length > 1 ? answers.shift() : answers[0];
  if (answer instanceof Error) throw answer;
  return answer as Item;
}

export interface Shop {
  store: ChannelStore;
  answers: Answers;
  faults: [message: string, what: string][];
  claims: ChannelClaims;
  charges: ChannelCharges;
  /** What was handed on as settled: the amount, and the response. */
  settled: [charged: string, response: SettleResponse][];
  record(id?: Hex): Promise<Channel>;
  put(over?: Partial<Channel>): Promise<void>;
}

export function openShop(
  options: Partial<ChannelOptions> & { receiverAuthorizer?: never } = {},
): Shop {
  const store = options.store ?? new OneProcessChannelStore();
  const settings = channelSettings({ receiverAuthorizer: authorizer, ...options, store });
  const answers = new Answers();
  const facilitator = new ChannelFacilitator(answers);
  const faults: Shop["faults"] = [];
  const settled: Shop["settled"] = [];
  const claims = new ChannelClaims({
    settings,
    facilitator,
    payees: [],
    onFault: (error, what) =>
      faults.push([error instanceof Error ? error.message : String(error), what]),
  });
  const charges = new ChannelCharges({
    settings,
    facilitator,
    claims,
    settled(response, charged, { version }): Settled {
      settled.push([charged, response]);
      const payment = settledPayment(response, version);
      return { kind: "settled", ...payment, receipt: {} as never, delivered: async () => payment };
    },
  });
  return {
    store,
    answers,
    faults,
    claims,
    charges,
    settled,
    record: async (id = ID) => (await store.find(id))?.channel as Channel,
    async put(over = {}) {
      const channel = channelOf(over);
      await store.save(channel, (await store.find(channel.id))?.version ?? 0);
    },
  };
}

/** The time is NOW until the test moves it. */
export function withClock(t: { teardown(work: () => void): void }): (ms: number) => void {
  mock.timers.enable({ apis: ["Date"], now: NOW });
  t.teardown(() => mock.timers.reset());
  return (ms) => mock.timers.setTime(ms);
}
