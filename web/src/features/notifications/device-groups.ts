/** The events of a device in four groups, in plain words. */
import type { PushDevice } from "../../lib/wire.ts";
import { TYPES, URGENT_NAMES } from "./words.ts";

type GroupName = "Payments" | "Refusals" | "Approvals" | "Account";

const REFUSALS = /^(payment\.blocked|(agent|budget)\.limit_reached|channel\.refused)$/;
/** The groups of the history; any other is about the account. */
const GROUP_OF: Readonly<Record<string, GroupName>> = {
  Payments: "Payments",
  Agents: "Payments",
  "Payment channels": "Payments",
  "Your sales": "Payments",
  Approvals: "Approvals",
};

const groupOf = (name: (typeof URGENT_NAMES)[number]): GroupName =>
  REFUSALS.test(name) ? "Refusals" : (GROUP_OF[TYPES[name].group] ?? "Account");

const group = (label: GroupName, hint: string) => ({
  label,
  hint,
  names: URGENT_NAMES.filter((name) => groupOf(name) === label),
});

export const DEVICE_GROUPS = [
  group("Payments", "Money that arrives or runs low, withdrawals, and payments that went wrong."),
  group("Refusals", "Payments that a rule refused, and limits that are reached."),
  group("Approvals", "An agent asks you for one payment, and what became of it."),
  group("Account", "Sign-ins, keys, changed rules, and what was switched off."),
];

/** Events that need the owner, or that a thief would cause. */
const NEEDS_OWNER = /^(approval\.requested|policy\.changed|key\.created|session\.created|owner\.)/;

/** Of those, what this device stops showing and no other device shows. */
export const silencedBy = (
  before: readonly string[],
  after: readonly string[],
  others: readonly Pick<PushDevice, "types">[],
): string[] =>
  before.filter(
    (type) =>
      NEEDS_OWNER.test(type) &&
      !after.includes(type) &&
      !others.some(({ types }) => types.some((other) => other === type)),
  );

/** "approvals, some payments". */
export function describeEvents(types: readonly string[]): string {
  const parts = DEVICE_GROUPS.flatMap(({ label, names }) => {
    const count = names.filter((name) => types.includes(name)).length;
    if (count === 0) return [];
    return [count === names.length ? label.toLowerCase() : `some ${label.toLowerCase()}`];
  });
  if (DEVICE_GROUPS.every(({ names }) => names.every((name) => types.includes(name))))
    return "everything";
  return parts.join(", ");
}
