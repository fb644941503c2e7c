import { getAddress, type Address } from "viem";
import type { Static } from "typebox";
import type { ResumeOrder } from "../../core/orders.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { ResumeBody } from "../../schemas/owners.ts";
import { useOrderOrRequest, type OwnerCall } from "../agents/change.ts";
import { noteAudit } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import { lockOwner, stoppedOf, type Stopped } from "../owners/store.ts";
import type { Draft } from "../orders/orders.ts";

/** Many agents are locked one after the other, each behind a payment that is being decided. */
const STOP_MS = 30_000;

/** The wallet that signed in: the owner's, or the recovery wallet. */
const signerOf = ({ owner }: OwnerCall): Address => actorOf(owner);

/** In one transaction: when this returns, no payment of this owner is reserved any more. */
export async function stopAll(call: OwnerCall): Promise<Stopped> {
  const { owner, prisma } = call;
  return prisma.$transaction(
    async (tx) => {
      // SQL: decides under the locks of the owner's and all agents' rows.
      const rows = await tx.$queryRaw<{ isNew: boolean }[]>`
        SELECT purser_stop(${owner.id}, ${signerOf(call)}) AS "isNew"`;
      const stopped = await stoppedOf(tx, owner.id);
      if (!stopped) throw new Error(`owner ${owner.id} was not stopped`);
      if (rows[0]?.isNew) await noteStop(tx, call, "owner.stopped", stopped.agents);
      return stopped;
    },
    { timeout: STOP_MS },
  );
}

/** Returns how many agents are active again; 0 if nothing was stopped, which needs no signature. */
export async function resumeAll(
  call: OwnerCall,
  chainId: number,
  authorization: Static<typeof ResumeBody>["authorization"],
): Promise<number> {
  const { owner, orders, prisma } = call;
  const signed = authorization && (await orders.verify(owner, "Resume", authorization, chainId));
  return orders.requestingSignature(owner, () =>
    prisma.$transaction(
      async (tx) => {
        await lockOwner(tx, owner.id);
        const stopped = await stoppedOf(tx, owner.id);
        if (!stopped) return 0;
        await useOrderOrRequest(tx, call, signed, resumeDraft(owner.address, chainId, stopped));
        // SQL: under the locks of all agents' rows.
        const rows = await tx.$queryRaw<{ agents: number }[]>`
          SELECT purser_resume(${owner.id}) AS agents`;
        const agents = rows[0]?.agents ?? 0;
        await noteStop(tx, call, "owner.resumed", agents);
        return agents;
      },
      { timeout: STOP_MS },
    ),
  );
}

const noteStop = (
  tx: Db,
  call: OwnerCall,
  action: "owner.stopped" | "owner.resumed",
  agents: number,
): Promise<void> =>
  noteAudit(tx, {
    ownerId: call.owner.id,
    agentId: null,
    actor: signerOf(call),
    requestId: call.requestId,
    action,
    before: null,
    after: { agents },
  });

/** It names the stop that it ends, so that it ends no later one. */
const resumeDraft = (owner: Address, chainId: number, { at }: Stopped): Draft<"Resume"> => ({
  kind: "Resume",
  // Not about an agent.
  agentId: "",
  chainId,
  version: null,
  build: ({ nonce, deadlineSeconds }): ResumeOrder => ({
    owner: getAddress(owner),
    stoppedAt: String(Math.floor(at.getTime() / 1000)),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});
