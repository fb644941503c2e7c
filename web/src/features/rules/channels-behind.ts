import { AGENT_FIELDS, type Field, PAYEE_FIELDS } from "../../../../packages/rules/src/fields.ts";
import type { Wire } from "../../../../packages/rules/src/kinds.ts";
import { isSamePayee, SHOW } from "../../lib/orders/terms.ts";
import type { Agent, AgentChanges, Payment } from "../../lib/wire.ts";
import { entryFor, faultOf, requestFor, rulesOf, wireOf } from "./rules.ts";

/** A setting that does not allow the payment channel of a refused payment. */
interface ChannelNeed {
  name: keyof NonNullable<NonNullable<Payment["denial"]>["needs"]>;
  field: Field;
  /** The least value that allows it, as typed. */
  least: string;
}

const SETTINGS = [
  ["channelHeld", AGENT_FIELDS, "channelHeld"],
  ["channelDelay", AGENT_FIELDS, "channelDelay"],
  ["payeeChannelHeld", PAYEE_FIELDS, "channelHeld"],
] as const;

const allowsMore = ({ kind }: Field, wanted: Wire, current: Wire): boolean => {
  const [one, other] = [kind.readWire(wanted), kind.readWire(current)];
  return one.ok && other.ok && kind.allowsMore(one.value, other.value);
};

/** Empty if the settings allow the channel meanwhile. */
export function channelNeeds(agent: Agent, payment: Payment): ChannelNeed[] {
  const needs = payment.denial?.needs ?? {};
  return SETTINGS.flatMap(([name, fields, setting]) => {
    const least = needs[name];
    const field = fields.find((one) => one.name === setting);
    const rules: object | undefined = fields === AGENT_FIELDS ? agent : entryFor(agent, payment);
    if (least === undefined || !field || !rules) return [];
    const current = (rules as Record<string, Wire>)[setting] ?? null;
    return allowsMore(field, least, current) ? [{ name, field, least: String(least) }] : [];
  });
}

/** What is wrong with a typed value: it must allow the payment. */
export function channelFault({ field, least }: ChannelNeed, typed: string): string | undefined {
  const fault = faultOf(field, { [field.name]: typed });
  if (fault !== undefined) return fault;
  const { kind } = field;
  const needed = wireOf(field, least);
  const read = kind.readWire(needed);
  return allowsMore(field, needed, wireOf(field, typed)) && read.ok
    ? `This payment needs at least ${kind.text(read.value, SHOW)}.`
    : undefined;
}

/** The request for the typed values; without one, the least. */
export function allowChannel(
  agent: Agent,
  payment: Payment,
  typed: Partial<Record<ChannelNeed["name"], string>>,
): AgentChanges {
  const before = rulesOf(agent);
  const values = Object.fromEntries(
    channelNeeds(agent, payment).map(({ name, least }) => [name, typed[name] ?? least]),
  );
  const { payeeChannelHeld, ...own } = values;
  const entry = entryFor(agent, payment);
  const allowlist = before.allowlist.map((payee) =>
    entry && payeeChannelHeld !== undefined && isSamePayee(payee, entry)
      ? { ...payee, channelHeld: payeeChannelHeld }
      : payee,
  );
  return requestFor(before, { ...before, ...own, allowlist });
}
