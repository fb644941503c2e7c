// Sellers that present signed payments of outside payers: good ones and bad ones, at any process, again after a lost
// answer, with a key and without, two sellers the same payment. Meanwhile others relay, cancel and overtake them.
import { wordOf } from "../host.ts";
import type { Address, Hex } from "viem";
import type { Random } from "../../helpers/random.ts";
import type { Kind } from "../kind.ts";
import {
  approvePermit2,
  cancelCall,
  outsiders,
  signPayment,
  transferCall,
  type ChainCall,
  type Scheme,
  type SignedPayment,
} from "../signed-payments.ts";
import type { Presented } from "../sales.ts";
import { currentActor } from "../time.ts";
import { pause, type Client, type World } from "../world.ts";

/** What is wrong with a payment, or happens to it. */
type Manner =
  | "good"
  | "poor"
  | "forged"
  | "short"
  | "nonce again"
  | "relayed"
  | "relayed before"
  | "canceled"
  | "drained"
  | "overdrawn"
  | "other use";
const MANNERS: Readonly<Record<Manner, number>> = {
  good: 10,
  poor: 1,
  forged: 1,
  short: 1,
  "nonce again": 1,
  relayed: 3,
  "relayed before": 3,
  canceled: 2,
  drained: 2,
  overdrawn: 2,
  "other use": 2,
};

const SELLERS: readonly Address[] = [1, 2, 3].map(
  (number): Address => `0x${(0x5e11e0 + number).toString(16).padStart(40, "0")}`,
);
const STRANGER: Address = "0x0000000000000000000000000000000057a46e50";
const SINK: Address = "0x0000000000000000000000000000000000051e4c";
/** The protocol's answers after which a seller asks again. */
const COME_AGAIN = new Set([
  "settlement_pending",
  "unexpected_settle_error",
  "gas_budget_exhausted",
]);
const TRIES = 12;

export const seller: Kind = {
  weight: 3,
  async play(world, { random }) {
    const isBatch = random.next() < 0.35;
    const count = isBatch ? random.int(5, 10) : random.int(1, 3);
    const presenting: Promise<void>[] = [];
    for (let number = 0; number < count; number += 1) {
      // A batch often has a payment whose money another one of it takes.
      const isOverdrawn = isBatch && number === 1 && random.next() < 0.6;
      const presented = present(
        world,
        random,
        isOverdrawn ? "overdrawn" : mannerOf(random, isBatch),
      );
      presenting.push(presented);
      if (!isBatch) await pause(random.int(0, 4_000));
    }
    await Promise.all(presenting);
  },
};

async function present(world: World, random: Random, manner: Manner): Promise<void> {
  // Those who spend elsewhere what they signed for are others than those who pay what they owe.
  const isReliable = manner !== "poor" && manner !== "drained" && manner !== "overdrawn";
  const payer = random.pick(outsiders().slice(...(isReliable ? [0, 8] : [8])));
  const from = payer.address.toLowerCase() as Address;
  const amountAtomic = world.newAmount(BigInt(random.int(20_000, 900_000)));
  const scheme = schemeOf(random);
  const payment = await signPayment(world, random, {
    scheme,
    payer,
    to: random.pick(SELLERS),
    amountAtomic,
    validSeconds: manner === "short" ? random.int(7, 14) : random.int(60, 120),
    ...(manner === "forged" && { forger: random.pick(outsiders().filter((one) => one !== payer)) }),
    version: random.next() < 0.15 ? 1 : 2,
  });
  if (manner !== "poor") world.chain.mint(from, amountAtomic + 1n);
  if (scheme !== "exact" && world.chain.allowanceOf(from, PERMIT2) === 0n) {
    approvePermit2(world, from);
    await pause(4_000);
  }
  const who = `payment ${amountAtomic} (${scheme}, ${manner})`;
  if (manner === "relayed before") await usedBefore(world, random, payment);
  const { to, nonce } = payment;
  const presented: Presented = {
    who,
    from,
    to,
    amountAtomic,
    nonce,
    claims: [],
    isGood: manner === "good",
    atMs: world.timeline.nowMs,
  };
  world.sales.presented.push(presented);
  const client = currentActor() as Client;
  client.world.note(`${client.name}: presents ${who}`);
  const work = [settle(world, random, { payment, presented, seller: "a" })];
  if (random.next() < 0.25) work.push(settle(world, random, { payment, presented, seller: "b" }));
  work.push(interfere(world, random, { payment, manner }));
  if (manner === "nonce again")
    work.push(presentAnother(world, random, { payment, hasSameNonce: true }));
  if (manner === "overdrawn")
    work.push(presentAnother(world, random, { payment, hasSameNonce: false }));
  await Promise.all(work);
  // Refused by an older state, in which its payer had too little money, and then moved by its payer's own transaction.
  if (manner === "relayed" && world.sales.isDisturbed)
    world.sales.isRelayedLater ||= presented.claims.some(({ body }) => body["success"] === false);
}

