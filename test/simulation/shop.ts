// A seller's server: asks for a price, and gets paid by itself, through our facilitator, late, or never. What it answers
// and what it does are two things.
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import type { Address, Hex } from "viem";
import type { Random } from "../helpers/random.ts";
import { randomHex, relayData } from "./signed-payments.ts";
import type { Fetched, Presented } from "./sales.ts";
import { inside } from "./time.ts";
import type { SimulatedRequest, SimulatedResponse } from "./undici.ts";
import { CHAIN_ID, Client, pause, USDC, type World } from "./world.ts";

interface Proof {
  accepted: Record<string, unknown>;
  payload: {
    signature: Hex;
    authorization: Record<"from" | "to" | "nonce", Hex> &
      Record<"value" | "validAfter" | "validBefore", string>;
  };
}

type Response = SimulatedResponse | undefined;
/** What the seller does with a proof. A later proof of the same payment is answered in the same manner. */
type Manner = (shop: Shop, proof: Proof) => Response | Promise<Response>;

const NETWORK = `eip155:${CHAIN_ID}`;
const COLLECTOR: Address = "0x000000000000000000000000000000000c011ec7";
const FAILED: SimulatedResponse = { status: 500, body: "no" };
const HIGH_TIP_WEI = 20_000_000_000n;
/** Longer than an agent's fetch waits for its payment. */
const LATE_MS = 20_000;

const MANNERS: Readonly<Record<string, Manner>> = {
  honest: async (shop, proof) => shop.delivered(await shop.settle(proof, ["a"])),
  "two keys": async (shop, proof) => shop.delivered(await shop.settle(proof, ["a", "b"])),
  own: async (shop, proof) => shop.delivered(await shop.collected(proof)),
  "takes and fails": async (shop, proof) => {
    await (shop.random.next() < 0.5 ? shop.settle(proof, ["a"]) : shop.collected(proof));
    return FAILED;
  },
  fails: () => FAILED,
  "fails and collects": (shop, proof) => {
    shop.collectLater(proof, 8_000);
    return FAILED;
  },
  silent: (shop, proof) => {
    if (shop.random.next() < 0.6) shop.collectLater(proof, 20_000);
    return undefined;
  },
  late: (shop, proof) => {
    const fromMs = shop.random.next() < 0.6 ? LATE_MS : 0;
    shop.collectLater(proof, 50_000, fromMs);
    return shop.content();
  },
  never: (shop) => shop.content(),
  lies: (shop, proof) => {
    if (shop.random.next() < 0.4) shop.collectLater(proof, 40_000);
    return shop.content(randomHex(shop.random, 32));
  },
  "asks for more": (shop, proof) => {
    if (shop.random.next() < 0.4) shop.collectLater(proof, 10_000);
    return shop.price();
  },
  closes: (shop, proof) => {
    if (shop.random.next() < 0.6) shop.collectLater(proof, 10_000);
    throw Object.assign(new Error("the seller closes the connection"), { code: "ECONNRESET" });
  },
  "holds blocks up": (shop, proof) => {
    void shop.collectAfterWait(proof);
    return FAILED;
  },
  "outlives the cancel": (shop, proof) => {
    shop.collectAfterCancel(proof);
    return FAILED;
  },
};

export class Shop {
  readonly random: Random;
  readonly url: string;
  readonly manner: string;
  readonly #world: World;
  readonly #fetched: Fetched;
  readonly #client: Client;
  readonly #maxTimeoutSeconds: number;
  readonly #changesItsPrice: boolean;

