/**
 * Does a chain of entries hold together, and did the owner sign what it says was signed? Pure, so that rows of the
 * database and lines of an export are judged alike. docs/how-to/check-an-audit.md says the same to strangers.
 */
import { createHash } from "node:crypto";
import {
  hashMessage,
  hashTypedData,
  recoverAddress,
  type Hex,
  type TypedDataDefinition,
} from "viem";

/** What an entry's text says. */
export interface EntryBody {
  seq: number;
  id: string;
  at: string;
  ownerId: string;
  owner: string;
  /** The chain whose contract the owner is; 0 for a key. */
  ownerChainId: number;
  agentId: string | null;
  actor: string;
  action: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  requestId: string | null;
  proof: Proof | null;
}

/**
 * A signed text, or a signed order (EIP-712 typed data) by its digest, with whoever signed it. An order is here where it is
 * small, beside the entry where it is long. `chainId`: by a contract of that chain.
 */
export type Proof =
  | { kind: "message"; message: string; signer: string; chainId: number; signature: string }
  | { kind: "order"; digest: string; order?: unknown; signers: SignedBy[] };

interface SignedBy {
  signer: string;
  chainId: number;
  signature: string;
}

export interface ChainRow {
  seq: number;
  prevHash: string;
  hash: string;
  body: string;
  /** The order whose digest the body names. */
  order?: unknown;
  /** What the database has beside the text; an export has none. */
  columns?: { id: string; agentId: string | null; action: string; at: Date };
}

export interface ChainHead {
  seq: number;
  hash: string;
}

export type Verdict =
  | { ok: true; head: ChainHead; signatures: number; byContract: number; ownerId: string | null }
  | { ok: false; seq: number; why: string };

/** What nobody can have done without a signature; an entry of it without one was not written by the service. */
const SIGNED_ACTIONS = new Set([
  "session.created",
  "withdrawal.ordered",
  "policy.signed",
  "key.signed",
  "payment.approved",
  "second.named",
  "owner.moved",
  "owner.received",
]);
/** What follows an order of its own, which stands right before it. */
const AFTER_ORDER: Readonly<Record<string, string>> = {
  "agent.created": "policy.signed",
  "agent.resumed": "policy.signed",
  "key.created": "key.signed",
  "key.rotated": "key.signed",
  "connection.granted": "key.signed",
};

/**
 * Names the first entry that does not fit. `noted` are ends seen before, wherever they were kept: a chain that is
 * shorter, or another at that place, was cut or written anew.
 */
export async function verifyChain(
  rows: AsyncIterable<ChainRow> | Iterable<ChainRow>,
  noted: readonly ChainHead[] = [],
): Promise<Verdict> {
  let head: ChainHead = { seq: 0, hash: "0".repeat(64) };
  let ownerId: string | null = null;
  let owner: string | undefined;
  const signed: Signed = { signatures: 0, byContract: 0, second: undefined };
  const orders = new Map<string, number>();
  for await (const row of rows) {
    const no = (why: string): Verdict => ({ ok: false, seq: head.seq + 1, why });
    const broken = linkFault(row, head);
    if (broken !== undefined) return no(broken);
    const body = readBody(row.body);
    if (body === undefined) return no("its text is no entry");
    ownerId ??= body.ownerId;
    owner ??= body.owner;
    if (body.owner !== owner) return no("it names another wallet as the owner's");
    const fault =
      bodyFault(row, body, ownerId) ??
      (await proofFault(row, body, signed)) ??
      orderFault(body, orders);
    if (fault !== undefined) return no(fault);
    head = { seq: row.seq, hash: row.hash };
    if (noted.some(({ seq, hash }) => seq === row.seq && hash !== row.hash))
      return otherHash(row.seq);
  }
  const { signatures, byContract } = signed;
  return cutFault(head, noted) ?? { ok: true, head, signatures, byContract, ownerId };
}

/** What operators did: no signatures, so that the chain says only that nothing was changed or taken away since. */
export async function verifyOperators(
  rows: AsyncIterable<ChainRow> | Iterable<ChainRow>,
  noted: readonly ChainHead[] = [],
): Promise<Verdict> {
  let head: ChainHead = { seq: 0, hash: "0".repeat(64) };
  for await (const row of rows) {
    const fault = linkFault(row, head) ?? columnsFault(row);
    if (fault !== undefined) return { ok: false, seq: head.seq + 1, why: fault };
    head = { seq: row.seq, hash: row.hash };
    const other = noted.find(({ seq, hash }) => seq === row.seq && hash !== row.hash);
    if (other) return otherHash(row.seq);
  }
  return cutFault(head, noted) ?? { ok: true, head, signatures: 0, byContract: 0, ownerId: null };
}

function columnsFault({ seq, body, columns }: ChainRow): string | undefined {
  const said = readBody(body);
  if (said === undefined) return "its text is no entry";
  const isSame =
    said.seq === seq &&
    columns?.id === said.id &&
    columns.action === said.action &&
    columns.at.toISOString().slice(0, 23) === said.at.slice(0, 23);
  return isSame ? undefined : "the columns beside its text say something else";
}

const otherHash = (seq: number): Verdict => ({
  ok: false,
  seq,
  why: "its hash is not the one that was noted for it",
});

