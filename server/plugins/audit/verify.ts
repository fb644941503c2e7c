/**
 * Verifies that an audit chain is unbroken, and that the owner signed its orders. Pure, so that database rows and lines
 * of an export are verified alike. docs/how-to/check-an-audit.md explains it to users.
 */
import { createHash } from "node:crypto";
import { hashMessage, recoverAddress, type Hex } from "viem";
import {
  ORDER_KINDS,
  formOfDomain,
  orderDigest,
  orderInTypedData,
  PolicyVersionUnknown,
  type OrderKind,
} from "../../core/orders.ts";
import {
  addressOfPasskey,
  isPasskeySignature,
  isSameKey,
  passkeyThatSigned,
  type PublicKey,
} from "../../core/passkeys.ts";
import {
  isTeamSignature,
  progressOf,
  purposeOf,
  readTeamSignature,
  signersFor,
  TEAMS_CHAIN,
  type Purpose,
} from "../../core/teams.ts";
import { Authority, type EntryBody, type Proof, type Signed, type SignedBy } from "./authority.ts";

export type { Proof } from "./authority.ts";

export interface ChainRow {
  seq: number;
  prevHash: string;
  hash: string;
  body: string;
  /** The order whose digest the body names. */
  order?: unknown;
  /** The database's columns for the text; an export has none. */
  columns?: { id: string; agentId: string | null; action: string; at: Date };
}

export interface ChainHead {
  seq: number;
  hash: string;
}

export type Verdict =
  | {
      ok: true;
      head: ChainHead;
      signatures: number;
      byContract: number;
      ownerId: string | null;
      /** The digests of everything that was signed. */
      signed: ReadonlySet<string>;
    }
  | { ok: false; seq: number; why: string };

/**
 * Returns the first invalid entry. `noted` are heads that were recorded earlier: a chain that is shorter, or differs at
 * that position, was cut or rewritten.
 */
export async function verifyChain(
  rows: AsyncIterable<ChainRow> | Iterable<ChainRow>,
  noted: readonly ChainHead[] = [],
): Promise<Verdict> {
  let head: ChainHead = { seq: 0, hash: "0".repeat(64) };
  let ownerId: string | null = null;
  let owner: Wallet | undefined;
  const counted = { signatures: 0, byContract: 0 };
  const authority = new Authority();
  for await (const row of rows) {
    const no = (why: string): Verdict => ({ ok: false, seq: head.seq + 1, why });
    const broken = linkFault(row, head);
    if (broken !== undefined) return no(broken);
    const body = readBody(row.body);
    if (body === undefined) return no("its text is not a valid entry");
    ownerId ??= body.ownerId;
    owner ??= { address: body.owner, chainId: body.ownerChainId };
    if (body.owner !== owner.address || body.ownerChainId !== owner.chainId)
      return no("it names a different owner wallet");
    const read = readSigned(row, body.proof);
    const fault =
      bodyFault(row, body, ownerId) ??
      ("fault" in read ? read.fault : undefined) ??
      (await signersFault(body, read.signed, authority, counted)) ??
      authority.faultOf(body, read.signed);
    if (fault !== undefined) return no(fault);
    head = { seq: row.seq, hash: row.hash };
    if (noted.some(({ seq, hash }) => seq === row.seq && hash !== row.hash))
      return otherHash(row.seq);
  }
  const { signatures, byContract } = counted;
  const { used: signed } = authority;
  return cutFault(head, noted) ?? { ok: true, head, signatures, byContract, ownerId, signed };
}

/**
 * Verifies the operators' audit. It has no signatures, so the chain only proves that nothing was changed or removed
 * since.
 */
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
  const nothing = { signatures: 0, byContract: 0, ownerId: null, signed: new Set<string>() };
  return cutFault(head, noted) ?? { ok: true, head, ...nothing };
}

function columnsFault({ seq, body, columns }: ChainRow): string | undefined {
  const said = readBody(body);
  if (said === undefined) return "its text is not a valid entry";
  const isSame =
    said.seq === seq &&
    columns?.id === said.id &&
    columns.action === said.action &&
    columns.at.toISOString().slice(0, 23) === said.at.slice(0, 23);
  return isSame ? undefined : "its columns differ from its text";
}

