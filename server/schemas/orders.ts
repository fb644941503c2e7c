/** Wire types of owner's orders: what a wallet is shown, and how its signature comes back. */
import { Type, type Static, type TProperties } from "typebox";
import { Problem, Strict, Timestamp } from "./common.ts";

const Address = Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" });
const Integer = Type.String({ pattern: "^(0|[1-9][0-9]{0,77})$" });
const Limit = Type.String({
  pattern: "^(0|[1-9][0-9]{0,77})$",
  description: "Atomic units; 2^256-1: none",
});
const Text = Type.String({ maxLength: 300 });
const singleUse = {
  nonce: Type.String({ pattern: "^0x[0-9a-fA-F]{64}$" }),
  deadline: Integer,
};

const AgentPolicyOrder = Strict({
  agent: Text,
  wallet: Address,
  version: Integer,
  name: Text,
  dailyLimit: Limit,
  weeklyLimit: Limit,
  monthlyLimit: Limit,
  perPaymentLimit: Limit,
  paymentsPerHour: Limit,
  fetch: Text,
  expiresAt: Limit,
  payees: Type.Array(
    Strict({
      payee: Address,
      label: Text,
      site: Text,
      dailyLimit: Limit,
      perPaymentLimit: Limit,
      expiresAt: Limit,
    }),
    { maxItems: 1_000 },
  ),
  ...singleUse,
});

const IssueKeyOrder = Strict({
  agent: Text,
  wallet: Address,
  label: Text,
  expiresAt: Limit,
  ...singleUse,
});

const ApprovePaymentOrder = Strict({
  agent: Text,
  payee: Address,
  asset: Address,
  maxAmount: Integer,
  site: Text,
  approvalId: Text,
  ...singleUse,
});

/** ERC-1271 and ERC-6492 signatures are longer than 65 bytes. */
export const OrderSignature = Type.String({ pattern: "^0x([0-9a-fA-F]{2}){1,8192}$" });

const authorizationOf = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) =>
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

const TypeFields = Type.Array(Type.Object({ name: Type.String(), type: Type.String() }));
const toSign = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) => ({
  order: Type.Optional(order),
  typedData: Type.Optional(
    Type.Object(
      {
        types: Type.Record(Type.String(), TypeFields),
        primaryType: Type.String(),
        domain: Type.Object({
          name: Type.Literal("Purser"),
          version: Type.Literal("2"),
          chainId: Type.Integer(),
        }),
        message: order,
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
        "`owner_signature_required` (403) and `policy_changed` (409) carry the order to sign; other refusals do not",
    },
  );
const policyProblem = problemWith(AgentPolicyOrder);
const keyProblem = problemWith(IssueKeyOrder);
const approvalProblem = problemWith(ApprovePaymentOrder);
/** Of every route that can loosen an agent's rules. */
export const policyRefusals = { 403: policyProblem, 409: policyProblem, "4xx": Problem };
export const keyRefusals = { 403: keyProblem, 409: keyProblem, "4xx": Problem };
export const approvalRefusals = { 403: approvalProblem, 409: approvalProblem, "4xx": Problem };
