import { getAddress, zeroAddress, type Address, type Hex } from "viem";
import type { SecondWalletOrder } from "../../core/orders.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { Static } from "typebox";
import type { SecondBody } from "../../schemas/recovery.ts";
import { ApiError } from "../../errors.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readAddress } from "../agents/rules.ts";
import { revokeSecondSessions } from "../auth/sessions.ts";
import type { RequestOwner } from "../auth/index.ts";
import { lockOwner } from "../owners/store.ts";
import { orderNotSigned, SignatureNeeded, type Draft, type OwnerOrders } from "../orders/orders.ts";
import { keepSecondSignature } from "./store.ts";

interface Wallet {
  address: Address;
  /** The chain of its contract; 0 for a plain key (EOA). */
  chainId: number;
}

export interface RecoveryCall {
  prisma: PrismaClient;
  orders: OwnerOrders;
  owner: RequestOwner;
  /** The chain of the EIP-712 domain of such orders. */
  chainId: number;
  requestId: string;
  isSigned(
    wallet: Wallet,
    signed: { hash: Hex; signature: Hex },
  ): Promise<"valid" | "invalid" | "unavailable">;
}

/**
 * Names the recovery wallet, another one, or none: always with the owner's own signature. A wallet that is named signs
 * the same order: a mistyped address cannot, and would be of no use when it is needed. Ends the old one's sessions.
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
  // It signs in to its own account only, so it could not act for another owner.
  if (body.chainId === PASSKEYS_CHAIN)
    throw refuseField(
      "validation_failed",
      "body.chainId",
      "is of an account with passkeys: a recovery wallet must be a wallet",
    );
  const { authorization } = body;
  const wallet = { address: second, chainId: body.address === null ? 0 : (body.chainId ?? 0) };
  const draft = secondDraft(call, wallet);
  const signed =
    authorization && (await orders.verify(owner, "SecondWallet", authorization, chainId));
  const isNamed = body.address !== null;
  const secondSignature = authorization?.secondSignature?.toLowerCase() as Hex | undefined;
  if (signed && isNamed)
    await assertSecondSigned(call, wallet, { hash: signed.digest, signature: secondSignature });
  await orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      await orders.use(tx, owner, signed, draft);
      if (isNamed && secondSignature !== undefined)
        await keepSecondSignature(tx, signed.order.nonce, secondSignature);
      await revokeSecondSessions(tx, owner.id);
    }),
  );
}

export async function assertSecondSigned(
  { isSigned }: Pick<RecoveryCall, "isSigned">,
  wallet: Wallet,
  { hash, signature }: { hash: Hex; signature: Hex | undefined },
): Promise<void> {
  if (signature === undefined)
    throw refuseField(
      "validation_failed",
      "body.authorization.secondSignature",
      "is missing: the recovery wallet signs the same order",
    );
  const verdict = await isSigned(wallet, { hash, signature });
  if (verdict === "unavailable")
    throw new ApiError("chain_unavailable", {
      detail: "The recovery wallet's contract could not be read to check this signature.",
    });
  if (verdict === "invalid") throw orderNotSigned("The recovery wallet did not sign this order.");
}

const secondDraft = ({ owner, chainId }: RecoveryCall, second: Wallet): Draft<"SecondWallet"> => ({
  kind: "SecondWallet",
  // Not about an agent.
  agentId: "",
  chainId,
  version: null,
  build: ({ nonce, deadlineSeconds }): SecondWalletOrder => ({
    owner: getAddress(owner.address),
    second: getAddress(second.address),
    secondChain: String(second.chainId),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});
