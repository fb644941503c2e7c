/** Stored approvals. A granted approval is used up in SQL (purser_permit), together with the reservation. */
import type { Address, Hex } from "viem";
import type { PageRequest, Place } from "../../core/paging.ts";
import {
  atomicOf,
  databaseNow,
  decimalOf,
  hoursBefore,
  jsonOf,
  placeOf,
  readKeyset,
  type Db,
  type Prisma,
} from "../../infra/db/prisma.ts";

export type ApprovalState = "open" | "granted" | "declined" | "expired" | "used";

/** The denial as the agent received it. */
interface StoredDenial {
  code: string;
  rule: string;
  detail: string;
  policy: Record<string, string>;
}

/** The payment that the agent's call would make. */
export interface Terms {
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  payee: Address;
  amountAtomic: bigint;
  /** The origin that x402-fetch pays; "" for a spend. */
  site: string;
}

export interface NewApproval extends Terms {
  id: string;
  ownerId: string;
  agentId: string;
  call: Uint8Array;
  key: string;
  url: string | null;
  listingId: string | null;
  memo: string | null;
  reason: string | null;
  denial: StoredDenial;
  deniedPaymentId: string | null;
  expiresAt: Date;
}

export interface ApprovalRow extends Omit<NewApproval, "call">, Place {
  agentName: string;
  /** The current state: an approval past its end is expired, even before the job has marked it. */
  state: ApprovalState;
  permitNonce: Hex | null;
  paymentId: string | null;
  createdAt: Date;
  decidedAt: Date | null;
}

const WITH_AGENT = { agent: { select: { name: true } } } as const;
type Stored = Prisma.ApprovalGetPayload<{ include: typeof WITH_AGENT }>;
const LIVE: ApprovalState[] = ["open", "granted"];

function rowOf(stored: Stored, now: Date): ApprovalRow {
  const {
    agent,
    amount,
    chainId,
    call: _call,
    permitUntil: _until,
    denialCode: _code,
    ...rest
  } = stored;
  const state = stored.state as ApprovalState;
  const isOver = LIVE.includes(state) && stored.expiresAt <= now;
  return {
    ...(rest as typeof rest & Pick<ApprovalRow, "kind" | "asset" | "payee" | "permitNonce">),
    ...placeOf(stored),
    agentName: agent.name,
    chainId: Number(chainId),
    amountAtomic: atomicOf(amount),
    denial: stored.denial as unknown as StoredDenial,
    state: isOver ? "expired" : state,
  };
}

export async function insertApproval(tx: Db, approval: NewApproval): Promise<ApprovalRow> {
  const now = await databaseNow(tx);
  const { amountAtomic, chainId, call, denial, ...rest } = approval;
  const stored = await tx.approval.create({
    data: {
      ...rest,
      amount: decimalOf(amountAtomic),
      chainId: BigInt(chainId),
      call: Uint8Array.from(call),
      denialCode: denial.code,
      denial: jsonOf(denial),
      createdAt: now,
    },
    include: WITH_AGENT,
  });
  return rowOf(stored, now);
}

export async function findApproval(
  db: Db,
  where: { id: string; ownerId: string } | { id: string; agentId: string },
): Promise<ApprovalRow | undefined> {
  const stored = await db.approval.findUnique({ where, include: WITH_AGENT });
  return stored === null ? undefined : rowOf(stored, await databaseNow(db));
}

/** Newest first: all approvals of this call that have not expired, in any state. */
export async function approvalsOfCall(
  db: Db,
  { agentId, call }: { agentId: string; call: Uint8Array },
): Promise<ApprovalRow[]> {
  const now = await databaseNow(db);
  const stored = await db.approval.findMany({
    where: { agentId, call: Uint8Array.from(call), expiresAt: { gt: now } },
    include: WITH_AGENT,
    orderBy: [{ createdAt: "desc" }, { id: "desc" }],
    take: 20,
  });
  return stored.map((one) => rowOf(one, now));
}

/** The approvals that count against an agent's quota: open ones, and all of the last day. */
export async function countApprovals(
  db: Db,
  agentId: string,
): Promise<{ openIds: string[]; lastDay: number }> {
  const now = await databaseNow(db);
  const [open, lastDay] = await Promise.all([
    db.approval.findMany({
      where: { agentId, state: "open", expiresAt: { gt: now } },
      select: { id: true },
    }),
    db.approval.count({ where: { agentId, createdAt: { gt: hoursBefore(now, 24) } } }),
  ]);
  return { openIds: open.map(({ id }) => id), lastDay };
}

/** Expires the approvals of one call that have ended, or whose terms the call no longer has. */
export async function expireCall(
  tx: Db,
  { agentId, call }: { agentId: string; call: Uint8Array },
): Promise<void> {
  await tx.approval.updateMany({
    where: { agentId, call: Uint8Array.from(call), state: { in: LIVE } },
    data: { state: "expired" },
  });
}

interface Decision {
  state: "granted" | "declined";
  permitNonce?: Hex;
  permitUntil?: bigint;
  expiresAt?: Date;
}

/** False if it is no longer in one of these states. */
export async function decideApproval(
  tx: Db,
  id: string,
  from: ApprovalState[],
  decision: Decision,
): Promise<boolean> {
  const now = await databaseNow(tx);
  const { count } = await tx.approval.updateMany({
    where: { id, state: { in: from }, expiresAt: { gt: now } },
    data: { ...decision, decidedAt: now },
  });
  return count === 1;
}

export async function listApprovals(
  db: Db,
  args: { ownerId: string; states: ApprovalState[] | undefined; page: PageRequest },
): Promise<ApprovalRow[]> {
  const { ownerId, states, page } = args;
  const now = await databaseNow(db);
  const inState = (state: ApprovalState): Prisma.ApprovalWhereInput =>
    LIVE.includes(state)
      ? { state, expiresAt: { gt: now } }
      : state === "expired"
        ? { OR: [{ state }, { state: { in: LIVE }, expiresAt: { lte: now } }] }
        : { state };
  const wanted: Prisma.ApprovalWhereInput = states ? { OR: states.map(inState) } : {};
  const stored = await readKeyset(page, (where, order) =>
    db.approval.findMany({
      where: { AND: [{ ownerId }, wanted, where] },
      include: WITH_AGENT,
      ...order,
    }),
  );
  return stored.map((one) => rowOf(one, now));
}

/** Which of these are no longer open. */
export async function decidedAmong(db: Db, ids: readonly string[]): Promise<string[]> {
  const now = await databaseNow(db);
  const open = await db.approval.findMany({
    where: { id: { in: [...ids] }, state: "open", expiresAt: { gt: now } },
    select: { id: true },
  });
  const isOpen = new Set(open.map(({ id }) => id));
  return ids.filter((id) => !isOpen.has(id));
}

/** Expires approvals that were not decided or used in time; the owner is notified. */
export async function expireApprovals(db: Db): Promise<number> {
  const now = await databaseNow(db);
  const { count } = await db.approval.updateMany({
    where: { state: { in: LIVE }, expiresAt: { lte: now } },
    data: { state: "expired" },
  });
  return count;
}
