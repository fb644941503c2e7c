import { getAddress, zeroAddress, type Address } from "viem";
import type { SecondWalletOrder } from "../../core/orders.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { Static } from "typebox";
import type { SecondBody } from "../../schemas/recovery.ts";
import { ApiError } from "../../errors.ts";
import { readAddress, refuseField } from "../agents/rules.ts";
import { revokeSecondSessions } from "../auth/sessions.ts";
import type { RequestOwner } from "../auth/index.ts";
import { SignatureNeeded, type Draft, type OwnerOrders } from "../orders/orders.ts";
import { lockOwner } from "./store.ts";

export interface RecoveryCall {
  prisma: PrismaClient;
  orders: OwnerOrders;
  owner: RequestOwner;
  /** The chain of the EIP-712 domain of such orders. */
  chainId: number;
  requestId: string;
}

/**
 * Names the recovery wallet, another one, or none: always with the owner's own signature. Ends the old one's sessions.
 */
export async function nameSecond(
  call: RecoveryCall,
  body: Static<typeof SecondBody>,
): Promise<void> {
  const { owner, orders, chainId } = call;
  const second = body.address === null ? zeroAddress : readAddress(body.address, "body.address");
  if (second === owner.address)
    throw refuseField("validation_failed", "body.address", "is the owner's own wallet");
  if (body.address !== null && second === zeroAddress)
    throw refuseField(
      "validation_failed",
      "body.address",
      "is the zero address: send null to remove the recovery wallet",
    );
  const draft = secondDraft(call, second, body.address === null ? 0 : (body.chainId ?? 0));
  const signed =
    body.authorization && (await orders.verify(owner, "SecondWallet", body.authorization, chainId));
  await orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      await orders.use(tx, owner, signed, draft);
      await revokeSecondSessions(tx, owner.id);
    }),
  );
}

const secondDraft = (
  { owner, chainId }: RecoveryCall,
  second: Address,
  secondChain: number,
): Draft<"SecondWallet"> => ({
  kind: "SecondWallet",
  // Not about an agent.
  agentId: "",
  chainId,
  version: null,
  build: ({ nonce, deadlineSeconds }): SecondWalletOrder => ({
    owner: getAddress(owner.address),
    second: getAddress(second),
    secondChain: String(secondChain),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});
