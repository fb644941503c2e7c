/**
 * What the wallet signs. For a withdrawal and for the recovery wallet it is made here from the order in the server's
 * response, after a comparison with what the user entered; throws `OrderMismatch` where they differ. `fieldsToSign`
 * explains any document field by field.
 */
import { agentsText, BUDGET_FIELDS } from "../../../../packages/rules/src/budgets.ts";
import { AMOUNT, type Kind, TIME } from "../../../../packages/rules/src/kinds.ts";
import {
  type AllowPayeeAgainOrder,
  type BudgetOrder,
  type MoveOwnerOrder,
  type PasskeysOrder,
  type PayoutAddressOrder,
  REQUESTED_FORM,
  type ResumeOrder,
  type SecondWalletOrder,
  type SignedPasskey,
  typedDataOf,
} from "../../../../packages/rules/src/orders.ts";
import { PASSKEYS_CHAIN } from "../../../../packages/rules/src/passkeys.ts";
import { kindOf } from "../../../../packages/rules/src/readable.ts";
import { isSameAddress } from "../address.ts";
import { toDecimal } from "../money.ts";
import type { NetworkInfo, TypedData, WithdrawalOrder } from "../wire.ts";
import { assertSingleUse } from "./requests.ts";
import { OrderMismatch } from "./signing.ts";
import { SHOW } from "./terms.ts";

const NO_WALLET = `0x${"0".repeat(40)}`;

const assertSame = (isSame: boolean, what: string, before: string, after: string): void => {
  if (!isSame) throw new OrderMismatch([{ what, before, after }]);
};

export function withdrawalToSign(
  order: WithdrawalOrder,
  wanted: { wallet: string; to: string; amount: string },
  /** The network that holds the money. */
  { chainId, usdc }: Pick<NetworkInfo, "chainId" | "usdc">,
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.wallet, wanted.wallet), "From", wanted.wallet, order.wallet);
  assertSame(isSameAddress(order.to, wanted.to), "To", wanted.to, order.to);
  const amount = toDecimal(BigInt(order.amount));
  // The review shows the amount that "max" stands for, and the wallet signs that same order.
  const isSameAmount = wanted.amount === "max" || wanted.amount === amount;
  assertSame(isSameAmount, "Amount", wanted.amount, amount);
  assertSame(isSameAddress(order.asset, usdc.address), "Token", usdc.address, order.asset);
  return typedDataOf("Withdraw", order, chainId, REQUESTED_FORM);
}

export function secondWalletToSign(
  order: SecondWalletOrder,
  wanted: { owner: string; second: string | null },
  chainId: number,
) {
  assertSingleUse({ ...order });
  const second = wanted.second ?? NO_WALLET;
  assertSame(isSameAddress(order.owner, wanted.owner), "Owner", wanted.owner, order.owner);
  assertSame(isSameAddress(order.second, second), "Recovery wallet", second, order.second);
  // The app names only wallets with a key of their own.
  assertSame(order.secondChain === "0", "Chain of the recovery wallet", "0", order.secondChain);
  return typedDataOf("SecondWallet", order, chainId, REQUESTED_FORM);
}

export function moveToSign(
  order: MoveOwnerOrder,
  wanted: { from: string; to: string },
  chainId: number,
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.from, wanted.from), "From", wanted.from, order.from);
  assertSame(isSameAddress(order.to, wanted.to), "To", wanted.to, order.to);
  return typedDataOf("MoveOwner", order, chainId, REQUESTED_FORM);
}

export function passkeysToSign(
  order: PasskeysOrder,
  wanted: { owner: string; version: number; passkeys: readonly SignedPasskey[] },
  chainId: number,
) {
  assertSingleUse({ ...order });
  const version = String(wanted.version);
  assertSame(isSameAddress(order.owner, wanted.owner), "Account", wanted.owner, order.owner);
  assertSame(order.version === version, "Version of the list", version, order.version);
  const namesOf = (passkeys: readonly SignedPasskey[]): string =>
    passkeys.map(({ name, x, y }) => `${name} (${x.slice(2, 10)}…${y.slice(-8)})`).join(", ");
  const textOf = (passkeys: readonly SignedPasskey[]): string =>
    JSON.stringify(passkeys.map(({ name, x, y }) => [name, x.toLowerCase(), y.toLowerCase()]));
  assertSame(
    textOf(order.passkeys) === textOf(wanted.passkeys),
    "Passkeys",
    namesOf(wanted.passkeys),
    namesOf(order.passkeys),
  );
  return typedDataOf("Passkeys", order, chainId, REQUESTED_FORM);
}

export function payoutToSign(
  order: PayoutAddressOrder,
  wanted: { owner: string; payout: string },
  chainId: number,
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.owner, wanted.owner), "Account", wanted.owner, order.owner);
  const isSame = isSameAddress(order.payout, wanted.payout);
  assertSame(isSame, "Payout address", wanted.payout, order.payout);
  return typedDataOf("PayoutAddress", order, chainId, REQUESTED_FORM);
}

