/** The withdrawal order an owner signs (EIP-712), and how it is read back. */
import { getAddress, hashTypedData, type Address, type Hex } from "viem";
import type { WithdrawalOrder } from "../../schemas/withdrawals.ts";
import { parseAtomic } from "../../core/money.ts";

export const MAX_ORDER_SECONDS = 15 * 60;

export const WITHDRAW_TYPES = {
  Withdraw: [
    { name: "wallet", type: "address" },
    { name: "to", type: "address" },
    { name: "asset", type: "address" },
    { name: "amount", type: "uint256" },
    { name: "nonce", type: "bytes32" },
    { name: "deadline", type: "uint256" },
  ],
} as const;

const DOMAIN_TYPE = [
  { name: "name", type: "string" },
  { name: "version", type: "string" },
  { name: "chainId", type: "uint256" },
] as const;

const orderDomain = (chainId: number) => ({ name: "Purser", version: "1", chainId }) as const;

export interface Order {
  wallet: Address;
  to: Address;
  asset: Address;
  amountAtomic: bigint;
  nonce: Hex;
  deadlineSeconds: bigint;
}

/** Ready for `eth_signTypedData_v4`: JSON, with the domain's own type and integers as strings. */
export function orderTypedData(order: WithdrawalOrder, chainId: number) {
  return {
    types: { EIP712Domain: [...DOMAIN_TYPE], Withdraw: [...WITHDRAW_TYPES.Withdraw] },
    primaryType: "Withdraw" as const,
    domain: orderDomain(chainId),
    message: order,
  };
}

export function orderOnWire(order: Order): WithdrawalOrder {
  return {
    wallet: getAddress(order.wallet),
    to: getAddress(order.to),
    asset: getAddress(order.asset),
    amount: String(order.amountAtomic),
    nonce: order.nonce,
    deadline: String(order.deadlineSeconds),
  };
}

/** What was signed, whatever the numbers mean; judged afterwards. */
export function orderHash(order: Order, chainId: number): Hex {
  return hashTypedData({
    types: WITHDRAW_TYPES,
    primaryType: "Withdraw",
    domain: orderDomain(chainId),
    message: {
      wallet: order.wallet,
      to: order.to,
      asset: order.asset,
      amount: order.amountAtomic,
      nonce: order.nonce,
      deadline: order.deadlineSeconds,
    },
  });
}

/** Undefined where a field is not of its type; addresses in lower case. */
export function readOrder(wire: WithdrawalOrder): Order | undefined {
  const amountAtomic = parseAtomic(wire.amount);
  const deadlineSeconds = parseAtomic(wire.deadline);
  if (amountAtomic === undefined || deadlineSeconds === undefined) return undefined;
  const [wallet, to, asset] = [wire.wallet, wire.to, wire.asset].map((text) => text.toLowerCase());
  return {
    wallet: wallet as Address,
    to: to as Address,
    asset: asset as Address,
    amountAtomic,
    nonce: wire.nonce.toLowerCase() as Hex,
    deadlineSeconds,
  };
}
