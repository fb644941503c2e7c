// A merchant that gets a payment through us and gives it back, or a part of it: with the same order again after a lost
// answer, and with two orders at once.
import { wordOf } from "../host.ts";
import type { Address, Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { signOrder } from "../../helpers/owner.ts";
import type { Random } from "../../helpers/random.ts";
import { asOwner, usdc, type KnownAgent } from "../agents.ts";
import type { Kind } from "../kind.ts";
import type { Refunded } from "../sales.ts";
import { outsiders, signPayment } from "../signed-payments.ts";
import { currentActor } from "../time.ts";
import { isOutcome, pause, type Client, type World } from "../world.ts";

const TRIES = 25;
const NOT_YET = new Set(["settlement_not_final", "gas_budget_exhausted"]);

export const merchant: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { owner } = random.pick(world.agents);
    const paid = await getPaid(world, random, owner.address);
    if (!paid) return;
    world.sales.refunded.push(paid);
    const first = refund(world, random, { owner, paid });
    if (random.next() < 0.5) await first;
    if (random.next() < 0.6) await refund(world, random, { owner, paid });
    await first;
  },
};

/** The id of the settlement, if it was paid. */
async function getPaid(
  world: World,
  random: Random,
  owner: Address,
): Promise<Refunded | undefined> {
  const client = currentActor() as Client;
  const payer = random.pick(outsiders().slice(0, 8));
  const from = payer.address.toLowerCase() as Address;
  const to = owner.toLowerCase() as Address;
  const amountAtomic = world.newAmount(BigInt(random.int(100_000, 900_000)));
  world.chain.mint(from, amountAtomic);
  const payment = await signPayment(world, random, {
    scheme: "exact",
    payer,
    to,
    amountAtomic,
    validSeconds: 120,
  });
  const call = {
    route: "POST /api/x402/settle",
    body: payment.settleBody,
    headers: { "idempotency-key": `merchant-${amountAtomic}` },
  };
  for (let tries = 0; tries < TRIES; tries += 1) {
    const service = world.anyService();
    const answer = service && (await world.request(client, service, call));
    const { success, paymentId } = answer?.body ?? {};
    if (success === true)
      return {
        who: `refunds of ${amountAtomic}`,
        id: String(paymentId),
        from: to,
        to: from,
        amountAtomic,
        answers: [],
      };
    await pause(500 + random.int(0, 3_000));
  }
  return undefined;
}

async function refund(
  world: World,
  random: Random,
  { owner, paid }: { owner: KnownAgent["owner"]; paid: Refunded },
): Promise<void> {
  const client = currentActor() as Client;
  const account = privateKeyToAccount(owner.key);
  const isPart = random.next() < 0.5;
  const part = isPart ? { amount: usdc((paid.amountAtomic * BigInt(random.int(3, 8))) / 10n) } : {};
  let body: Record<string, unknown> = part;
  let nonce: Hex | undefined;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const service = world.anyService();
    const answer =
      service &&
      (await world.request(client, service, {
        route: "POST /api/merchant/settlements/:id/refund",
        params: { id: paid.id },
        body,
        as: asOwner({ owner }),
      }));
    const code = wordOf(answer?.body["code"]);
    world.timeline.note(
      `${client.name}: ${paid.who} ${answer?.status} ${code} ${String(answer?.body["status"])}`,
    );
    if (answer && isOutcome(answer)) {
      if (code === "owner_signature_required") {
        const authorization = await signOrder(account, answer.body);
        nonce = (authorization?.order as { nonce: Hex } | undefined)?.nonce;
        body = { ...part, authorization };
        continue;
      }
      if (answer.status === 200 && nonce !== undefined) {
        const isPaid = answer.body["status"] === "settled";
        paid.answers.push({
          nonce,
          isPaid,
          txHash: (answer.body["txHash"] as string | null) ?? null,
        });
        return;
      }
      // Another order took its place, or its time is over.
      if (answer.status !== 202 && !NOT_YET.has(code)) return;
    }
    await pause(500 + random.int(0, 3_000));
  }
}
