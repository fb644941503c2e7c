/** An agent's spending rules. They are shared with the web app (packages/rules); their digest needs Node. */
import { createHash } from "node:crypto";
import type { Hex } from "viem";
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  valueIn,
  type Field,
} from "../../packages/rules/src/fields.ts";
import { versionFor } from "../../packages/rules/src/policy.ts";
import { sortPayees, type RulesInForce } from "../../packages/rules/src/rules.ts";

export * from "../../packages/rules/src/rules.ts";

/**
 * Equal bytes exactly for equal rules; names and labels do not count. The digest of rules that need only settings of
 * version 1 is the one that was sealed before there were other versions.
 */
export function rulesDigest(rules: RulesInForce): Hex {
  const version = versionFor(rules);
  const values = (fields: readonly Field[], settings: object, from: number, to: number) =>
    fields
      .filter(({ since }) => since >= from && since <= to)
      .map((field) => valueIn(settings, field));
  const payees = sortPayees(rules.payees).map((payee) => [
    payee.address,
    payee.site,
    ...values(PAYEE_FIELDS, payee, 1, version),
  ]);
  const facts = [
    rules.status,
    ...values(AGENT_FIELDS, rules, 1, 1),
    payees,
    ...values(AGENT_FIELDS, rules, 2, version),
  ];
  const canonical = JSON.stringify(facts, (_key, value: unknown) =>
    typeof value === "bigint" ? String(value) : value,
  );
  const text = `purser:rules:v${version}|${canonical}`;
  return `0x${createHash("sha256").update(text).digest("hex")}`;
}
