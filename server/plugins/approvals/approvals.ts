/**
 * Approvals of denied payments (docs/decisions/0021): the agent requests one, the owner's wallet signs or the owner
 * declines, and then the same call of the agent is paid once. SQL decides what an approval lifts, in the transaction
 * that reserves; this file handles the requests, the decisions and the responses to both sides.
 */
import { randomBytes } from "node:crypto";
import { getAddress } from "viem";
import { ApiError } from "../../errors.ts";
import { assertNotStopped } from "../owners/store.ts";
import { newId } from "../../core/ids.ts";
import { formatAtomic } from "../../core/money.ts";
import { approvalOrder, APPROVAL_SECONDS } from "../../core/orders.ts";
import { databaseNow, secondsAfter, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import type { AgentApproval, Approval, ApprovalRequired } from "../../schemas/approvals.ts";
import { withOwnerLock, useOrderOrRequest, writeAudit, type OwnerCall } from "../agents/change.ts";
import { assertNotDenied } from "../agents/denied-store.ts";
import { lockAgent } from "../agents/store.ts";
import { orderNotSigned } from "../orders/orders.ts";
import {
  approvalsOfCall,
  countApprovals,
  decideApproval,
  expireCall,
  findApproval,
  insertApproval,
  type ApprovalRow,
  type NewApproval,
  type Terms,
} from "./store.ts";

/** How long the owner may take. */
const OPEN_SECONDS = 24 * 3600;
/** The longest validity of an authorization, which must end before the order does. */
const AUTHORIZATION_SECONDS = 120;
const MAX_OPEN = 5;
const MAX_A_DAY = 100;
/** The prefix of a generated key, for a call without one. */
const OWN_KEY = "approval-";

type ApprovalRequest = Omit<NewApproval, "id" | "ownerId" | "expiresAt">;

interface ApprovalsDeps {
  prisma: PrismaClient;
  withAgentLock<T>(agentId: string, work: () => Promise<T>): Promise<T>;
  networkOf(chainId: number): string;
}

export class Approvals {
  readonly #deps: ApprovalsDeps;
  readonly #opening = new Map<string, Promise<ApprovalRow>>();

  constructor(deps: ApprovalsDeps) {
    this.#deps = deps;
  }

  /**
   * The key for a call without an Idempotency-Key: that of its approval request, while that is open, otherwise a new
   * one. So a repeat without a key joins the first call and is paid once, like one with a key.
   */
  async keyFor(agentId: string, call: Uint8Array): Promise<{ key: string; isKnown: boolean }> {
    const known = await approvalsOfCall(this.#deps.prisma, { agentId, call });
    const joined = known.find((one) => isLive(one) || one.key.startsWith(OWN_KEY));
    const key = joined?.key ?? `${OWN_KEY}${randomBytes(16).toString("hex")}`;
    return { key, isKnown: joined !== undefined };
  }

  /** Opens an approval request, or joins the existing one of this call without taking a lock. */
  async request(wanted: ApprovalRequest): Promise<ApprovalRequired> {
    const known = await approvalsOfCall(this.#deps.prisma, wanted);
    const live = known.find((one) => isLive(one) && isWithin(wanted, one));
    if (live) return this.#required(live);
    // Concurrent repeats take the agent's lock once. The row distinguishes different terms.
    const call = `${wanted.agentId}|${Buffer.from(wanted.call).toString("hex")}`;
    const opening = this.#opening.get(call) ?? this.#open(wanted);
    this.#opening.set(call, opening);
    try {
      const row = await opening;
      return this.#required(isWithin(wanted, row) ? row : await this.#open(wanted));
    } finally {
      if (this.#opening.get(call) === opening) this.#opening.delete(call);
    }
  }

  async #open(wanted: ApprovalRequest): Promise<ApprovalRow> {
    const { agentId } = wanted;
    return this.#deps.withAgentLock(agentId, () =>
      this.#deps.prisma.$transaction(async (tx) => {
        const ownerId = await lockedOwner(tx, agentId);
        const known = await approvalsOfCall(tx, wanted);
        const live = known.find((one) => isLive(one) && isWithin(wanted, one));
        if (live) return live;
        const declined = known.find((one) => one.state === "declined" && isSame(wanted, one));
        if (declined && declined.amountAtomic <= wanted.amountAtomic)
          throw new ApiError("approval_declined", {
            detail: "The owner declined this payment.",
            extra: { ...denied(wanted), approvalId: declined.id },
          });
        // The price or payee has changed: the payment would differ from what the owner was asked for, or signed.
        await expireCall(tx, wanted);
        await assertQuota(tx, wanted);
        const expiresAt = secondsAfter(await databaseNow(tx), OPEN_SECONDS);
        return insertApproval(tx, { ...wanted, id: newId("apr"), ownerId, expiresAt });
      }),
    );
  }

  /** The owner's wallet signs exactly these terms; the digest of the signed order becomes the payment's nonce. */
  async approve(call: OwnerCall, id: string): Promise<Approval> {
    const seen = await this.ofOwner(call.owner.id, id);
    const { agentId } = seen;
    const signed =
      call.authorization &&
      (await call.orders.verify(call.owner, "ApprovePayment", call.authorization, seen.chainId));
    if (signed && (signed.order.approvalId !== id || signed.order.agent !== agentId))
      throw orderNotSigned("The order is for a different approval.");
    const work = () =>
      this.#deciding(call, seen, "loosens", async (tx, held) => {
        // The same signature again: the response to it was lost.
        if (signed && held.permitNonce === signed.digest) return;
        if (held.state !== "open") throw closed(held);
        await assertNotDenied(tx, call.owner.id, [{ address: held.payee, site: held.site }]);
        await useOrderOrRequest(tx, call, signed, {
          kind: "ApprovePayment",
          agentId,
          chainId: held.chainId,
          version: null,
          validSeconds: APPROVAL_SECONDS,
          build: (single) =>
            approvalOrder({
              agentId,
              payee: held.payee,
              asset: held.asset,
              maxAmountAtomic: held.amountAtomic,
              site: held.site,
              approvalId: id,
              ...single,
            }),
        });
        // useOrderOrRequest has thrown if there is no signature.
        if (!signed) return;
        const deadline = BigInt(signed.order.deadline);
        const granted = {
          state: "granted",
          permitNonce: signed.digest,
          permitUntil: deadline,
          expiresAt: new Date((Number(deadline) - AUTHORIZATION_SECONDS) * 1000),
        } as const;
        if (!(await decideApproval(tx, id, ["open"], granted))) throw closed(held);
        const after = { ...this.#auditFacts(held), orderNonce: signed.order.nonce };
        await writeAudit(tx, call, agentId, { action: "approval.granted", before: null, after });
      });
    const row = await call.orders.requestingSignature(call.owner, () =>
      withOwnerLock(call, signed, work),
    );
    return this.view(row);
  }

  /** Declining only tightens, so a session is sufficient; it also revokes an approval that is not paid yet. */
  async decline(call: OwnerCall, id: string): Promise<Approval> {
    const seen = await this.ofOwner(call.owner.id, id);
    const row = await this.#deciding(call, seen, "tightens", async (tx, held) => {
      if (held.state === "declined") return;
      if (held.state !== "open" && held.state !== "granted") throw closed(held);
      const before = { status: held.state };
      if (!(await decideApproval(tx, id, ["open", "granted"], { state: "declined" })))
        throw closed(held);
      const after = this.#auditFacts(held);
      await writeAudit(tx, call, held.agentId, { action: "approval.declined", before, after });
    });
    return this.view(row);
  }

  /** Under the agent's lock, so that a decision and a payment run one after the other. */
  #deciding(
    call: OwnerCall,
    { id, agentId }: ApprovalRow,
    effect: "loosens" | "tightens",
    decide: (tx: Db, held: ApprovalRow) => Promise<void>,
  ): Promise<ApprovalRow> {
    const where = { id, ownerId: call.owner.id };
    return call.withAgentLock(agentId, () =>
      call.prisma.$transaction(async (tx) => {
        if (effect === "loosens") await assertNotStopped(tx, call.owner.id);
        const agent = await lockAgent(tx, call.owner.id, agentId);
        const held = await findApproval(tx, where);
        if (!agent || !held) throw notFound();
        if (agent.status === "archived")
          throw new ApiError("conflict", {
            detail: "This agent is archived and can only be read.",
          });
        await decide(tx, held);
        return (await findApproval(tx, where)) ?? held;
      }),
    );
  }

  async ofOwner(ownerId: string, id: string): Promise<ApprovalRow> {
    const row = await findApproval(this.#deps.prisma, { id, ownerId });
    if (!row) throw notFound();
    return row;
  }

  async ofAgent(agentId: string, id: string): Promise<AgentApproval> {
    const row = await findApproval(this.#deps.prisma, { id, agentId });
    if (!row) throw notFound();
    const { id: approvalId, state: status, paymentId } = row;
    return { approvalId, status, paymentId, ...this.#facts(row), ...instructions(row) };
  }

  #required(row: ApprovalRow): ApprovalRequired {
    return {
      success: false,
      status: "approval_required",
      state: row.state === "granted" ? "granted" : "open",
      paid: false,
      approvalId: row.id,
      ...this.#facts(row),
      ...instructions(row),
    };
  }

  view(row: ApprovalRow): Approval {
    const { id, agentId, agentName, kind, url, memo, deniedPaymentId, paymentId } = row;
    const facts = { id, agentId, agentName, kind, url, memo, deniedPaymentId, paymentId };
    return {
      ...facts,
      approvalId: id,
      status: row.state,
      ...this.#facts(row),
      asset: getAddress(row.asset),
      createdAt: row.createdAt.toISOString(),
      decidedAt: row.decidedAt?.toISOString() ?? null,
    };
  }

  #facts({ payee, amountAtomic, chainId, site, reason, denial, expiresAt }: ApprovalRow) {
    return {
      payee: getAddress(payee),
      amount: formatAtomic(amountAtomic),
      network: this.#deps.networkOf(chainId),
      site: site === "" ? null : site,
      reason,
      denial,
      expiresAt: expiresAt.toISOString(),
    };
  }

  #auditFacts(row: ApprovalRow): Record<string, unknown> {
    const { payee, amount, network, site } = this.#facts(row);
    return { approvalId: row.id, payee, amount, network, site, denial: row.denial.code };
  }
}

