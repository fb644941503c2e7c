/** The withdrawal order an owner signs, in numbers, and how it is read back. */
import { getAddress, type Address, type Hex } from "viem";
import { orderDigest, typedDataOf } from "../../core/orders.ts";
import { ApiError } from "../../errors.ts";
import { parseAtomic } from "../../core/money.ts";
import type { Proof } from "../audit/verify.ts";
import type { WithdrawalOrder } from "../../schemas/withdrawals.ts";

export interface Order {
  wallet: Address;
  to: Address;
  asset: Address;
  amountAtomic: bigint;
  nonce: Hex;
  deadlineSeconds: bigint;
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
export const orderHash = (order: Order, chainId: number): Hex =>
  orderDigest("Withdraw", orderOnWire(order), chainId);

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

/** The order as the audit keeps it. */
export const orderProof = (
  order: Order,
  chainId: number,
  by: { address: Address; chainId: number; signature: Hex },
): Proof => ({
  kind: "order",
  digest: orderHash(order, chainId),
  order: typedDataOf("Withdraw", orderOnWire(order), chainId),
  signers: [{ signer: by.address, chainId: by.chainId, signature: by.signature.toLowerCase() }],
});

/** Who asks for the money: the owner, or with its word the second wallet. */
export interface Taker {
  address: Address;
  chainId: number;
  second: { address: Address; chainId: number } | null;
}

/** Whose signature an order needs: the wallet's that signed in. */
export const signerOf = (owner: Taker): { address: Address; chainId: number } =>
  owner.second ?? owner;

/** The second wallet takes money to the owner's own address, and nowhere else. */
export function assertMayTake(owner: Taker, to: Address): void {
  if (owner.second !== null && to.toLowerCase() !== owner.address)
    throw new ApiError("second_wallet_only_tightens", {
      detail: `The recovery wallet can withdraw only to the owner's address: ${getAddress(owner.address)}.`,
    });
}
