/** The documents that an owner's wallet signs (EIP-712, docs/decisions/0020): their digests, parsing and making. */
import { getAddress, type Address, type Hex } from "viem";
import { signOptional } from "../../packages/rules/src/kinds.ts";
import {
  DOMAIN_STRUCTS,
  domainOf,
  FORMS,
  formOfDomain,
  readTypes,
  signedParts,
  typesOf,
  type ApprovePaymentOrder,
  type Form,
  type IssueKeyOrder,
  type OrderKind,
  type Orders,
} from "../../packages/rules/src/orders.ts";
import { rulesDocument, type AgentPolicyOrder } from "../../packages/rules/src/policy.ts";
import { orderIn } from "../../packages/rules/src/readable.ts";
import { parseAtomic } from "./money.ts";
import { sortPayees, type Rules } from "./rules.ts";
import { typedDataDigest } from "./typed-data.ts";

export * from "../../packages/rules/src/orders.ts";
export {
  assertKnown,
  PolicyVersionUnknown,
  rulesOfPolicy,
  versionFor,
  type AgentPolicyOrder,
} from "../../packages/rules/src/policy.ts";
export { readOptional } from "../../packages/rules/src/kinds.ts";

/** The digest that the owner signs. The order must be well formed: parse it with readOrder first. */
export function orderDigest<K extends OrderKind>(
  kind: K,
  order: Orders[K],
  chainId: number,
  form: Form,
): Hex {
  const { structs, message } = signedParts(kind, order, form);
  return typedDataDigest(
    { structs: DOMAIN_STRUCTS, name: "EIP712Domain", value: domainOf(chainId, form) },
    { structs, name: kind, value: message },
  );
}

/** In which form the order has this digest; undefined: in none. */
export const formOf = <K extends OrderKind>(
  kind: K,
  order: Orders[K],
  chainId: number,
  digest: Hex,
): Form | undefined => FORMS.find((form) => orderDigest(kind, order, chainId, form) === digest);

/** The order in typed data of ours, as a wallet showed it. */
export function orderInTypedData<K extends OrderKind>(
  kind: K,
  { domain, message }: { domain: object; message: object },
): Orders[K] | undefined {
  const form = formOfDomain(domain);
  if (form === undefined) return undefined;
  if (form === "numbers") return readOrder(kind, message as Orders[K]);
  const order = orderIn(typesOf(kind, message), kind, message);
  return order && readOrder(kind, order as Orders[K]);
}

/**
 * The order in canonical form, without members that are not signed; undefined if a number does not fit 256 bits or an
 * address is invalid. Throws `PolicyVersionUnknown` for a policy of a newer release.
 */
export function readOrder<K extends OrderKind>(kind: K, wire: Orders[K]): Orders[K] | undefined {
  const types = readTypes(kind, wire);
  if (types === undefined) return undefined;
  const struct = (name: string, value: unknown): Record<string, unknown> | undefined => {
    const read: Record<string, unknown> = {};
    for (const field of types[name] ?? []) {
      const member = (value as Record<string, unknown>)[field.name];
      const found = member === undefined ? undefined : one(field.type, member);
      if (found === undefined) return undefined;
      read[field.name] = found;
    }
    return read;
  };
  const one = (type: string, member: unknown): unknown => {
    if (type.endsWith("[]")) {
      if (!Array.isArray(member)) return undefined;
      const items = member.map((item: unknown) => struct(type.slice(0, -2), item));
      return items.includes(undefined) ? undefined : items;
    }
    const given = String(member);
    if (type === "uint256") return parseAtomic(given)?.toString();
    if (type === "bytes32")
      return /^0x[0-9a-fA-F]{64}$/.test(given) ? given.toLowerCase() : undefined;
    if (type !== "address") return given;
    return /^0x[0-9a-fA-F]{40}$/.test(given) ? getAddress(given.toLowerCase()) : undefined;
  };
  return struct(kind, wire) as Orders[K] | undefined;
}

interface PolicyFacts {
  agentId: string;
  walletAddress: Address;
  version: number;
  name: string;
  rules: Rules;
  nonce: Hex;
  deadlineSeconds: bigint;
}

export const policyOrder = (facts: PolicyFacts): AgentPolicyOrder => ({
  agent: facts.agentId,
  wallet: getAddress(facts.walletAddress),
  version: String(facts.version),
  name: facts.name,
  ...rulesDocument({ ...facts.rules, payees: sortPayees(facts.rules.payees) }, getAddress),
  nonce: facts.nonce,
  deadline: String(facts.deadlineSeconds),
});

/**
 * The label prefix of connections, which no other key may have: an order that the wallet signed for a connection must
 * not create a key that somebody holds.
 */
export const CONNECTION_LABEL = "Connection to ";

export const keyOrder = (facts: {
  agentId: string;
  walletAddress: Address;
  label: string;
  expiresAtSeconds: bigint | null;
  nonce: Hex;
  deadlineSeconds: bigint;
}): IssueKeyOrder => ({
  agent: facts.agentId,
  wallet: getAddress(facts.walletAddress),
  label: facts.label,
  expiresAt: signOptional(facts.expiresAtSeconds),
  nonce: facts.nonce,
  deadline: String(facts.deadlineSeconds),
});

export const approvalOrder = (facts: {
  agentId: string;
  payee: Address;
  asset: Address;
  maxAmountAtomic: bigint;
  site: string;
  approvalId: string;
  nonce: Hex;
  deadlineSeconds: bigint;
}): ApprovePaymentOrder => ({
  agent: facts.agentId,
  payee: getAddress(facts.payee),
  asset: getAddress(facts.asset),
  maxAmount: String(facts.maxAmountAtomic),
  site: facts.site,
  approvalId: facts.approvalId,
  nonce: facts.nonce,
  deadline: String(facts.deadlineSeconds),
});