/** To another seller, with the same nonce, or with the same money: at most one of the two may move. */
async function presentAnother(
  world: World,
  random: Random,
  { payment, hasSameNonce }: { payment: SignedPayment; hasSameNonce: boolean },
): Promise<void> {
  const { payer, from, nonce, scheme } = payment;
  const about = hasSameNonce ? BigInt(random.int(20_000, 900_000)) : payment.amountAtomic;
  const amountAtomic = world.newAmount(about);
  if (hasSameNonce) world.chain.mint(from, amountAtomic);
  const to = random.pick(SELLERS.filter((address) => address !== payment.to));
  const own = nonce.replace("permit2:", "") as Hex;
  const other = await signPayment(world, random, {
    scheme,
    payer,
    to,
    amountAtomic,
    validSeconds: 90,
    ...(hasSameNonce && { nonce: own }),
  });
  const shared = hasSameNonce ? "nonce" : "money";
  const who = `payment ${amountAtomic} (${scheme}, the ${shared} of ${payment.amountAtomic})`;
  const presented: Presented = {
    who,
    from,
    to,
    amountAtomic,
    nonce: other.nonce,
    claims: [],
    isGood: false,
    atMs: world.timeline.nowMs,
  };
  world.sales.presented.push(presented);
  await settle(world, random, { payment: other, presented, seller: "c" });
}

/** The payer pays with it on the chain, and presents it while the service reads an older state. */
async function usedBefore(world: World, random: Random, payment: SignedPayment): Promise<void> {
  if (!payment.relay) return;
  send(world, random, payment.relay);
  await pause(random.int(2_000, 12_000));
  if (random.next() < 0.3) return;
  const { endpoints, head } = world.chain;
  const { from, nonce } = payment;
  const use = [...world.chain.ends()].find((end) => end.from === from && end.nonce === nonce);
  // To the time before it was used.
  const blocks = use ? head.number - use.block + random.int(1, 2) : random.int(1, 3);
  world.sales.isDisturbed = true;
  for (const endpoint of endpoints) endpoint.lagBlocks = blocks;
  world.timeline.after(random.int(500, 4_000), undefined, "the endpoints catch up", () => {
    for (const endpoint of endpoints) endpoint.lagBlocks = 0;
  });
}