async function lockedOwner(tx: Db, agentId: string): Promise<string> {
  const agent = await tx.agent.findUnique({ where: { id: agentId }, select: { ownerId: true } });
  if (!agent) throw new ApiError("not_found");
  await lockAgent(tx, agent.ownerId, agentId);
  return agent.ownerId;
}

const isLive = ({ state }: ApprovalRow): boolean => state === "open" || state === "granted";

const isSame = (one: Omit<Terms, "amountAtomic">, other: Omit<Terms, "amountAtomic">): boolean =>
  one.chainId === other.chainId &&
  one.asset === other.asset &&
  one.payee === other.payee &&
  one.site === other.site;

/** A request for a larger amount covers a smaller one. */
const isWithin = (wanted: Terms, row: Terms): boolean =>
  isSame(wanted, row) && wanted.amountAtomic <= row.amountAtomic;

async function assertQuota(tx: Db, wanted: ApprovalRequest): Promise<void> {
  const { openIds, lastDay } = await countApprovals(tx, wanted.agentId);
  if (openIds.length < MAX_OPEN && lastDay < MAX_A_DAY) return;
  throw new ApiError("too_many_approvals", {
    detail:
      openIds.length >= MAX_OPEN
        ? `The agent already has ${openIds.length} open requests. Nothing was paid or requested.`
        : `The agent made ${lastDay} requests in 24 hours. Nothing was paid or requested.`,
    headers: { "retry-after": "60" },
    extra: { ...denied(wanted), approvalIds: openIds },
  });
}