  constructor(world: World, random: Random, fetched: Fetched) {
    this.#world = world;
    this.random = random;
    this.#fetched = fetched;
    this.manner = random.next() < 0.15 ? "late" : random.pick(Object.keys(MANNERS));
    this.#maxTimeoutSeconds = random.int(25, 90);
    this.#changesItsPrice = random.next() < 0.15;
    const host = `shop-${fetched.prices[0]}.test`;
    this.#client = new Client(world.timeline, host);
    this.url = `https://${host}/paid`;
    world.network.servers.set(`https://${host}`, (request) =>
      inside(this.#client, () => this.#answer(request)),
    );
  }

  #answer(request: SimulatedRequest): Response | Promise<Response> {
    const header = request.headers["payment-signature"];
    if (header === undefined) {
      if (this.#changesItsPrice && this.random.next() < 0.5)
        this.#fetched.prices.push(this.#world.newAmount(this.#fetched.prices[0] ?? 0n));
      return this.price();
    }
    this.#fetched.proofs += 1;
    const proof = decodePaymentSignatureHeader(header) as unknown as Proof;
    this.#world.timeline.note(`${this.#client.name}: gets a proof (${this.manner})`);
    return MANNERS[this.manner]?.(this, proof);
  }

  price(): SimulatedResponse {
    const terms = {
      scheme: "exact",
      network: NETWORK,
      amount: String(this.#fetched.prices.at(-1)),
      asset: USDC,
      payTo: this.#fetched.to,
      maxTimeoutSeconds: this.#maxTimeoutSeconds,
      extra: { name: "USDC", version: "2" },
    };
    const required = {
      x402Version: 2,
      error: "pay",
      resource: { url: this.url },
      accepts: [terms],
    };
    return {
      status: 402,
      headers: { "payment-required": encodePaymentRequiredHeader(required as never) },
      body: "{}",
    };
  }

  content(transaction?: Hex): SimulatedResponse {
    const receipt = { success: true, transaction: transaction ?? "", network: NETWORK };
    return {
      status: 200,
      headers: {
        "content-type": "application/json",
        ...(transaction !== undefined && {
          "payment-response": encodePaymentResponseHeader(receipt as never),
        }),
      },
      body: '{"answer":42}',
    };
  }

  delivered(transaction: Hex | undefined): SimulatedResponse {
    return transaction === undefined ? this.price() : this.content(transaction);
  }

  /** With our facilitator, at once with each of these keys. */
  async settle(proof: Proof, names: readonly string[]): Promise<Hex | undefined> {
    const { from, to, value, nonce } = proof.payload.authorization;
    const presented: Presented = {
      who: `payment ${value} to a shop`,
      from: from.toLowerCase() as Address,
      to: to.toLowerCase() as Address,
      amountAtomic: BigInt(value),
      nonce,
      claims: [],
      isGood: false,
      atMs: this.#world.timeline.nowMs,
    };
    this.#world.sales.presented.push(presented);
    const paid = await Promise.all(
      names.map((name) => this.#settleAs(proof, presented, `${nonce}-${name}`)),
    );
    return paid.find((hash) => hash !== undefined);
  }

  async #settleAs(proof: Proof, presented: Presented, key: string): Promise<Hex | undefined> {
    const world = this.#world;
    const body = { x402Version: 2, paymentPayload: proof, paymentRequirements: proof.accepted };
    for (let tries = 0; tries < 5; tries += 1) {
      const service = world.anyService();
      const answer = service
        ? await world.request(this.#client, service, {
            route: "POST /api/x402/settle",
            headers: { "idempotency-key": key },
            body,
          })
        : undefined;
      if (answer) {
        const { status } = answer;
        const claim = {
          caller: key,
          body: status === 200 ? answer.body : {},
          isLost: status === 0,
        };
        presented.claims.push({ ...claim, block: world.chain.head.number });
        const { success, transaction, errorReason } = answer.body;
        if (success === true) return transaction as Hex;
        const isOpen =
          errorReason === "settlement_pending" || errorReason === "unexpected_settle_error";
        if (status === 200 && !isOpen) return undefined;
      }
      await pause(500 + this.random.int(0, 2_000));
    }
    return undefined;
  }

  /** With its own facilitator, and waits for the block. */
  async collected(proof: Proof): Promise<Hex | undefined> {
    const hash = this.#collect(proof);
    const { from, nonce } = proof.payload.authorization;
    for (let tries = 0; tries < 15; tries += 1) {
      await pause(1_000);
      if (this.#world.chain.isEnded(from, nonce)) return hash;
    }
    return undefined;
  }

  collectLater(proof: Proof, withinMs: number, fromMs = 0): void {
    const ms = this.random.int(fromMs, withinMs);
    this.#world.timeline.after(ms, this.#client, "collects", () => void this.#collect(proof));
  }

  /** Nothing is in a block until the service has stopped waiting for its cancellation; then the seller is faster. */
  async collectAfterWait(proof: Proof): Promise<void> {
    const world = this.#world;
    world.sales.isDisturbed = true;
    world.faults.add("blocksPassUsOver");
    world.mining = { only: [] };
    await world.lasting(this.random.int(19_000, 27_000), () => {
      world.mining = {};
    });
    this.#collect(proof, HIGH_TIP_WEI * 5n);
  }

  /** A block with the cancellation is replaced by one in which the seller was faster. */
  collectAfterCancel(proof: Proof): void {
    const { from, nonce } = proof.payload.authorization;
    const { chain, timeline } = this.#world;
    const wanted = this.random.int(1, 2);
    let looks = 0;
    const look = (): void => {
      const end = [...chain.ends()].find(
        (each) => each.nonce === nonce && each.from === from.toLowerCase(),
      );
      const depth = end ? chain.head.number - end.block + 1 : 0;
      if (depth < wanted && (looks += 1) < 30)
        return void timeline.after(1_000, this.#client, "looks", look);
      if (end?.kind !== "canceled" || depth > 2) return;
      this.#world.reorganise(depth);
      this.#collect(proof, HIGH_TIP_WEI * 5n);
    };
    look();
  }

  /** Anybody may send it, and more than once. */
  #collect(proof: Proof, tipWei = BigInt(this.random.int(0, 1)) * HIGH_TIP_WEI + 1n): Hex {
    const { authorization, signature } = proof.payload;
    this.#world.timeline.note(`${this.#client.name}: collects`);
    return this.#world.chain.sendAs(COLLECTOR, {
      to: USDC,
      data: relayData(authorization, signature),
      priorityFeeWei: tipWei,
    });
  }
}
