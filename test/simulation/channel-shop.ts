// A seller that is paid through channels: it counts what it charges, claims it on the chain, and returns the rest. It may
// also lie, forget, fail or be gone.
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import { encodeFunctionData, type Address, type Hex } from "viem";
import { CHANNELS_ABI, type ChannelConfig } from "../helpers/batch-settlement.ts";
import type { Random } from "../helpers/random.ts";
import { depositData, idOf, signerOf } from "./channel-orders.ts";
import { CHANNELS } from "./chain/channels.ts";
import type { ChannelSale } from "./sales.ts";
import { inside } from "./time.ts";
import type { SimulatedRequest, SimulatedResponse } from "./undici.ts";
import { CHAIN_ID, Client, pause, USDC, type World } from "./world.ts";

type Response = SimulatedResponse | undefined;

interface Proof {
  accepted: Record<string, unknown>;
  payload: {
    type: "voucher" | "deposit" | "refund";
    channelConfig: ChannelConfig;
    voucher: { channelId: Hex; maxClaimableAmount: string; signature: Hex };
    deposit?: {
      amount: string;
      authorization: {
        erc3009Authorization: Record<"validAfter" | "validBefore", string> &
          Record<"salt" | "signature", Hex>;
      };
    };
  };
}

/** What a seller knows of a channel. */
interface Known {
  config: ChannelConfig;
  charged: bigint;
  /** The highest that it was shown. */
  ceiling: bigint;
  voucher: Hex | undefined;
}

/** What it does with one request that is paid well. */
type Manner =
  | "serves"
  | "fails"
  | "is silent"
  | "charges and breaks off"
  | "reports nothing"
  | "reports too much"
  | "reports another total"
  | "names another channel"
  | "claims another total";

const LIES: readonly Manner[] = [
  "reports too much",
  "reports another total",
  "names another channel",
  "claims another total",
];
/** With how often each is chosen. */
const KINDS: Readonly<Record<ChannelSale["kind"], readonly (readonly [Manner, number])[]>> = {
  honest: [["serves", 1]],
  forgetful: [["serves", 1]],
  greedy: [["serves", 1]],
  sloppy: [
    ["serves", 4],
    ["fails", 1],
    ["is silent", 1],
    ["charges and breaks off", 2],
    ["reports nothing", 1],
  ],
  liar: [["serves", 2], ...LIES.map((manner) => [manner, 1] as const)],
};

const NETWORK = `eip155:${CHAIN_ID}`;
const MISMATCH = "invalid_batch_settlement_evm_cumulative_amount_mismatch";
const COLLECTING: Address = "0x000000000000000000000000000000000c011ec8";
const BLOCKS_FOR_DEPOSIT = 8;

export class ChannelShop {
  readonly random: Random;
  readonly url: string;
  readonly sale: ChannelSale;
  /** It answers nothing any more. */
  isGone = false;
  readonly #world: World;
  readonly #client: Client;
  readonly #authorizer: Address;
  readonly #known = new Map<Hex, Known>();
  readonly #sent = new Set<string>();
  readonly #shown = new Set<string>();
  readonly #host: string;
  readonly #refunds: boolean;

  constructor(world: World, random: Random, sale: ChannelSale) {
    this.#world = world;
    this.random = random;
    this.sale = sale;
    this.#authorizer = `0x${(0xa17000000n + sale.priceAtomic).toString(16).padStart(40, "0")}`;
    this.#host = `channel-${sale.priceAtomic}.test`;
    this.#client = new Client(world.timeline, this.#host);
    this.#refunds = random.next() < 0.7;
    this.url = `https://${this.#host}/word`;
    world.network.servers.set(`https://${this.#host}`, (request) => {
      if (this.isGone)
        throw Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
      return inside(this.#client, () => this.#remembered(request));
    });
  }

  #note(text: string): void {
    this.#world.timeline.note(`${this.#host}: ${text}`);
  }

