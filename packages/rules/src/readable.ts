/**
 * What an owner's wallet shows of an order: "25.00 USDC", "no limit", "2026-12-01 00:00 UTC" in place of bare numbers, so that
 * people can compare it with the page. The order itself keeps its numbers everywhere else; the texts are made from them,
 * and each value has exactly one text. So a signature of the texts is a signature of the numbers.
 */
import { BUDGET_FIELDS } from "./budgets.ts";
import { AGENT_FIELDS, type Field, PAYEE_FIELDS } from "./fields.ts";
import { AMOUNT, type Kind, SIGNED, TIME } from "./kinds.ts";
import type { StructMember } from "./policy.ts";

type Structs = Record<string, StructMember[]>;

/** The settings of rules, by their struct. */
const SETTINGS: Readonly<Record<string, readonly Pick<Field, "name" | "kind">[]>> = {
  AgentPolicy: AGENT_FIELDS,
  Budget: BUDGET_FIELDS,
  Payee: PAYEE_FIELDS,
};
/** The other members, in every struct. */
const MEMBERS: Readonly<Record<string, Kind>> = {
  amount: AMOUNT,
  maxAmount: AMOUNT,
  approvalAbove: AMOUNT,
  expiresAt: TIME,
  deadline: TIME,
  stoppedAt: TIME,
};

/** The kind of a member that has a text. */
export const kindOf = (struct: string, name: string): Kind | undefined =>
  SETTINGS[struct]?.find((field) => field.name === name)?.kind ?? MEMBERS[name];

const known = new WeakMap<Structs, Structs>();

/** The structs of an order as the wallet shows it. */
export function readableStructs(structs: Structs): Structs {
  const before = known.get(structs);
  if (before) return before;
  const readable = Object.fromEntries(
    Object.entries(structs).map(([struct, members]) => [
      struct,
      members.map(({ name, type }) => ({ name, type: kindOf(struct, name) ? "string" : type })),
    ]),
  );
  known.set(structs, readable);
  return readable;
}

/** A value that no release writes, such as an unknown word, is shown as it is. */
function spell(kind: Kind, signed: string): string {
  const value = kind.readSigned(signed);
  return kind.sign(value) === signed ? kind.text(value, SIGNED) : signed;
}

function read(kind: Kind, text: string): string | undefined {
  const value = kind.readText(text);
  return value === undefined || kind.text(value, SIGNED) !== text ? undefined : kind.sign(value);
}

/** Every member, each through `change`; undefined if that is undefined for one. */
function through(
  structs: Structs,
  struct: string,
  message: object,
  change: (kind: Kind, text: string) => string | undefined,
): Record<string, unknown> | undefined {
  const changed: Record<string, unknown> = {};
  for (const { name, type } of structs[struct] ?? []) {
    const member = (message as Record<string, unknown>)[name];
    const kind = kindOf(struct, name);
    if (Array.isArray(member))
      changed[name] = member.map((item: object) =>
        through(structs, type.slice(0, -2), item, change),
      );
    else changed[name] = kind ? change(kind, String(member)) : member;
    const isMissing = (value: unknown): boolean => value === undefined;
    if (
      isMissing(changed[name]) ||
      (Array.isArray(member) && (changed[name] as []).some(isMissing))
    )
      return undefined;
  }
  return changed;
}

/** The message that the wallet shows. The order must be well formed. */
export const readableMessage = (structs: Structs, struct: string, order: object): object =>
  through(structs, struct, order, spell) ?? {};

/** The order that such a message stands for; undefined if a text is not the one that its value has. */
export const orderIn = (structs: Structs, struct: string, message: object): object | undefined =>
  through(structs, struct, message, read);
