/**
 * The EIP-712 structs of an owner's orders. The wallet signs these structs with the domain below; the
 * server's response provides only the values, so it cannot make the wallet sign anything else.
 */
import { policyTypes, versionOf } from "../../../../packages/rules/src/policy.ts";
import type { TypedData } from "../wire.ts";

export const ORDER_STRUCTS = {
  IssueKey: {
    IssueKey:
      "string agent,address wallet,string label,uint256 expiresAt,bytes32 nonce,uint256 deadline",
  },
  ApprovePayment: {
    ApprovePayment:
      "string agent,address payee,address asset,uint256 maxAmount,string site,string approvalId,bytes32 nonce,uint256 deadline",
  },
} as const;
export type OrderKind = keyof typeof ORDER_STRUCTS | "AgentPolicy";

const DOMAIN = "string name,string version,uint256 chainId";

const fieldsOf = (struct: string): { name: string; type: string }[] =>
  struct.split(",").map((field) => {
    const [type = "", name = ""] = field.split(" ");
    return { name, type };
  });

function structsOf(
  kind: OrderKind,
  order: Record<string, unknown>,
): Record<string, { name: string; type: string }[]> {
  if (kind !== "AgentPolicy")
    return Object.fromEntries(
      Object.entries<string>(ORDER_STRUCTS[kind]).map(([name, struct]) => [name, fieldsOf(struct)]),
    );
  const version = versionOf(order);
  if (version === undefined) throw new Error("The order has a malformed version.");
  return policyTypes(version);
}

/**
 * Only the members of the structs are signed; other members of the order are ignored, as the server ignores
 * them too.
 */
export function typedDataFor(
  kind: OrderKind,
  order: Record<string, unknown>,
  chainId: number,
): TypedData {
  return {
    types: { EIP712Domain: fieldsOf(DOMAIN), ...structsOf(kind, order) },
    primaryType: kind,
    domain: { name: "Purser", version: "2", chainId },
    message: order,
  };
}