  /** Notes where a voucher that it was shown before is refused: then the service cannot know whether it was charged. */
  async #remembered(request: SimulatedRequest): Promise<Response> {
    const voucher = request.headers["payment-signature"] ?? "";
    const isAgain = this.#shown.has(voucher);
    if (voucher !== "") this.#shown.add(voucher);
    const response = await this.#answer(request);
    if (isAgain && response?.status === 402) this.sale.isRefusedAgain = true;
    return response;
  }

  async #answer({ url, headers }: SimulatedRequest): Promise<Response> {
    const header = headers["payment-signature"];
    if (header === undefined) return this.#asks();
    const { payload } = decodePaymentSignatureHeader(header) as unknown as Proof;
    const { channelConfig: config, voucher } = payload;
    const id = idOf(CHAIN_ID, config);
    const ceiling = BigInt(voucher.maxClaimableAmount);
    const isSigned =
      signerOf(CHAIN_ID, id, ceiling, voucher.signature) === config.payerAuthorizer.toLowerCase();
    if (!isSigned || id !== voucher.channelId || config.receiver.toLowerCase() !== this.sale.to)
      return this.#asks("invalid_batch_settlement_evm_voucher_signature");
    if (payload.type === "refund") return this.#returns(id, config);
    if (this.sale.kind === "forgetful" && this.random.next() < 0.3) this.#forgets(id);
    const known = this.#known.get(id) ?? {
      config,
      charged: this.#world.chain.channelOf(id).claimed,
      ceiling: 0n,
      voucher: undefined,
    };
    this.#known.set(id, known);
    if (ceiling !== known.charged + this.sale.priceAtomic) return this.#corrects(id, known);
    const manner = this.random.weighted(KINDS[this.sale.kind]);
    this.#note(`gets a voucher of ${ceiling} (${manner})`);
    const isKept =
      payload.type === "deposit" && (await this.#deposits(id, config, payload.deposit)) === "kept";
    if (!isKept && this.#world.chain.channelOf(id).balance < ceiling)
      return this.#asks("invalid_batch_settlement_evm_cumulative_exceeds_balance");
    // Another request may have been served while it waited for the deposit, and then what it knew was forgotten.
    const now = this.#known.get(id) ?? known;
    if (ceiling !== now.charged + this.sale.priceAtomic) return this.#corrects(id, now);
    if (ceiling > now.ceiling) Object.assign(now, { ceiling, voucher: voucher.signature });
    return this.#serves(id, now, { manner, ceiling, request: url.searchParams.get("n") ?? "" });
  }

  /** It goes on from what it has claimed: the rest is never claimed, so nobody pays it. */
  #forgets(id: Hex): void {
    this.#known.delete(id);
    const { claimed } = this.#world.chain.channelOf(id);
    for (const charge of [...this.sale.charges.values()].flat())
      if (charge.total > claimed) charge.isForgotten = true;
  }

  #serves(
    id: Hex,
    known: Known,
    { manner, ceiling, request }: { manner: Manner; ceiling: bigint; request: string },
  ): Response {
    if (manner === "fails") return { status: 500, body: "no" };
    if (manner === "is silent") return undefined;
    const { priceAtomic } = this.sale;
    // Without a voucher for it.
    if (manner === "claims another total")
      return this.#asks(MISMATCH, {
        channelState: {
          channelId: id,
          chargedCumulativeAmount: String(known.charged + 3n * priceAtomic),
        },
      });
    const isWhole = manner === "reports nothing" || this.random.next() < 0.5;
    const amount = isWhole ? priceAtomic : BigInt(this.random.int(0, Number(priceAtomic)));
    known.charged += amount;
    const charges = this.sale.charges.get(request) ?? [];
    this.sale.charges.set(request, [...charges, { ceiling, amount, total: known.charged }]);
    if (this.random.next() < 0.3) this.claimLater();
    if (manner === "charges and breaks off")
      throw Object.assign(new Error("the seller closes the connection"), { code: "ECONNRESET" });
    const total = known.charged + (manner === "reports another total" ? 1n : 0n);
    const report = {
      success: true,
      transaction: "",
      network: NETWORK,
      amount: "",
      extra: {
        chargedAmount: String(manner === "reports too much" ? priceAtomic + 1n : amount),
        channelState: {
          channelId: manner === "names another channel" ? `0x${"7".repeat(64)}` : id,
          chargedCumulativeAmount: String(total),
        },
      },
    };
    return {
      status: 200,
      headers: {
        "content-type": "application/json",
        ...(manner !== "reports nothing" && {
          "payment-response": encodePaymentResponseHeader(report as never),
        }),
      },
      body: '{"answer":42}',
    };
  }

  #asks(error = "pay", extra: object = {}): SimulatedResponse {
    const terms = {
      scheme: "batch-settlement",
      network: NETWORK,
      amount: String(this.sale.priceAtomic),
      asset: USDC,
      payTo: this.sale.to,
      maxTimeoutSeconds: 60,
      extra: {
        receiverAuthorizer: this.#authorizer,
        withdrawDelay: this.sale.delaySeconds,
        name: "USDC",
        version: "2",
        ...extra,
      },
    };
    const required = { x402Version: 2, error, resource: { url: this.url }, accepts: [terms] };
    return {
      status: 402,
      headers: { "payment-required": encodePaymentRequiredHeader(required as never) },
      body: "{}",
    };
  }

  #corrects(id: Hex, { charged, ceiling, voucher }: Known): Response {
    this.#note(`has charged ${charged}`);
    // Then two requests in a row have no response, and only the first of them was charged.
    if (this.sale.kind === "sloppy" && this.random.next() < 0.3) return undefined;
    return this.#asks(MISMATCH, {
      channelState: { channelId: id, chargedCumulativeAmount: String(charged) },
      ...(voucher && {
        voucherState: { signedMaxClaimable: String(ceiling), signature: voucher },
      }),
    });
  }

  /** Anybody may send it: a second time it has no effect. */
  async #deposits(
    id: Hex,
    config: ChannelConfig,
    deposit: Proof["payload"]["deposit"],
  ): Promise<"sent" | "kept"> {
    if (!deposit) return "sent";
    const before = this.#world.chain.channelOf(id).balance;
    const data = depositData(
      config,
      BigInt(deposit.amount),
      deposit.authorization.erc3009Authorization,
    );
    const send = (): void => this.#send(COLLECTING, data);
    const kept = this.#world.sales.keptDeposits;
    if (kept) {
      this.#note("keeps a deposit");
      kept.push(send);
      return "kept";
    }
    send();
    for (let waited = 0; waited < BLOCKS_FOR_DEPOSIT; waited += 1) {
      if (this.#world.chain.channelOf(id).balance > before) break;
      await pause(1_000);
    }
    return "sent";
  }

  #send(from: Address, data: Hex): void {
    this.#world.chain.sendAs(from, { to: CHANNELS, data });
  }

  claimLater(): void {
    const { timeline } = this.#world;
    timeline.after(this.random.int(0, 9_000), this.#client, "claims", () => this.claim());
  }

  /** All that it has charged; a greedy one all that it may. */
  claim(): void {
    const rows = [...this.#known.values()].flatMap(({ config, charged, ceiling, voucher }) => {
      const totalClaimed = this.sale.kind === "greedy" ? ceiling : charged;
      return voucher && totalClaimed > 0n && totalClaimed <= ceiling
        ? [
            {
              voucher: { channel: config, maxClaimableAmount: ceiling },
              signature: voucher,
              totalClaimed,
            },
          ]
        : [];
    });
    if (rows.length === 0) return;
    this.#note("claims");
    this.#send(
      this.#authorizer,
      encodeFunctionData({ abi: CHANNELS_ABI, functionName: "claim", args: [rows] }),
    );
    if (this.random.next() < 0.5)
      this.#send(
        COLLECTING,
        encodeFunctionData({
          abi: CHANNELS_ABI,
          functionName: "settle",
          args: [this.sale.to, USDC],
        }),
      );
  }

  /** What is left: it claims what it has charged, and returns the rest. */
  async #returns(id: Hex, config: ChannelConfig): Promise<Response> {
    if (!this.#refunds) return { status: 500, body: "no" };
    const { chain } = this.#world;
    this.#note("returns the rest");
    this.claim();
    for (let waited = 0; waited < BLOCKS_FOR_DEPOSIT; waited += 1) {
      await pause(1_000);
      const { balance, claimed } = chain.channelOf(id);
      const charged = this.#known.get(id)?.charged ?? claimed;
      if (claimed < charged && this.sale.kind !== "forgetful") continue;
      if (balance === claimed) break;
      const args = [config, balance - claimed] as const;
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "refund", args });
      if (!this.#sent.has(`${data} ${waited >> 2}`)) this.#send(this.#authorizer, data);
      this.#sent.add(`${data} ${waited >> 2}`);
    }
    const report = { success: true, transaction: "", network: NETWORK };
    return {
      status: 200,
      headers: { "payment-response": encodePaymentResponseHeader(report as never) },
      body: "{}",
    };
  }
}