async function interfere(
  world: World,
  random: Random,
  { payment, manner }: { payment: SignedPayment; manner: Manner },
): Promise<void> {
  const { payer, from, amountAtomic, nonce, relay } = payment;
  await pause(random.int(0, 5_000));
  switch (manner) {
    case "relayed":
      return relay && send(world, random, relay);
    case "canceled":
      return send(world, random, await cancelCall(payment));
    case "drained": {
      send(world, random, { ...transferCall(SINK, world.chain.balanceOf(from)), by: from });
      if (!relay || random.next() < 0.5) return;
      // Later the money is there again, and somebody relays the signature, which is public.
      await pause(random.int(8_000, 25_000));
      world.chain.mint(from, amountAtomic);
      world.sales.isRelayedLater = true;
      send(world, random, relay);
      return pause(20_000);
    }
    case "other use": {
      if (payment.scheme !== "exact") return send(world, random, await cancelCall(payment));
      const other = await signPayment(world, random, {
        scheme: "exact",
        payer,
        to: SINK,
        amountAtomic: 1n,
        validSeconds: 120,
        nonce: nonce as Hex,
      });
      return other.relay && send(world, random, other.relay);
    }
    default:
  }
}

/** By a stranger, or by the payer itself; with a higher tip than ours, or a lower one. */
function send(world: World, random: Random, { to, data, by = STRANGER }: ChainCall): void {
  const priorityFeeWei = BigInt(random.int(0, 1)) * 20_000_000_000n + 1n;
  world.chain.sendAs(by, { to, data, priorityFeeWei });
}

async function settle(
  world: World,
  random: Random,
  {
    payment,
    presented,
    seller: name,
  }: { payment: SignedPayment; presented: Presented; seller: string },
): Promise<void> {
  const client = currentActor() as Client;
  const key = random.next() < 0.5 ? `settle-${name}-${presented.amountAtomic}` : undefined;
  if (random.next() < 0.3) {
    const service = world.anyService();
    if (service)
      await world.request(client, service, {
        route: "POST /api/x402/verify",
        body: payment.verifyBody,
      });
  }
  /** As most sellers do: to them every failure is one, unless it is pending. */
  const takesNo = random.next() < 0.6;
  let paymentId: string | undefined;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const service = world.anyService();
    const { status, body } = service
      ? await world.request(client, service, {
          route: "POST /api/x402/settle",
          body: payment.settleBody,
          headers: key === undefined ? {} : { "idempotency-key": key },
        })
      : { status: 503, body: {} };
    const reason = wordOf(body["errorReason"] ?? body["code"]);
    client.world.note(
      `${client.name}: ${name} is answered ${status} ${String(body["success"])} ${reason} for ${presented.who}`,
    );
    presented.claims.push({
      caller: key ?? `${name} ${tries}`,
      body: status === 200 ? body : {},
      isLost: status === 0,
      block: world.chain.head.number,
    });
    paymentId = (body["paymentId"] as string | undefined) ?? paymentId;
    const isFinal = !COME_AGAIN.has(reason) || (reason === "unexpected_settle_error" && takesNo);
    if (status === 200 && isFinal) break;
    await pause(500 + random.int(0, 4_000));
  }
  if (paymentId !== undefined && random.next() < 0.3)
    await readPayment(world, presented, paymentId);
}

async function readPayment(world: World, { who }: Presented, id: string): Promise<void> {
  const service = world.anyService();
  if (!service) return;
  const call = { route: "GET /api/x402/payments/:id", params: { id } };
  const { status, body } = await world.request(currentActor() as Client, service, call);
  // It is nobody's id if it came with an acceptance of unknown outcome that did not happen.
  if (status === 200 && body["status"] === "settled" && typeof body["txHash"] !== "string")
    world.failures.push(`${who} is settled without a transaction`);
}

const PERMIT2: Address = "0x000000000022D473030F116dDEE9F6B43aC78BA3";

/** In a batch nobody disturbs the endpoints, or nothing would be expected of the others. */
function mannerOf(random: Random, isBatch: boolean): Manner {
  return random.weighted(
    (Object.entries(MANNERS) as [Manner, number][]).filter(
      ([manner]) => !isBatch || manner !== "relayed before",
    ),
  );
}

function schemeOf(random: Random): Scheme {
  const share = random.next();
  return share < 0.7 ? "exact" : share < 0.85 ? "exact-permit2" : "upto";
}