export function resumeToSign(
  order: ResumeOrder,
  wanted: { owner: string; stoppedAt: string },
  chainId: number,
) {
  assertSingleUse({ ...order });
  const stoppedAt = String(Math.floor(Date.parse(wanted.stoppedAt) / 1000));
  assertSame(isSameAddress(order.owner, wanted.owner), "Owner", wanted.owner, order.owner);
  assertSame(order.stoppedAt === stoppedAt, "Stopped at", stoppedAt, order.stoppedAt);
  return typedDataOf("Resume", order, chainId, REQUESTED_FORM);
}

export function allowAgainToSign(
  order: AllowPayeeAgainOrder,
  wanted: { owner: string; payee: string },
  chainId: number,
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.owner, wanted.owner), "Owner", wanted.owner, order.owner);
  assertSame(order.payee === wanted.payee, "Payee", wanted.payee, order.payee);
  return typedDataOf("AllowPayeeAgain", order, chainId, REQUESTED_FORM);
}

/** A budget as the screen wants it after the change. */
export interface WantedBudget {
  owner: string;
  id: string;
  version: number;
  name: string;
  limits: Record<(typeof BUDGET_FIELDS)[number]["name"], string | null>;
  status: "active" | "archived";
  agentsOut: readonly string[];
}

export function budgetToSign(order: BudgetOrder, wanted: WantedBudget, chainId: number) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.owner, wanted.owner), "Owner", wanted.owner, order.owner);
  const same = (what: string, before: string, after: string): void => {
    assertSame(before === after, what, before, after);
  };
  same("Budget", wanted.id, order.budgetId);
  same("Version", String(wanted.version), order.version);
  same("Name", wanted.name, order.name);
  same("State", wanted.status, order.status);
  same("Agents taken out", agentsText(wanted.agentsOut), order.agentsOut);
  for (const { name, kind, label } of BUDGET_FIELDS) {
    const read = kind.readWire(wanted.limits[name]);
    const text = (limit: bigint | null): string => kind.text(limit, SHOW);
    const isSame = read.ok && kind.sign(read.value) === order[name];
    assertSame(isSame, label, read.ok ? text(read.value) : "", text(kind.readSigned(order[name])));
  }
  return typedDataOf("Budget", order, chainId, REQUESTED_FORM);
}

export interface FieldToSign {
  /** As the wallet names it. */
  name: string;
  /** As the wallet shows it. */
  raw: string;
  /** For people, where the wallet's form is a bare number or a word of the protocol. */
  plain?: string;
  /** The fields of each entry of a list. */
  entries?: FieldToSign[][];
}

/** The kind of account that a member of a team has. */
const accountOf = (chain: string): string =>
  chain === "0"
    ? "a wallet's key"
    : chain === String(PASSKEYS_CHAIN)
      ? "passkeys"
      : `a contract on chain ${chain}`;

/** Members of documents that are not ours. */
const OTHERS: Readonly<Record<string, Kind>> = { value: AMOUNT, validBefore: TIME };

/** All members of a document in the order of the wallet, from the same object that the wallet signs. */
export function fieldsToSign(typedData: TypedData, network: NetworkInfo | undefined) {
  const { types, primaryType, domain, message } = typedData;
  const plainOf = (struct: string, name: string, type: string, raw: string): string | undefined => {
    if (name === "chainId") return network?.name;
    if (name === "asset" || name === "verifyingContract") {
      if (network === undefined) return undefined;
      const isUsdc = isSameAddress(raw, network.usdc.address);
      return `${isUsdc ? "USDC" : "not USDC"} on ${network.name}`;
    }
    if (name === "second" && raw === NO_WALLET) return "none";
    if ((name === "validAfter" || name === "secondChain") && raw === "0")
      return name === "validAfter" ? "at once" : "every chain";
    if (struct === "Member" && name === "chain") return accountOf(raw);
    const kind = kindOf(struct, name) ?? OTHERS[name];
    // A text is shown as the wallet shows it.
    if (kind === undefined || type !== kind.type) return undefined;
    return kind.text(kind.readSigned(raw), SHOW);
  };
  const field = (
    struct: string,
    { name, type }: { name: string; type: string },
    value: unknown,
  ): FieldToSign => {
    const raw = String(value);
    const plain = plainOf(struct, name, type, raw);
    return plain === undefined || plain === raw ? { name, raw } : { name, raw, plain };
  };
  const membersOf = (struct: string, values: object): FieldToSign[] =>
    (types[struct] ?? []).map(({ name, type }) => {
      const value = (values as Record<string, unknown>)[name];
      if (!Array.isArray(value)) return field(struct, { name, type }, value);
      const entries = value.map((entry: object) => membersOf(type.replace("[]", ""), entry));
      return { name, raw: String(value.length), entries };
    });
  const ofDomain = ["name", "version", "chainId", "verifyingContract"].filter(
    (name) => name in domain,
  );
  return [
    ...ofDomain.map((name) => {
      const shown = field("EIP712Domain", { name, type: "" }, domain[name]);
      // A message may have a name and a version of its own.
      return name === "name" || name === "version" ? { ...shown, name: `domain ${name}` } : shown;
    }),
    ...membersOf(primaryType, message),
  ];
}
