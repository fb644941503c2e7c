/**
 * The documents that an owner's wallet signs (EIP-712, docs/decisions/0020): their members, structs and domain. The web
 * app makes the wallet's typed data of each order from these structs, so a response of the server only provides values.
 * The app compares these with what the user entered before the wallet sees them.
 */
import { policyTypes, versionOf, type AgentPolicyOrder, type StructMember } from "./policy.ts";
import { BUDGET_FIELDS } from "./budgets.ts";
import { readableMessage, readableStructs } from "./readable.ts";

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

/** How long members of a team may take to sign an order. */
export const TEAM_ORDER_SECONDS = 7 * 24 * 60 * 60;

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

/** A public key of an owner: P-256, as its passkey proves it. */
export interface SignedPasskey {
  name: string;
  x: string;
  y: string;
}

/** All passkeys that may sign for an owner from now on. */
export interface PasskeysOrder {
  owner: string;
  version: string;
  passkeys: SignedPasskey[];
  nonce: string;
  deadline: string;
}

/** The only address to which an owner with passkeys withdraws. The first version is in force at once, a later one a day after. */
export interface PayoutAddressOrder {
  owner: string;
  version: string;
  payout: string;
  nonce: string;
  deadline: string;
}

/** Ends a stop of everything: the one that began at that time, in seconds. */
export interface ResumeOrder {
  owner: string;
  stoppedAt: string;
  nonce: string;
  deadline: string;
}

/** Removes an entry of what the owner never pays: an address, or a site. */
export interface AllowPayeeAgainOrder {
  owner: string;
  payee: string;
  nonce: string;
  deadline: string;
}

/** A budget over several agents as it is after this change, and the agents that it takes out. */
export interface BudgetOrder {
  owner: string;
  budgetId: string;
  version: string;
  name: string;
  dailyLimit: string;
  weeklyLimit: string;
  monthlyLimit: string;
  /** "active" or "archived". */
  status: string;
  /** Their ids, sorted and separated by a comma and a space. */
  agentsOut: string;
  nonce: string;
  deadline: string;
}

export interface SignedMember {
  name: string;
  account: string;
  /** PASSKEYS_CHAIN for an account with passkeys; the chain of a contract; 0 for a plain key. */
  chain: string;
  role: string;
}

/** Who decides for a team from now on (teams.ts). The owner of the first list is the zero address: the team is named by its digest. */
export interface MembersOrder {
  owner: string;
  version: string;
  name: string;
  threshold: string;
  approvalAbove: string;
  members: SignedMember[];
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
  Passkeys: PasskeysOrder;
  PayoutAddress: PayoutAddressOrder;
  Resume: ResumeOrder;
  AllowPayeeAgain: AllowPayeeAgainOrder;
  Budget: BudgetOrder;
  Members: MembersOrder;
}
export type OrderKind = keyof Orders;

const text = (name: string) => ({ name, type: "string" });
const number = (name: string) => ({ name, type: "uint256" });
const address = (name: string) => ({ name, type: "address" });
const bytes32 = (name: string) => ({ name, type: "bytes32" });
const SINGLE_USE = [bytes32("nonce"), number("deadline")];

export type Structs = Record<string, StructMember[]>;

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
  Passkeys: {
    Passkeys: [
      address("owner"),
      number("version"),
      { name: "passkeys", type: "Passkey[]" },
      ...SINGLE_USE,
    ],
    Passkey: [text("name"), bytes32("x"), bytes32("y")],
  },
  PayoutAddress: {
    PayoutAddress: [address("owner"), number("version"), address("payout"), ...SINGLE_USE],
  },
  Resume: { Resume: [address("owner"), number("stoppedAt"), ...SINGLE_USE] },
  AllowPayeeAgain: { AllowPayeeAgain: [address("owner"), text("payee"), ...SINGLE_USE] },
  Budget: {
    Budget: [
      address("owner"),
      text("budgetId"),
      number("version"),
      text("name"),
      ...BUDGET_FIELDS.map((field) => number(field.name)),
      text("status"),
      text("agentsOut"),
      ...SINGLE_USE,
    ],
  },
  Members: {
    Members: [
      address("owner"),
      number("version"),
      text("name"),
      number("threshold"),
      number("approvalAbove"),
      { name: "members", type: "Member[]" },
      ...SINGLE_USE,
    ],
    Member: [text("name"), address("account"), number("chain"), text("role")],
  },
};

export const ORDER_KINDS: readonly OrderKind[] = [
  "AgentPolicy",
  ...(Object.keys(ORDER_TYPES) as (keyof typeof ORDER_TYPES)[]),
];

/** Undefined if the version of a policy is malformed; throws `PolicyVersionUnknown` if it is unknown. */
export function readTypes(kind: OrderKind, order: object): Structs | undefined {
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
export const DOMAIN_STRUCTS = { EIP712Domain: DOMAIN_TYPE };

/** What the wallet signs: texts as people read them (readable.ts), or the numbers themselves. Both are valid. */
export type Form = "readable" | "numbers";
/** What an answer offers to sign. Orders that were signed as numbers stay valid. */
export const REQUESTED_FORM: Form = "readable";
/** A signature is checked in the requested form first: in another, a contract account costs one more call of its chain. */
export const FORMS: readonly Form[] = [REQUESTED_FORM, "numbers"];

const DOMAIN_VERSIONS = { readable: "3", numbers: "2" } as const;
export const domainOf = (chainId: number, form: Form) =>
  ({ name: "Purser", version: DOMAIN_VERSIONS[form], chainId }) as const;
export const formOfDomain = ({ version }: { version?: unknown }): Form | undefined =>
  FORMS.find((form) => DOMAIN_VERSIONS[form] === version);

/** The structs and the message that are signed. */
export function signedParts<K extends OrderKind>(kind: K, order: Orders[K], form: Form) {
  const structs = typesOf(kind, order);
  if (form === "numbers") return { structs, message: order };
  const message = readableMessage(structs, kind, order) as Orders[K];
  return { structs: readableStructs(structs), message };
}

/**
 * Input of `eth_signTypedData_v4`: JSON with the domain's type, and integers as strings. Only the members of the structs
 * are signed.
 */
export function typedDataOf<K extends OrderKind>(
  kind: K,
  order: Orders[K],
  chainId: number,
  form: Form,
) {
  const { structs, message } = signedParts(kind, order, form);
  return {
    types: { EIP712Domain: [...DOMAIN_TYPE], ...structs },
    primaryType: kind,
    domain: domainOf(chainId, form),
    message,
  };
}
