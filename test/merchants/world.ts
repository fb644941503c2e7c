// A merchant that was paid, with helpers for its settlements and refunds.
import type { Test } from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp, type TestApp, type TestAppOptions } from "../helpers/app.ts";
import { signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";

export const newAccount = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());

export type World = Awaited<ReturnType<typeof merchantWorld>>;

export async function merchantWorld(t: Test, options: TestAppOptions = {}) {
  const ctx = await testApp(t, options);
  const merchant = await signIn(ctx);
  const payer = newAccount();
  await ctx.chain.mint(payer.address, 1_000_000_000n);
  return { ...ctx, merchant, payer };
}

type Paying = Pick<TestApp, "app" | "chain"> & { payer: PrivateKeyAccount };

/** Settles a payment to this address, and returns its id. */
export async function pay(
  { app, chain, payer }: Paying,
  payTo: Address,
  amount = "1000000",
): Promise<string> {
  const body = await signedPayment({ chain, payer, payTo, amount });
  const answer = await post(app, "settle", body);
  if (answer["success"] !== true) throw new Error(`not settled: ${JSON.stringify(answer)}`);
  return String(answer["paymentId"]);
}

export const balanceOf = ({ chain }: Pick<TestApp, "chain">, account: Address): Promise<bigint> =>
  chain.usdcOf(account);

type Answer = { status: number; body: Record<string, unknown> };
export type Owner = Pick<SignedInOwner, "headers"> & {
  account: Pick<PrivateKeyAccount, "signTypedData">;
};

export async function send(
  { app, config }: Pick<TestApp, "app" | "config">,
  owner: Pick<SignedInOwner, "headers">,
  method: "GET" | "POST" | "DELETE",
  url: string,
  body?: unknown,
): Promise<Answer> {
  const answer = await app.inject({
    method,
    url,
    // One session works on all replicas; the origin differs.
    headers: { ...owner.headers, origin: config.publicUrl },
    ...(body !== undefined && { payload: JSON.stringify(body) }),
  });
  return { status: answer.statusCode, body: answer.json() };
}

export const refundUrl = (id: string): string => `/api/merchant/settlements/${id}/refund`;

/** Requests the refund's order, and signs it. */
export async function signedRefund(
  ctx: Pick<TestApp, "app" | "config">,
  owner: Owner,
  id: string,
  amount?: string,
): Promise<{ order: Record<string, string>; signature: Hex }> {
  const response = await send(ctx, owner, "POST", refundUrl(id), { ...(amount && { amount }) });
  const signed = await signOrder(owner.account, response.body);
  if (response.status !== 403 || !signed)
    throw new Error(`nothing to sign: ${response.status} ${JSON.stringify(response.body)}`);
  return signed as { order: Record<string, string>; signature: Hex };
}

export async function refund(
  ctx: Pick<TestApp, "app" | "config">,
  owner: Owner,
  id: string,
  amount?: string,
): Promise<Answer> {
  const authorization = await signedRefund(ctx, owner, id, amount);
  return send(ctx, owner, "POST", refundUrl(id), { authorization });
}

export const FEE_ADDRESS = "0x00000000000000000000000000000000000fee00";
export const WITH_FEES = {
  FEE_PER_SETTLEMENT: "0.01",
  FEE_PER_MILLE: "2.5",
  FEE_ADDRESS,
  FEE_CREDIT: "0.03",
};

/** What this payee owes in fees; negative if it paid in advance. */
export async function owedBy(
  { database }: Pick<TestApp, "database">,
  account: string,
): Promise<bigint> {
  const { rows } = await database.pool.query<{ owed: string }>(
    "SELECT (charged - paid)::text AS owed FROM fee_accounts WHERE account = $1",
    [account.toLowerCase()],
  );
  return BigInt(rows[0]?.owed ?? 0);
}

export const payFeesUrl = (account: string, amount?: string): string =>
  `/api/merchant/fees/pay?account=${account}${amount === undefined ? "" : `&amount=${amount}`}`;
