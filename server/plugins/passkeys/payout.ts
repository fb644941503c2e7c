/** The payout address of an owner without a wallet: named in a signed order, and changed with a day's delay. */
import { getAddress, zeroAddress, type Address } from "viem";
import type { Static } from "typebox";
import type { PayoutAddressOrder } from "../../core/orders.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import { hasNoWallet, TEAMS_CHAIN } from "../../core/teams.ts";
import { payoutAt, type Payout } from "../../core/payout.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { PayoutBody } from "../../schemas/passkeys.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readAddress } from "../agents/rules.ts";
import type { RequestOwner } from "../auth/index.ts";
import { SignatureNeeded, type Draft } from "../orders/orders.ts";
import type { Identity } from "../orders/signatures.ts";
import { payoutOrders } from "../orders/store.ts";
import { lockOwner } from "../owners/store.ts";
import type { OwnerCall } from "./call.ts";
import { lastVersion } from "./store.ts";

export async function namePayout(
  call: OwnerCall & { assets: readonly string[] },
  { address, authorization }: Static<typeof PayoutBody>,
): Promise<void> {
  const { owner, orders, chainId } = call;
  assertHasPayout(owner);
  const payout = readAddress(address, "body.address");
  const isNoWallet =
    payout === zeroAddress || payout === owner.address || call.assets.includes(payout);
  if (isNoWallet || (await isAccountWithoutWallet(call.prisma, payout)))
    throw refuseField(
      "invalid_address",
      "body.address",
      "is an address that nobody can spend from",
    );
  const signed =
    authorization && (await orders.verify(owner, "PayoutAddress", authorization, chainId));
  await orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      const version = (await lastVersion(tx, owner.id, "PayoutAddress")) + 1;
      const draft = payoutDraft(call, version, payout);
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      await orders.use(tx, owner, signed, draft);
    }),
  );
}

/** The address of a team, or of an account with passkeys: people see it beside names, and it is no wallet. */
const isAccountWithoutWallet = async (db: Db, address: Address): Promise<boolean> =>
  (await db.owner.count({
    where: { address, chainId: { in: [BigInt(PASSKEYS_CHAIN), BigInt(TEAMS_CHAIN)] } },
  })) > 0;

const payoutDraft = (
  { owner, chainId }: OwnerCall,
  version: number,
  payout: Address,
): Draft<"PayoutAddress"> => ({
  kind: "PayoutAddress",
  // Not about an agent.
  agentId: "",
  chainId,
  // The column is of policies: the number of an owner's orders gives this version.
  version: null,
  build: ({ nonce, deadlineSeconds }): PayoutAddressOrder => ({
    owner: getAddress(owner.address),
    version: String(version),
    payout: getAddress(payout),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});

export function assertHasPayout({ chainId }: Pick<RequestOwner, "chainId">): void {
  if (hasNoWallet(chainId)) return;
  throw new ApiError("conflict", {
    detail: "You have a wallet: withdrawals go there, or to the address that it signs.",
  });
}

/** The time at which the first payout address was named. */
export async function firstPayoutAt(db: Db, ownerId: string): Promise<Date> {
  const first = await db.ownerOrder.findFirst({
    where: { ownerId, kind: "PayoutAddress", usedAt: { not: null } },
    orderBy: { usedAt: "asc" },
    select: { usedAt: true },
  });
  if (!first?.usedAt) throw new Error("a payout address that no order names");
  return first.usedAt;
}

/** The address in force, and the one that waits; undefined before the first. */
export async function payoutOf(db: Db, owner: Identity): Promise<Payout | undefined> {
  const orders = await payoutOrders(db, owner);
  const nowSeconds = BigInt(Math.floor((await databaseNow(db)).getTime() / 1000));
  return payoutAt(
    orders.map(({ document }) => document as PayoutAddressOrder),
    nowSeconds,
  );
}