const otherHash = (seq: number): Verdict => ({
  ok: false,
  seq,
  why: "its hash differs from the one noted earlier",
});

function cutFault(head: ChainHead, noted: readonly ChainHead[]): Verdict | undefined {
  const last = Math.max(0, ...noted.map(({ seq }) => seq));
  return last > head.seq
    ? {
        ok: false,
        seq: head.seq + 1,
        why: `is missing: entry ${last} was noted earlier, and the chain ends before it`,
      }
    : undefined;
}

function linkFault(row: ChainRow, before: ChainHead): string | undefined {
  if (row.seq !== before.seq + 1) return `is missing: entry ${row.seq} is in its place`;
  if (row.prevHash !== before.hash) return "does not follow the entry before it";
  const hash = createHash("sha256")
    .update(Buffer.from(row.prevHash, "hex"))
    .update(row.body, "utf8");
  return hash.digest("hex") === row.hash ? undefined : "its hash does not match its text";
}

function readBody(text: string): EntryBody | undefined {
  try {
    const body = JSON.parse(text) as unknown;
    return typeof body === "object" && body !== null ? (body as EntryBody) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The columns used for searching must equal the entry's text; otherwise the entry would be found in the wrong place.
 */
function bodyFault(
  { seq, columns }: ChainRow,
  body: EntryBody,
  ownerId: string,
): string | undefined {
  if (body.seq !== seq) return `its text belongs to entry ${body.seq}`;
  if (body.ownerId !== ownerId) return "its text belongs to a different owner's chain";
  if (columns === undefined) return undefined;
  const isSame =
    columns.id === body.id &&
    columns.agentId === body.agentId &&
    columns.action === body.action &&
    // A JavaScript date has milliseconds, the text microseconds.
    columns.at.toISOString().slice(0, 23) === body.at.slice(0, 23);
  return isSame ? undefined : "its columns differ from its text";
}

interface Wallet {
  address: string;
  /** The chain of its contract; 0 for a plain key. */
  chainId: number;
}

/** Actions that the owner's recovery wallet may sign. */
const BY_SECOND = new Set(["session.created", "withdrawal.ordered"]);

/** Checks that the signers may sign this action, and did. */
async function signersFault(
  body: EntryBody,
  signed: Signed | undefined,
  authority: Authority,
  counted: { signatures: number; byContract: number },
): Promise<string | undefined> {
  const { proof, action, owner, ownerChainId } = body;
  if (proof === null || signed === undefined) return undefined;
  const signers = proof.kind === "message" ? [proof] : proof.signers;
  const is = (wallet: Wallet | undefined) => (by: SignedBy) =>
    by.signer === wallet?.address && by.chainId === wallet.chainId;
  const isOwners = signers.some(is({ address: owner, chainId: ownerChainId }));
  const isSeconds = BY_SECOND.has(action) && signers.some(is(authority.second));
  if (!isOwners && !isSeconds) return "its owner did not sign it";
  const isRestricted = ({ signature }: SignedBy) =>
    isPasskeySignature(signature) || isTeamSignature(signature);
  const isByWallet = isOwners && !signers.some(isRestricted);
  if (!isByWallet && signed.kind === "Withdraw") {
    if (signed.order.to.toLowerCase() !== authority.homeOf(body))
      return "only the owner's wallet can withdraw to another address";
  }
  const parties = signed.kind === "MoveOwner" ? [signed.order.from, signed.order.to] : [];
  if (parties.some((party) => !signers.some(({ signer }) => signer === party.toLowerCase())))
    return "both wallets must sign it";
  for (const by of signers) {
    const { signer, chainId, signature } = by;
    counted.signatures += 1;
    const isOwn = is({ address: owner, chainId: ownerChainId })(by);
    if (chainId === TEAMS_CHAIN) {
      const fault = isOwn
        ? await teamFault(signed, signature, authority, counted)
        : await partsFault(signed, signature, counted);
      if (fault !== undefined) return fault;
      // Which members were enough is in the team's own record.
      if (!isOwn) counted.byContract += 1;
      continue;
    }
    if (isPasskeySignature(signature)) {
      const key = passkeyThatSigned({ hash: signed.digest as Hex, signature })?.key;
      if (key && isListed(key, signer, isOwn ? authority.passkeys : undefined)) continue;
      if (!key || isOwn) return `its signature is not by a passkey of ${signer}`;
      // A passkey after the first is listed in the other owner's record.
      counted.byContract += 1;
      continue;
    }
    // Only its chain can tell what a contract accepts, and only at that moment; the service called it at the time of
    // the signature.
    if (chainId !== 0) counted.byContract += 1;
    else if ((await recovered(signed.digest as Hex, signature)) !== signer)
      return `its signature is not by ${signer}`;
  }
  return undefined;
}

/** Counts the members who signed, by the list in force before this entry. */
async function teamFault(
  signed: Signed,
  signature: string,
  { members: list }: Authority,
  counted: { byContract: number },
): Promise<string | undefined> {
  const purpose: Purpose =
    signed.kind === "message" ? { kind: "rules" } : purposeOf(signed.kind, signed.order as never);
  const parts = readTeamSignature(signature) ?? [];
  const allowed = new Set(signersFor(list, purpose).map(({ address }) => address));
  const other = parts.find(({ address }) => !allowed.has(address));
  if (other) return `it is signed by ${other.address}, whose role does not allow it`;
  const fault = await partsFault(signed, signature, counted);
  if (fault !== undefined) return fault;
  const progress = progressOf(list, purpose, new Set(parts.map(({ address }) => address)));
  return progress.isEnough
    ? undefined
    : `${progress.collected.length} members signed it, and it needs ${progress.needed}`;
}

/** Whether each part of a team's signature is by the account that it names. */
async function partsFault(
  signed: Signed,
  signature: string,
  counted: { byContract: number },
): Promise<string | undefined> {
  const parts = readTeamSignature(signature);
  if (!parts) return "its signature is not one of a team";
  const hash = signed.digest as Hex;
  for (const { address, signature: own } of parts) {
    if (!isPasskeySignature(own)) {
      if ((await recovered(hash, own)) !== address) return `its signature is not by ${address}`;
      continue;
    }
    const by = passkeyThatSigned({ hash, signature: own });
    if (!by) return `its signature is not by ${address}`;
    // Other passkeys than the first are listed in the member's own audit.
    if (addressOfPasskey(by.key) !== address) counted.byContract += 1;
  }
  return undefined;
}

/** Before the first list, the owner's address is that of its only passkey. */
const isListed = (key: PublicKey, owner: string, listed: readonly PublicKey[] | undefined) =>
  listed ? listed.some((one) => isSameKey(one, key)) : addressOfPasskey(key) === owner;

/** Accepts only our own types and domain: what an owner signed elsewhere is no order. */
function readSigned(
  row: ChainRow,
  proof: Proof | null,
): { signed: Signed | undefined } | { fault: string; signed?: undefined } {
  if (proof === null) return { signed: undefined };
  if (proof.kind === "message") {
    const { kind, message, signer } = proof;
    return { signed: { kind, message, signer, digest: hashMessage(message) } };
  }
  const beside = proof.order ?? row.order;
  if (beside === undefined) return { fault: "its order is missing" };
  try {
    const { primaryType, domain, message } = beside as {
      primaryType: OrderKind;
      domain: { chainId: number; version: string };
      message: never;
    };
    const order = ORDER_KINDS.includes(primaryType)
      ? orderInTypedData(primaryType, { domain, message })
      : undefined;
    const form = formOfDomain(domain);
    if (order === undefined || form === undefined)
      return { fault: "its order is not an order of this service" };
    const digest = orderDigest(primaryType, order, domain.chainId, form);
    return digest === proof.digest
      ? { signed: { kind: primaryType, order, digest, chainId: domain.chainId } as Signed }
      : { fault: "its order does not have the digest that it names" };
  } catch (error) {
    return {
      fault:
        error instanceof PolicyVersionUnknown
          ? "its policy was signed in a newer version of the document: check it with a newer release"
          : "its order cannot be read",
    };
  }
}

async function recovered(hash: Hex, signature: string): Promise<string | undefined> {
  try {
    return (await recoverAddress({ hash, signature: signature as Hex })).toLowerCase();
  } catch {
    return undefined;
  }
}

/** Parses a line of an export; undefined if it is invalid. */
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
