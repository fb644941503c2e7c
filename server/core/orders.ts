/** The documents that an owner's wallet signs (EIP-712, docs/decisions/0020): their types, digests and parsing. */
import { getAddress, type Address, type Hex } from "viem";
import { signOptional } from "../../packages/rules/src/kinds.ts";
import {
  policyTypes,
  rulesDocument,
  versionOf,
  type AgentPolicyOrder,
  type StructMember,
} from "../../packages/rules/src/policy.ts";
import { parseAtomic } from "./money.ts";
import { sortPayees, type Rules } from "./rules.ts";
import { typedDataDigest } from "./typed-data.ts";

export {
  assertKnown,
  PolicyVersionUnknown,
  rulesOfPolicy,
  versionFor,
  type AgentPolicyOrder,
} from "../../packages/rules/src/policy.ts";
export { readOptional } from "../../packages/rules/src/kinds.ts";

export const MAX_ORDER_SECONDS = 15 * 60;
/**
 * The lifetime of an approval's order, in which the agent may come back for it. Custody signs nothing that is valid for
 * longer.
 */
export const APPROVAL_SECONDS = 60 * 60;

export interface IssueKeyOrder {
  agent: string;
  wallet: string;
  label: string;
  expiresAt: string;
  nonce: string;
  deadline: string;
}

interface WithdrawOrder {
  wallet: string;
  to: string;
  asset: string;
  amount: string;
  nonce: string;
  deadline: string;
}

interface ApprovePaymentOrder {
  agent: string;
  payee: string;
  asset: string;
  maxAmount: string;
  site: string;
  approvalId: string;
  nonce: string;
  deadline: string;
}

/** Names the wallet that may tighten rules, and withdraw to the owner; the zero address for none. */
export interface SecondWalletOrder {
  owner: string;
  second: string;
  /** The chain of its contract; 0 for a plain key (EOA). */
  secondChain: string;
  nonce: string;
  deadline: string;
}

/** Transfers all agents of one wallet to another wallet. */
export interface MoveOwnerOrder {
  from: string;
  to: string;
  nonce: string;
  deadline: string;
}

export interface Orders {
  AgentPolicy: AgentPolicyOrder;
  IssueKey: IssueKeyOrder;
  ApprovePayment: ApprovePaymentOrder;
  Withdraw: WithdrawOrder;
  SecondWallet: SecondWalletOrder;
  MoveOwner: MoveOwnerOrder;
}
export type OrderKind = keyof Orders;

const text = (name: string) => ({ name, type: "string" });
const number = (name: string) => ({ name, type: "uint256" });
const address = (name: string) => ({ name, type: "address" });
const SINGLE_USE = [{ name: "nonce", type: "bytes32" }, number("deadline")];

type Structs = Record<string, StructMember[]>;

/** The structs of each order, its own first. Those of a policy depend on its version. */
const ORDER_TYPES: Readonly<Record<Exclude<OrderKind, "AgentPolicy">, Structs>> = {
  IssueKey: {
    IssueKey: [text("agent"), address("wallet"), text("label"), number("expiresAt"), ...SINGLE_USE],
  },
  ApprovePayment: {
    ApprovePayment: [
      text("agent"),
      address("payee"),
      address("asset"),
      number("maxAmount"),
      text("site"),
      text("approvalId"),
      ...SINGLE_USE,
    ],
  },
  Withdraw: {
    Withdraw: [address("wallet"), address("to"), address("asset"), number("amount"), ...SINGLE_USE],
  },
  SecondWallet: {
    SecondWallet: [address("owner"), address("second"), number("secondChain"), ...SINGLE_USE],
  },
  MoveOwner: { MoveOwner: [address("from"), address("to"), ...SINGLE_USE] },
};

export const ORDER_KINDS: readonly OrderKind[] = [
  "AgentPolicy",
  ...(Object.keys(ORDER_TYPES) as (keyof typeof ORDER_TYPES)[]),
];

/** Undefined if the version of a policy is malformed; throws `PolicyVersionUnknown` if it is unknown. */
function readTypes(kind: OrderKind, order: object): Structs | undefined {
  if (kind !== "AgentPolicy") return ORDER_TYPES[kind];
  const version = versionOf(order);
  return version === undefined ? undefined : policyTypes(version);
}

export function typesOf(kind: OrderKind, order: object): Structs {
  const types = readTypes(kind, order);
  if (types === undefined) throw new Error("the version of the policy document is malformed");
  return types;
}

const DOMAIN_TYPE = [text("name"), text("version"), number("chainId")];
const DOMAIN_STRUCTS = { EIP712Domain: DOMAIN_TYPE };
export const domainOf = (chainId: number) => ({ name: "Purser", version: "2", chainId }) as const;

/** Input of `eth_signTypedData_v4`: JSON with the domain's type, and integers as strings. */
export const typedDataOf = <K extends OrderKind>(kind: K, order: Orders[K], chainId: number) => ({
  types: { EIP712Domain: [...DOMAIN_TYPE], ...typesOf(kind, order) },
  primaryType: kind,
  domain: domainOf(chainId),
  message: order,
});

/** The digest that the owner signs. The order must be well formed: parse it with readOrder first. */
export const orderDigest = <K extends OrderKind>(kind: K, order: Orders[K], chainId: number): Hex =>
  typedDataDigest(
    { structs: DOMAIN_STRUCTS, name: "EIP712Domain", value: domainOf(chainId) },
    { structs: typesOf(kind, order), name: kind, value: order },
  );

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
      const items = (member as unknown[]).map((item) => struct(type.slice(0, -2), item));
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
