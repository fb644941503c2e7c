/** Wire types of owners' orders: the typed data that a wallet shows, and the signature that is sent back. */
import { Type, type Static, type TOptional, type TProperties, type TUnsafe } from "typebox";
import {
  AGENT_FIELDS,
  PAYEE_FIELDS,
  type AGENT,
  type Field,
  type PAYEE,
} from "../../packages/rules/src/fields.ts";
import {
  Described,
  Problem,
  Strict,
  Timestamp,
  Digits,
  Hex32,
  AddressOutput,
  TypedDataTypes,
  TypedDataDomain,
  TypedDataMessage,
  DIGITS,
} from "./common.ts";

const Limit = Type.String({
  pattern: DIGITS,
  description: "Atomic units; 2^256-1: none",
});
const Text = Type.String({ maxLength: 300 });
const singleUse = {
  nonce: Hex32,
  deadline: Digits,
};

type Settings<T> = {
  [N in keyof T as T[N] extends { since: 1 } ? N : never]: TUnsafe<string>;
} & { [N in keyof T as T[N] extends { since: 1 } ? never : N]: TOptional<TUnsafe<string>> };

/** Settings that are newer than version 1 are in the documents that use them. */
const settings = <T>(fields: readonly Field[]): Settings<T> =>
  Object.fromEntries(
    fields.map(({ name, kind, since }) => {
      const schema = kind.type === "uint256" ? Limit : Text;
      return [name, since === 1 ? schema : Type.Optional(schema)];
    }),
  ) as unknown as Settings<T>;

export const OrderPayee = Strict({
  payee: AddressOutput,
  label: Text,
  site: Text,
  ...settings<typeof PAYEE>(PAYEE_FIELDS),
});

export const AgentPolicyOrder = Strict({
  agent: Text,
  wallet: AddressOutput,
  version: Digits,
  name: Text,
  ...settings<typeof AGENT>(AGENT_FIELDS),
  payees: Type.Array(OrderPayee, { maxItems: 1_000 }),
  documentVersion: Type.Optional(
    Described(Digits, "The version of this document; missing in version 1"),
  ),
  ...singleUse,
});

export const IssueKeyOrder = Strict({
  agent: Text,
  wallet: AddressOutput,
  label: Text,
  expiresAt: Limit,
  ...singleUse,
});

export const ApprovePaymentOrder = Strict({
  agent: Text,
  payee: AddressOutput,
  asset: AddressOutput,
  maxAmount: Digits,
  site: Text,
  approvalId: Text,
  ...singleUse,
});

/** ERC-1271 and ERC-6492 signatures are longer than 65 bytes, and a team of fifty with passkeys has 20 kB. */
export const OrderSignature = Type.String({
  pattern: "^0x([0-9a-fA-F]{2}){1,24576}$",
  examples: [`0x${"5e".repeat(64)}1b`],
  description:
    "Of the owner's wallet: `eth_signTypedData_v4`, or a contract account's (ERC-1271, ERC-6492)",
});

export const authorizationOf = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) =>
  Type.Optional(
    Strict(
      { order, signature: OrderSignature },
      {
        description:
          "The `order` of a 403 `owner_signature_required`, signed by the owner's wallet",
      },
    ),
  );
export const PolicyAuthorization = authorizationOf(AgentPolicyOrder);
export const KeyAuthorization = authorizationOf(IssueKeyOrder);
export const ApprovalAuthorization = authorizationOf(ApprovePaymentOrder);
export type AnyAuthorization =
  | Static<typeof PolicyAuthorization>
  | Static<typeof KeyAuthorization>
  | Static<typeof ApprovalAuthorization>;

const toSign = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) => ({
  order: Type.Optional(order),
  typedData: Type.Optional(
    Type.Object(
      {
        types: TypedDataTypes,
        primaryType: Type.String(),
        domain: TypedDataDomain,
        message: TypedDataMessage,
      },
      { description: "Ready for `eth_signTypedData_v4`" },
    ),
  ),
  expiresAt: Type.Optional(Timestamp),
});

export const problemWith = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) =>
  Type.Object(
    { ...Problem.properties, ...toSign(order) },
    {
      additionalProperties: true,
      description:
        "`owner_signature_required` (403) and `policy_changed` (409) include the order to sign; other refusals do not",
    },
  );
export const PolicyProblem = problemWith(AgentPolicyOrder);
export const KeyProblem = problemWith(IssueKeyOrder);
export const ApprovalProblem = problemWith(ApprovePaymentOrder);
/** Member of the body of every route that can loosen an agent's rules. */
export const policyRefusals = { 403: PolicyProblem, 409: PolicyProblem };
export const keyRefusals = { 403: KeyProblem, 409: KeyProblem };
export const approvalRefusals = { 403: ApprovalProblem, 409: ApprovalProblem };
