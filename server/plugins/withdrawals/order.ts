/** The withdrawal order that an owner signs, and its wire format. */
import { getAddress, type Address, type Hex } from "viem";
import { type Form, orderDigest, typedDataOf } from "../../core/orders.ts";
import { hasNoWallet, TEAMS_CHAIN } from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import { parseAtomic } from "../../core/money.ts";
import type { Proof } from "../audit/verify.ts";
import type { OrderOwner } from "../orders/orders.ts";
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

/** The digest of the order, without checking its values. */
export const orderHash = (order: Order, chainId: number, form: Form): Hex =>
  orderDigest("Withdraw", orderOnWire(order), chainId, form);

/** Undefined if a number is out of range; addresses in lower case. */
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

/** The order as stored in the audit log. */
export const orderProof = (
  order: Order,
  chainId: number,
  by: { address: Address; chainId: number; signature: Hex; form: Form },
): Proof => ({
  kind: "order",
  digest: orderHash(order, chainId, by.form),
  order: typedDataOf("Withdraw", orderOnWire(order), chainId, by.form),
  signers: [{ signer: by.address, chainId: by.chainId, signature: by.signature.toLowerCase() }],
});

/** Who requests the withdrawal: the owner, or the recovery wallet that the owner authorized. */
export interface Taker {
  address: Address;
  chainId: number;
  second: { address: Address; chainId: number } | null;
  /** The member who acts for a team. */
  member: (OrderOwner["member"] & object) | null;
}

export interface Signer {
  address: Address;
  chainId: number;
  member?: Taker["member"];
}

/** The wallet that must have signed the order: the one that signed in. */
export const signerOf = (owner: Taker): Signer => owner.second ?? owner;

/**
 * A recovery wallet and a passkey withdraw only to the owner's own address: the wallet, or for an owner without one the payout
 * address in force. Custody checks the same.
 */
export function assertMayTake(
  { chainId, second }: Taker,
  to: Address,
  { home, isByPasskey }: { home: Address | undefined; isByPasskey: boolean },
): void {
  if (home === undefined) throw new ApiError("payout_address_missing");
  if (to.toLowerCase() === home) return;
  const only = `only to the owner's ${hasNoWallet(chainId) ? "payout " : ""}address: ${getAddress(home)}.`;
  if (second !== null)
    throw new ApiError("second_wallet_only_tightens", {
      detail: `The recovery wallet can withdraw ${only}`,
    });
  if (hasNoWallet(chainId) || isByPasskey)
    throw new ApiError("payout_address_only", {
      detail: `A ${chainId === TEAMS_CHAIN ? "team" : "passkey"} can withdraw ${only}`,
    });
}
