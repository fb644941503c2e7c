/** Moves all of an owner's agents to the recovery wallet: signed by both wallets, in one transaction. */
import { getAddress, type Address, type Hex } from "viem";
import type { Static } from "typebox";
import { typedDataOf, type MoveOwnerOrder } from "../../core/orders.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { MoveBody } from "../../schemas/recovery.ts";
import { entriesOf } from "../agents/payees-store.ts";
import { rulesInForce, sealedRules } from "../agents/rules.ts";
import { findAgent, updateAgent } from "../agents/store.ts";
import { noteAudit } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import { revokeConnectionsOf } from "../auth/connections.ts";
import { revokeSecondSessions } from "../auth/sessions.ts";
import type { Custody } from "../custody/custody.ts";
import type { SignedMove } from "../custody/seal-changes.ts";
import { ensureOwner, lockOwner, secondWalletOf, type SecondWallet } from "../owners/store.ts";
import { SignatureNeeded, type Draft, type SignedOrder } from "../orders/orders.ts";
import { assertSecondSigned, type RecoveryCall } from "./second.ts";
import { giveAgents, keepSecondSignature, lockAgents } from "./store.ts";

interface MoveCall extends RecoveryCall {
  custody: Custody;
}

/** Each agent is sealed again, with two statements and some computation; a thousand of them take seconds. */
const MOVE_MS = 60_000;

export async function moveOwner(
  call: MoveCall,
  { authorization }: Static<typeof MoveBody>,
): Promise<{ address: Address; agents: number }> {
  const { owner, orders, chainId } = call;
  const signed = authorization && (await orders.verify(owner, "MoveOwner", authorization, chainId));
  const secondSignature = authorization?.secondSignature.toLowerCase() as Hex | undefined;
  const named = await secondWalletOf(call.prisma, owner.id);
  if (!named)
    throw new ApiError("conflict", {
      detail: "There is no recovery wallet. Add one first with the owner's wallet.",
    });
  // It becomes an owner, as at a sign-up.
  await orders.assertMaySign(named, "MoveOwner");
  if (signed)
    await assertSecondSigned(call, named, { hash: signed.digest, signature: secondSignature });
  return orders.requestingSignature(owner, () =>
    call.prisma.$transaction(
      async (tx) => {
        if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
        // Read again under the lock: it may have been revoked meanwhile.
        const second = await secondWalletOf(tx, owner.id);
        if (second?.address !== named.address || second.chainId !== named.chainId)
          throw new ApiError("conflict", {
            detail: "The recovery wallet changed in the meantime.",
          });
        const draft = moveDraft(call, second);
        if (!signed || secondSignature === undefined)
          throw new SignatureNeeded(draft, "owner_signature_required");
        await orders.use(tx, owner, signed, draft);
        await keepSecondSignature(tx, signed.order.nonce, secondSignature);
        const newOwnerId = await ensureOwner(tx, second.address, second.chainId);
        const agentIds = await lockAgents(tx, owner.id);
        const signedMove = { ...signed, secondSignature };
        for (const agentId of agentIds) await moveAgent(tx, call, { agentId, second, signedMove });
        await giveAgents(tx, owner.id, newOwnerId);
        await revokeSecondSessions(tx, owner.id);
        await endConnections(tx, call, agentIds);
        await noteMove(tx, call, { second, newOwnerId, agentIds, signed, secondSignature });
        return { address: second.address, agents: agentIds.length };
      },
      { timeout: MOVE_MS },
    ),
  );
}

/**
 * The agent is paused, and sealed for an owner who has not signed a policy yet: that owner's first policy resumes it.
 */
async function moveAgent(
  tx: Db,
  { custody, owner }: MoveCall,
  {
    agentId,
    second,
    signedMove,
  }: { agentId: string; second: SecondWallet; signedMove: SignedMove },
): Promise<void> {
  const agent = await findAgent(tx, owner.id, agentId);
  if (!agent) throw new Error(`agent ${agentId} is held, and gone`);
  const payees = await entriesOf(tx, agentId);
  const current = rulesInForce(agent, payees);
  const status = agent.status === "active" ? "paused" : agent.status;
  const wanted = { ...current, status };
  await custody.reown(
    tx,
    { agentId, from: owner, to: second },
    { current: sealedRules(agent, current), wanted, signed: signedMove },
  );
  // What the former owner stopped is not resumed with the new owner's stop.
  if (status !== agent.status || agent.pausedBy !== null)
    await updateAgent(tx, agentId, { status });
}

/** Recorded in the audit of the owner who allowed them. */
async function endConnections(
  tx: Db,
  { owner, requestId }: MoveCall,
  agentIds: readonly string[],
): Promise<void> {
  for (const { id, agentId, label } of await revokeConnectionsOf(tx, agentIds))
    await noteAudit(tx, {
      ownerId: owner.id,
      agentId,
      actor: actorOf(owner),
      action: "connection.revoked",
      before: { id, label },
      after: { by: "move to the second wallet" },
      requestId,
    });
}

/** Recorded in both owners' audits, with both signatures. */
async function noteMove(
  tx: Db,
  { owner, chainId, requestId }: MoveCall,
  moved: {
    second: SecondWallet;
    newOwnerId: string;
    agentIds: string[];
    signed: SignedOrder<"MoveOwner">;
    secondSignature: Hex;
  },
): Promise<void> {
  const { second, newOwnerId, agentIds, signed, secondSignature } = moved;
  const { address: signer } = owner;
  const note = {
    agentId: null,
    actor: actorOf(owner),
    before: { owner: getAddress(signer) },
    after: { owner: getAddress(second.address), agents: agentIds },
    requestId,
    proof: {
      kind: "order" as const,
      digest: signed.digest,
      order: typedDataOf("MoveOwner", signed.order, chainId, signed.form),
      signers: [
        { signer, chainId: owner.chainId, signature: signed.signature },
        { signer: second.address, chainId: second.chainId, signature: secondSignature },
      ],
    },
  };
  await noteAudit(tx, { ...note, ownerId: owner.id, action: "owner.moved" });
  await noteAudit(tx, { ...note, ownerId: newOwnerId, action: "owner.received" });
}

const moveDraft = ({ owner, chainId }: MoveCall, second: SecondWallet): Draft<"MoveOwner"> => ({
  kind: "MoveOwner",
  // Not about an agent.
  agentId: "",
  chainId,
  version: null,
  build: ({ nonce, deadlineSeconds }): MoveOwnerOrder => ({
    from: getAddress(owner.address),
    to: getAddress(second.address),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});