/** The response is still a denial, with the numbers of its rule. */
const denied = ({ denial, deniedPaymentId }: ApprovalRequest) => ({
  blocked: true,
  denialCode: denial.code,
  policy: denial.policy,
  paymentId: deniedPaymentId,
});

const notFound = (): ApiError =>
  new ApiError("not_found", { detail: "There is no approval with this id." });

const closed = ({ state, id }: ApprovalRow): ApiError =>
  new ApiError("approval_closed", {
    detail: `This approval is ${state}.`,
    extra: { approvalId: id, state },
  });

/** Instructions for a model. */
function instructions({ id, key, state }: ApprovalRow) {
  const waitUrl = `/api/agents/approvals/${id}?wait=30`;
  const next = {
    open: `The owner has not decided yet. Wait: GET ${waitUrl} until the status is granted or declined. When granted, repeat exactly this call with Idempotency-Key ${key}. Do not change it, split the payment or ask again.`,
    granted: `The owner allowed this payment once. Repeat exactly the same call with Idempotency-Key ${key} now. It is paid once, even if you repeat the call.`,
    declined:
      "The owner declined. Do not ask again, and do not pay in another way or in parts. Report it to your user.",
    expired:
      "The request was not decided in time, or the price or payee changed. Nothing was paid. Ask again only if the payment is still needed.",
    used: `The payment was made or is being made. Repeat the same call with Idempotency-Key ${key} to get its response. Nothing is paid twice.`,
  }[state];
  return { idempotencyKey: key, waitUrl, next };
}
