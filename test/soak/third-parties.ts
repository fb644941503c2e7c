// Payments by third parties: signed by stock payers, posted to several replicas at once and again later,
// canceled in flight, and floods of them.
import { setTimeout as sleep } from "node:timers/promises";
import type { Address, Hex } from "viem";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { signedPayment, type Body } from "../facilitator/payments.ts";
import { randomNonce, signCancel, TOKEN_ABI } from "../helpers/engine.ts";
import { callOnce, count, wordOf, type Outcome, type SoakContext } from "./clients.ts";

export interface LoadTargets {
  /** The payees that the agents may pay, and one that they may not. */
  payees: Address[];
  unlistedPayee: Address;
  sellerUrls: string[];
  /** Funded accounts of third parties. */
  payers: PrivateKeyAccount[];
  merchants: Address[];
}

/** An earlier request, which will be posted again. */
export interface Posted {
  body: Body;
  from: Address;
  nonce: Hex;
}

async function thirdPartyPayment(
  context: SoakContext,
  { payers, merchants }: LoadTargets,
): Promise<Posted & { to: Address; amount: bigint; payer: PrivateKeyAccount }> {
  const { random, world } = context;
  const payer = random.pick(payers);
  const to = random.pick(merchants);
  const amount = context.nextAmount();
  const nonce = randomNonce();
  const validBefore = String(Math.floor(Date.now() / 1_000) + 90);
  const body = await signedPayment({
    chain: world.chain,
    payer,
    payTo: to,
    amount: String(amount),
    nonce,
    validBefore,
  });
  return { body, from: payer.address, nonce, to, amount, payer };
}

/** Posts a payment to one, two or three replicas at once, and an earlier one again. */
export async function thirdPartyPays(
  context: SoakContext,
  targets: LoadTargets,
  posted: Posted[],
): Promise<void> {
  const { random } = context;
  const payment = await thirdPartyPayment(context, targets);
  const { body, from, nonce } = payment;
  posted.push({ body, from, nonce });
  const places = random.int(1, 3);
  await Promise.all(Array.from({ length: places }, () => settle(context, payment)));
  if (random.next() < 0.4) await settle(context, random.pick(posted));
}

export async function settle(
  context: SoakContext,
  payment: Posted & { to?: Address; amount?: bigint },
): Promise<void> {
  const { random, world, notes } = context;
  const startMs = performance.now();
  const url = `${random.pick(world.replicas).url}/api/x402/settle`;
  const answer = await callOnce(url, { body: payment.body });
  const { from, nonce, to, amount } = payment;
  const reason = wordOf(answer?.body["errorReason"]) ?? wordOf(answer?.body["code"]) ?? "";
  const isPaid = answer?.status === 200 && answer.body["success"] === true;
  if (isPaid) notes.lastPaidMs = performance.now();
  notes.reported.push({
    kind: "facilitated",
    outcome: isPaid ? "paid" : settleOutcome(answer?.status, reason),
    ...(reason !== "" && { code: reason }),
    from,
    nonce,
    ...(to && { to }),
    ...(amount !== undefined && { amountAtomic: amount }),
    ...(isPaid && { txHash: answer.body["transaction"] as Hex }),
    isClear: true,
    tookMs: performance.now() - startMs,
  });
}

function settleOutcome(status: number | undefined, reason: string): Outcome {
  if (status !== 200) return "unknown";
  if (reason === "duplicate_settlement") return "repeat";
  return reason === "settlement_pending" ? "unknown" : "failed";
}

/** Cancels the authorization on chain while it is being settled: either may win. */
export async function thirdPartyCancels(
  context: SoakContext,
  targets: LoadTargets,
  posted: Posted[],
): Promise<void> {
  const { world, random, notes } = context;
  const payment = await thirdPartyPayment(context, targets);
  posted.push({ body: payment.body, from: payment.from, nonce: payment.nonce });
  const { chain } = world;
  const account = chain.accounts[3];
  if (!account) throw new Error("the test chain has no accounts");
  const cancel = async (): Promise<void> => {
    await sleep(random.int(0, 1_500));
    const signature = await signCancel(chain, payment.payer, payment.nonce);
    await chain.walletClient(account).writeContract({
      address: chain.usdc,
      abi: TOKEN_ABI,
      functionName: "cancelAuthorization",
      args: [payment.from, payment.nonce, signature],
      gas: 150_000n,
      account,
      chain: chain.chain,
    });
    count(notes, "authorizations cancelled by their payer");
  };
  await Promise.all([settle(context, payment), cancel().catch(() => undefined)]);
}

/** Minimal payments from many payers at once, to one merchant. */
export async function flood(
  context: SoakContext,
  targets: LoadTargets,
  size: number,
): Promise<void> {
  const payments = await Promise.all(
    Array.from({ length: size }, async () => thirdPartyPayment(context, targets)),
  );
  await Promise.all(payments.map((payment) => settle(context, payment)));
}

/** One key per payer; the pool is created once. */
export const soakPayers = (size: number, random: SoakContext["random"]): PrivateKeyAccount[] =>
  Array.from({ length: size }, () => {
    const word = (): string => random.int(1, 0xffff_ffff).toString(16).padStart(8, "0");
    return privateKeyToAccount(`0x${Array.from({ length: 8 }, word).join("")}`);
  });