function cutFault(head: ChainHead, noted: readonly ChainHead[]): Verdict | undefined {
  const last = Math.max(0, ...noted.map(({ seq }) => seq));
  return last > head.seq
    ? {
        ok: false,
        seq: head.seq + 1,
        why: `is missing: the chain was noted to reach entry ${last}, and ends before`,
      }
    : undefined;
}

function linkFault(row: ChainRow, before: ChainHead): string | undefined {
  if (row.seq !== before.seq + 1) return `is missing: entry ${row.seq} comes in its place`;
  if (row.prevHash !== before.hash) return "does not follow the entry before it";
  const hash = createHash("sha256")
    .update(Buffer.from(row.prevHash, "hex"))
    .update(row.body, "utf8");
  return hash.digest("hex") === row.hash ? undefined : "its text does not have its hash";
}

function readBody(text: string): EntryBody | undefined {
  try {
    const body = JSON.parse(text) as unknown;
    return typeof body === "object" && body !== null ? (body as EntryBody) : undefined;
  } catch {
    return undefined;
  }
}

/** What finds an entry must say what the entry says, or the entry is found where it does not belong. */
function bodyFault(
  { seq, columns }: ChainRow,
  body: EntryBody,
  ownerId: string,
): string | undefined {
  if (body.seq !== seq) return `its text is that of entry ${body.seq}`;
  if (body.ownerId !== ownerId) return "its text is of another owner's chain";
  if (columns === undefined) return undefined;
  const isSame =
    columns.id === body.id &&
    columns.agentId === body.agentId &&
    columns.action === body.action &&
    // A date of ours has milliseconds, the text microseconds.
    columns.at.toISOString().slice(0, 23) === body.at.slice(0, 23);
  return isSame ? undefined : "the columns beside its text say something else";
}

interface Signed {
  signatures: number;
  byContract: number;
  /** The second wallet, as the owner named it last. */
  second: string | undefined;
}

/** What the owner's second wallet may sign. */
const BY_SECOND = new Set(["session.created", "withdrawal.ordered"]);

function secondIn(proof: Proof, row: ChainRow): string | undefined {
  const order = proof.kind === "order" ? (proof.order ?? row.order) : undefined;
  const { message } = (order ?? {}) as { message?: { second?: unknown } };
  return typeof message?.second === "string" ? message.second.toLowerCase() : undefined;
}

async function proofFault(
  row: ChainRow,
  { proof, action, owner, ownerChainId }: EntryBody,
  counted: Signed,
): Promise<string | undefined> {
  if (proof === null)
    return SIGNED_ACTIONS.has(action) ? `a ${action} without a signature` : undefined;
  const digest = digestOf(row, proof);
  if (typeof digest !== "string") return digest.fault;
  const signers = proof.kind === "message" ? [proof] : proof.signers;
  const isOwners = ({ signer, chainId }: SignedBy) =>
    (signer === owner && chainId === ownerChainId) ||
    (BY_SECOND.has(action) && signer === counted.second);
  if (!signers.some(isOwners)) return "it was not signed by its owner";
  if (action === "second.named") counted.second = secondIn(proof, row);
  for (const { signer, chainId, signature } of signers) {
    counted.signatures += 1;
    // Only its chain can say what a contract accepts, and only for then; the service asked it when it was signed.
    if (chainId !== 0) counted.byContract += 1;
    else if ((await recovered(digest, signature)) !== signer)
      return `its signature is not that of ${signer}`;
  }
  return undefined;
}

/** Each order permits one such change of its agent. */
function orderFault(
  { action, agentId, proof }: EntryBody,
  unused: Map<string, number>,
): string | undefined {
  const slot = (kind: string): string => `${agentId} ${kind}`;
  if (proof !== null) unused.set(slot(action), (unused.get(slot(action)) ?? 0) + 1);
  const needed = AFTER_ORDER[action];
  if (needed === undefined) return undefined;
  const left = unused.get(slot(needed)) ?? 0;
  unused.set(slot(needed), left - 1);
  return left > 0 ? undefined : `is ${action} without an order that was signed for it`;
}

function digestOf(row: ChainRow, proof: Proof): Hex | { fault: string } {
  if (proof.kind === "message") return hashMessage(proof.message);
  const order = proof.order ?? row.order;
  if (order === undefined) return { fault: "the order it names is missing" };
  try {
    const digest = hashTypedData(order as TypedDataDefinition);
    return digest === proof.digest
      ? digest
      : { fault: "the order beside it is not the one it names" };
  } catch {
    return { fault: "the order beside it cannot be read" };
  }
}

async function recovered(hash: Hex, signature: string): Promise<string | undefined> {
  try {
    return (await recoverAddress({ hash, signature: signature as Hex })).toLowerCase();
  } catch {
    return undefined;
  }
}

/** A line of an export; undefined when it is none. */
export function readLine(text: string): ChainRow | undefined {
  try {
    const { seq, prevHash, hash, body, order } = JSON.parse(text) as ChainRow;
    const isRow =
      Number.isSafeInteger(seq) && [prevHash, hash, body].every((part) => typeof part === "string");
    if (!isRow) return undefined;
    return { seq, prevHash, hash, body, ...(order === undefined ? {} : { order }) };
  } catch {
    return undefined;
  }
}
