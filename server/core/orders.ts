/** The documents that an owner's wallet signs (EIP-712, docs/decisions/0020): their types, digests and parsing. */
import { getAddress, type Address, type Hex } from "viem";
import { parseAtomic } from "./money.ts";
import { sortPayees, type Rules } from "./rules.ts";
import { typedDataDigest } from "./typed-data.ts";

export const MAX_ORDER_SECONDS = 15 * 60;
/**
 * The lifetime of an approval's order, in which the agent may come back for it. Custody signs nothing that is valid for
 * longer.
 */
export const APPROVAL_SECONDS = 60 * 60;
/** Means no limit, or no end. "0" is a limit like any other: nothing can be spent. */
const ABSENT = (1n << 256n) - 1n;

/** Integers as strings, addresses with checksum: the form in JSON, which the wallet shows too. */
export interface AgentPolicyOrder {
  agent: string;
  wallet: string;
  version: string;
  name: string;
  dailyLimit: string;
  weeklyLimit: string;
  monthlyLimit: string;
  perPaymentLimit: string;
  paymentsPerHour: string;
  fetch: string;
  expiresAt: string;
  payees: {
    payee: string;
    label: string;
    site: string;
    dailyLimit: string;
    perPaymentLimit: string;
    expiresAt: string;
  }[];
  nonce: string;
  deadline: string;
}

export interface IssueKeyOrder {
  agent: string;
  wallet: string;
  label: string;
  expiresAt: string;
  nonce: string;
  deadline: string;
}

export interface WithdrawOrder {
  wallet: string;
  to: string;
  asset: string;
  amount: string;
  nonce: string;
  deadline: string;
}

export interface ApprovePaymentOrder {
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

/** The structs of each order, its own first. */
export const ORDER_TYPES: Readonly<
  Record<OrderKind, Record<string, { name: string; type: string }[]>>
> = {
  AgentPolicy: {
    AgentPolicy: [
      text("agent"),
      address("wallet"),
      number("version"),
      text("name"),
      number("dailyLimit"),
      number("weeklyLimit"),
      number("monthlyLimit"),
      number("perPaymentLimit"),
      number("paymentsPerHour"),
      text("fetch"),
      number("expiresAt"),
      { name: "payees", type: "Payee[]" },
      ...SINGLE_USE,
    ],
    Payee: [
      address("payee"),
      text("label"),
      text("site"),
      number("dailyLimit"),
      number("perPaymentLimit"),
      number("expiresAt"),
    ],
  },
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

const DOMAIN_TYPE = [text("name"), text("version"), number("chainId")];
const domainOf = (chainId: number) => ({ name: "Purser", version: "2", chainId }) as const;

/** Input of `eth_signTypedData_v4`: JSON with the domain's type, and integers as strings. */
export const typedDataOf = <K extends OrderKind>(kind: K, order: Orders[K], chainId: number) => ({
  types: { EIP712Domain: [...DOMAIN_TYPE], ...ORDER_TYPES[kind] },
  primaryType: kind,
  domain: domainOf(chainId),
  message: order,
});

/** The digest that the owner signs. The order must be well formed: parse it with readOrder first. */
export const orderDigest = <K extends OrderKind>(kind: K, order: Orders[K], chainId: number): Hex =>
  typedDataDigest(
    { structs: { EIP712Domain: DOMAIN_TYPE }, name: "EIP712Domain", value: domainOf(chainId) },
    { structs: ORDER_TYPES[kind], name: kind, value: order },
  );

/** The order in canonical form; undefined if a number does not fit 256 bits or an address is invalid. */
export function readOrder<K extends OrderKind>(kind: K, wire: Orders[K]): Orders[K] | undefined {
  const types = ORDER_TYPES[kind];
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

const onWire = (value: bigint | null): string => String(value ?? ABSENT);
/** Null means no limit, or no end. */
export const fromWire = (value: string): bigint | null => {
  const number = BigInt(value);
  return number === ABSENT ? null : number;
};

export interface PolicyFacts {
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
  dailyLimit: String(facts.rules.dailyLimitAtomic),
  weeklyLimit: onWire(facts.rules.weeklyLimitAtomic),
  monthlyLimit: onWire(facts.rules.monthlyLimitAtomic),
  perPaymentLimit: onWire(facts.rules.perPaymentLimitAtomic),
  paymentsPerHour: onWire(facts.rules.paymentsPerHour),
  fetch: facts.rules.fetch,
  expiresAt: onWire(facts.rules.expiresAtSeconds),
  payees: sortPayees(facts.rules.payees).map((payee) => ({
    payee: getAddress(payee.address),
    label: payee.label,
    site: payee.site,
    dailyLimit: onWire(payee.dailyLimitAtomic),
    perPaymentLimit: onWire(payee.perPaymentLimitAtomic),
    expiresAt: onWire(payee.expiresAtSeconds),
  })),
  nonce: facts.nonce,
  deadline: String(facts.deadlineSeconds),
});

/** The rules that a policy order contains. */
export const rulesOfPolicy = (order: AgentPolicyOrder): Rules => ({
  dailyLimitAtomic: BigInt(order.dailyLimit),
  weeklyLimitAtomic: fromWire(order.weeklyLimit),
  monthlyLimitAtomic: fromWire(order.monthlyLimit),
  perPaymentLimitAtomic: fromWire(order.perPaymentLimit),
  paymentsPerHour: fromWire(order.paymentsPerHour),
  // Fail safe: every other value restricts the agent to sites.
  fetch: order.fetch === "any" ? "any" : "sites",
  expiresAtSeconds: fromWire(order.expiresAt),
  payees: order.payees.map((payee) => ({
    address: payee.payee.toLowerCase() as Address,
    label: payee.label,
    site: payee.site,
    dailyLimitAtomic: fromWire(payee.dailyLimit),
    perPaymentLimitAtomic: fromWire(payee.perPaymentLimit),
    expiresAtSeconds: fromWire(payee.expiresAt),
  })),
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
  expiresAt: onWire(facts.expiresAtSeconds),
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
