/**
 * The EIP-712 structs of an owner's orders. The wallet signs these structs with the domain below; the
 * server's response provides only the values, so it cannot make the wallet sign anything else.
 */
import type { TypedData } from "../wire.ts";

const POLICY =
  "string agent,address wallet,uint256 version,string name,uint256 dailyLimit,uint256 weeklyLimit,uint256 monthlyLimit,uint256 perPaymentLimit,uint256 paymentsPerHour,string fetch,uint256 expiresAt,Payee[] payees,bytes32 nonce,uint256 deadline";
const PAYEE =
  "address payee,string label,string site,uint256 dailyLimit,uint256 perPaymentLimit,uint256 expiresAt";

export const ORDER_STRUCTS = {
  AgentPolicy: { AgentPolicy: POLICY, Payee: PAYEE },
  IssueKey: {
    IssueKey:
      "string agent,address wallet,string label,uint256 expiresAt,bytes32 nonce,uint256 deadline",
  },
  ApprovePayment: {
    ApprovePayment:
      "string agent,address payee,address asset,uint256 maxAmount,string site,string approvalId,bytes32 nonce,uint256 deadline",
  },
} as const;
export type OrderKind = keyof typeof ORDER_STRUCTS;

const DOMAIN = "string name,string version,uint256 chainId";

const fieldsOf = (struct: string): { name: string; type: string }[] =>
  struct.split(",").map((field) => {
    const [type = "", name = ""] = field.split(" ");
    return { name, type };
  });

/**
 * Only the members of the structs are signed; other members of the order are ignored, as the server ignores
 * them too.
 */
export function typedDataFor(
  kind: OrderKind,
  order: Record<string, unknown>,
  chainId: number,
): TypedData {
  const structs = Object.entries<string>(ORDER_STRUCTS[kind]);
  return {
    types: Object.fromEntries(
      [["EIP712Domain", DOMAIN] as const, ...structs].map(([name, struct]) => [
        name,
        fieldsOf(struct),
      ]),
    ),
    primaryType: kind,
    domain: { name: "Purser", version: "2", chainId },
    message: order,
  };
}
