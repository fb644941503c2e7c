import { getAddress } from "viem";
import type { Static } from "typebox";
import { newId } from "../../core/ids.ts";
import type { AllowPayeeAgainOrder } from "../../core/orders.ts";
import { readableSite, shownDenied } from "../../core/site.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import {
  MAX_DENIED_PAYEES,
  type AllowPayeeAgainBody,
  type DeniedPayee,
  type DenyPayeeBody,
} from "../../schemas/denied-payees.ts";
import { useOrderOrRequest, type OwnerCall } from "../agents/change.ts";
import { findDenied, removeDenied, type DeniedRow } from "../agents/denied-store.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readAddress, readLabel, readSite } from "../agents/rules.ts";
import { noteAudit } from "../audit/store.ts";
import { actorOf } from "../auth/index.ts";
import type { Draft } from "../orders/orders.ts";
import { lockOwner } from "../owners/store.ts";

/** Many agents are locked one after the other, each behind a payment that is being decided. */
const DENY_MS = 30_000;

/** In one transaction: when this returns, no payment to it is reserved any more. */
export async function denyPayee(
  call: OwnerCall,
  body: Static<typeof DenyPayeeBody>,
): Promise<DeniedRow> {
  const { owner, prisma } = call;
  const entry = entryIn(body);
  const note = readLabel(body.note, "body.note");
  const by = actorOf(owner);
  return prisma.$transaction(
    async (tx) => {
      const args = [owner.id, newId("dny"), entry, note, by] as const;
      // SQL: decides under the locks of the owner's and all active agents' rows.
      const rows = await tx.$queryRaw<{ outcome: "added" | "known" | "full" }[]>`
        SELECT purser_deny_payee(${args[0]}, ${args[1]}, ${args[2]}, ${args[3]}, ${args[4]}, ${MAX_DENIED_PAYEES}) AS outcome`;
      if (rows[0]?.outcome === "full")
        throw new ApiError("denied_payee_quota_exceeded", {
          detail: `You already deny ${MAX_DENIED_PAYEES} payees, which is the maximum.`,
        });
      const denied = await findDenied(tx, owner.id, entry);
      if (!denied) throw new Error(`${entry} was not denied`);
      if (rows[0]?.outcome === "added") await noteDenied(tx, call, "owner.payee_denied", denied);
      return denied;
    },
    { timeout: DENY_MS },
  );
}

/** False if there is no such entry, which needs no signature. */
export async function allowPayeeAgain(
  call: OwnerCall,
  chainId: number,
  body: Static<typeof AllowPayeeAgainBody>,
): Promise<boolean> {
  const { owner, orders, prisma } = call;
  const { authorization } = body;
  const entry = entryIn(body);
  const signed =
    authorization && (await orders.verify(owner, "AllowPayeeAgain", authorization, chainId));
  return orders.requestingSignature(owner, () =>
    prisma.$transaction(async (tx) => {
      await lockOwner(tx, owner.id);
      const denied = await findDenied(tx, owner.id, entry);
      if (!denied) return false;
      await useOrderOrRequest(tx, call, signed, {
        kind: "AllowPayeeAgain",
        // Not about an agent.
        agentId: "",
        chainId,
        version: null,
        // An order that was signed and never sent does not remove an entry that was added again since.
        since: denied.createdAt,
        build: ({ nonce, deadlineSeconds }): AllowPayeeAgainOrder => ({
          owner: getAddress(owner.address),
          payee: shownDenied(entry),
          nonce,
          deadline: String(deadlineSeconds),
        }),
      } satisfies Draft<"AllowPayeeAgain">);
      await removeDenied(tx, denied.id);
      await noteDenied(tx, call, "owner.payee_allowed", denied);
      // SQL: an event for open pages.
      await tx.$executeRaw`SELECT purser_emit(${owner.id}, 'owner', NULL, ${owner.id})`;
      return true;
    }),
  );
}

/** The address in lower case, or the site in its canonical form. */
function entryIn({ payee, site }: { payee?: string; site?: string }): string {
  if ((payee === undefined) === (site === undefined || site === ""))
    throw refuseField("validation_failed", "body", "must have either payee or site");
  return payee === undefined ? readSite(site, "body.site") : readAddress(payee, "body.payee");
}

const noteDenied = (
  tx: Db,
  { owner, requestId }: OwnerCall,
  action: "owner.payee_denied" | "owner.payee_allowed",
  { entry, note }: DeniedRow,
): Promise<void> => {
  const facts = { payee: shownDenied(entry), note };
  return noteAudit(tx, {
    ownerId: owner.id,
    agentId: null,
    actor: actorOf(owner),
    requestId,
    action,
    before: action === "owner.payee_allowed" ? facts : null,
    after: action === "owner.payee_denied" ? facts : null,
  });
};

export function viewDenied(row: DeniedRow): Static<typeof DeniedPayee> {
  const { id, entry, note, addedBy, createdAt } = row;
  const isAddress = entry.startsWith("0x");
  return {
    id,
    payee: isAddress ? getAddress(entry) : null,
    site: isAddress ? null : entry,
    readableSite: isAddress ? null : readableSite(entry),
    note,
    addedBy,
    createdAt: createdAt.toISOString(),
  };
}
