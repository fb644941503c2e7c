/**
 * The document that holds an agent's whole policy, which the owner's wallet signs (EIP-712, docs/decisions/0020).
 *
 * Its structs follow from the tables of fields.ts, for each version. A version has all settings that it introduced and
 * those of the versions before. Version 1 has no member `documentVersion`; later ones sign it. A policy is written in
 * the lowest version that contains everything that is set, so a release that does not know a setting serves every agent
 * that does not use it, and its documents stay as they were signed.
 */
import {
  AGENT_FIELDS,
  isSet,
  PAYEE_FIELDS,
  valueIn,
  type AGENT,
  type AgentFieldName,
  type AgentSettings,
  type Field,
  type PAYEE,
  type PayeeFieldName,
  type PayeeSettings,
} from "./fields.ts";
import type { Address, Rules } from "./rules.ts";

/** The members are strings in JSON: integers as digits, addresses with checksum. */
type Signed<T> = {
  [N in keyof T as T[N] extends { since: 1 } ? N : never]: string;
} & { [N in keyof T as T[N] extends { since: 1 } ? never : N]?: string };

type PayeeDocument = Signed<typeof PAYEE> & { payee: string; label: string; site: string };

export type AgentPolicyOrder = Signed<typeof AGENT> & {
  agent: string;
  wallet: string;
  /** Increases by one with each policy of the agent. */
  version: string;
  name: string;
  payees: PayeeDocument[];
  /** Missing in version 1. */
  documentVersion?: string;
  nonce: string;
  deadline: string;
};

export interface StructMember {
  name: string;
  type: string;
}

/** The newest version that this release knows. */
export const newestVersion = (): number =>
  Math.max(...[...AGENT_FIELDS, ...PAYEE_FIELDS].map(({ since }) => since));

/** The document or the rules are of a newer release, which has settings that this one does not know. */
export class PolicyVersionUnknown extends Error {
  override readonly name = "PolicyVersionUnknown";
  constructor(version: number) {
    super(
      `The rules of this agent need version ${version} of the policy document, and this release knows versions up to ${newestVersion()}.`,
    );
  }
}

export function assertKnown(version: number): void {
  if (version > newestVersion()) throw new PolicyVersionUnknown(version);
}

/** Undefined if the member is malformed; throws if the version is unknown. */
export function versionOf(document: object): number | undefined {
  const { documentVersion } = document as { documentVersion?: unknown };
  if (documentVersion === undefined) return 1;
  if (typeof documentVersion !== "string" || !/^[1-9][0-9]{0,8}$/.test(documentVersion))
    return undefined;
  const version = Number(documentVersion);
  assertKnown(version);
  return version === 1 ? undefined : version;
}

/** The fields of a version; those that are newer than version 1 by their age. */
const fieldsOf = (fields: readonly Field[], from: number, to: number): Field[] =>
  fields
    .filter(({ since }) => since >= from && since <= to)
    .toSorted((left, right) => left.since - right.since);

const membersOf = (fields: readonly Field[]): StructMember[] =>
  fields.map(({ name, kind }) => ({ name, type: kind.type }));

const known = new Map<number, Record<"AgentPolicy" | "Payee", StructMember[]>>();

/** The structs of a version. */
export function policyTypes(version: number): Record<"AgentPolicy" | "Payee", StructMember[]> {
  const before = known.get(version);
  if (before) return before;
  const types = {
    AgentPolicy: [
      { name: "agent", type: "string" },
      { name: "wallet", type: "address" },
      { name: "version", type: "uint256" },
      { name: "name", type: "string" },
      ...membersOf(fieldsOf(AGENT_FIELDS, 1, 1)),
      { name: "payees", type: "Payee[]" },
      ...membersOf(fieldsOf(AGENT_FIELDS, 2, version)),
      ...(version > 1 ? [{ name: "documentVersion", type: "uint256" }] : []),
      { name: "nonce", type: "bytes32" },
      { name: "deadline", type: "uint256" },
    ],
    Payee: [
      { name: "payee", type: "address" },
      { name: "label", type: "string" },
      { name: "site", type: "string" },
      ...membersOf(fieldsOf(PAYEE_FIELDS, 1, version)),
    ],
  };
  known.set(version, types);
  return types;
}

/** The lowest version that contains everything that is set. */
export function versionFor(rules: Rules): number {
  const used = (fields: readonly Field[], settings: object): number[] =>
    fields.filter((field) => isSet(settings, field)).map(({ since }) => since);
  return Math.max(
    1,
    ...used(AGENT_FIELDS, rules),
    ...rules.payees.map((payee) => Math.max(1, ...used(PAYEE_FIELDS, payee))),
  );
}

const signSettings = (fields: readonly Field[], settings: object) =>
  Object.fromEntries(
    fields.map((field) => [field.name, field.kind.sign(valueIn(settings, field))]),
  );

/** The members of the document that contain the rules. */
export function rulesDocument(
  rules: Rules,
  checksum: (address: Address) => string,
): Omit<AgentPolicyOrder, "agent" | "wallet" | "version" | "name" | "nonce" | "deadline"> {
  const version = versionFor(rules);
  return {
    ...(signSettings(fieldsOf(AGENT_FIELDS, 1, 1), rules) as Record<AgentFieldName, string>),
    payees: rules.payees.map((payee) => ({
      payee: checksum(payee.address),
      label: payee.label,
      site: payee.site,
      ...(signSettings(fieldsOf(PAYEE_FIELDS, 1, version), payee) as Record<
        PayeeFieldName,
        string
      >),
    })),
    ...signSettings(fieldsOf(AGENT_FIELDS, 2, version), rules),
    ...(version > 1 && { documentVersion: String(version) }),
  };
}

/** A setting that the document does not contain is not set. */
const readSignedSettings = (fields: readonly Field[], document: object) =>
  Object.fromEntries(
    fields.map(({ name, member, kind }) => {
      const text = (document as Record<string, string | undefined>)[name];
      return [member, text === undefined ? kind.unset : kind.readSigned(text)];
    }),
  );

/** The rules that a policy order contains. The order must be well formed. */
export const rulesOfPolicy = (order: AgentPolicyOrder): Rules => {
  const version = versionOf(order);
  if (version === undefined) throw new Error("the version of the policy document is malformed");
  return {
    ...(readSignedSettings(fieldsOf(AGENT_FIELDS, 1, version), order) as AgentSettings),
    payees: order.payees.map((payee) => ({
      ...(readSignedSettings(fieldsOf(PAYEE_FIELDS, 1, version), payee) as PayeeSettings),
      address: payee.payee.toLowerCase() as Address,
      label: payee.label,
      site: payee.site,
    })),
  };
};
