/**
 * What the wallet signs for a withdrawal and for the recovery wallet: made here from the order in the server's
 * response, after a comparison with what the user entered. Throws `OrderMismatch` where they differ.
 */
import {
  type MoveOwnerOrder,
  type SecondWalletOrder,
  typedDataOf,
} from "../../../../packages/rules/src/orders.ts";
import { isSameAddress } from "../address.ts";
import { toDecimal } from "../money.ts";
import type { WithdrawalOrder } from "../wire.ts";
import { assertSingleUse, chainIdOf } from "./requests.ts";
import { OrderMismatch } from "./signing.ts";

const NO_WALLET = `0x${"0".repeat(40)}`;

const assertSame = (isSame: boolean, what: string, before: string, after: string): void => {
  if (!isSame) throw new OrderMismatch([{ what, before, after }]);
};

export function withdrawalToSign(
  order: WithdrawalOrder,
  wanted: { wallet: string; to: string; amount: string; network: string },
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.wallet, wanted.wallet), "From", wanted.wallet, order.wallet);
  assertSame(isSameAddress(order.to, wanted.to), "To", wanted.to, order.to);
  const amount = toDecimal(BigInt(order.amount));
  // The review shows the amount that "max" stands for, and the wallet signs that same order.
  const isSameAmount = wanted.amount === "max" || wanted.amount === amount;
  assertSame(isSameAmount, "Amount", wanted.amount, amount);
  return typedDataOf("Withdraw", order, chainIdOf(wanted.network));
}

export function secondWalletToSign(
  order: SecondWalletOrder,
  wanted: { owner: string; second: string | null },
  chainId: number,
) {
  assertSingleUse({ ...order });
  const second = wanted.second ?? NO_WALLET;
  assertSame(isSameAddress(order.owner, wanted.owner), "Owner", wanted.owner, order.owner);
  assertSame(isSameAddress(order.second, second), "Recovery wallet", second, order.second);
  // The app names only wallets with a key of their own.
  assertSame(order.secondChain === "0", "Chain of the recovery wallet", "0", order.secondChain);
  return typedDataOf("SecondWallet", order, chainId);
}

export function moveToSign(
  order: MoveOwnerOrder,
  wanted: { from: string; to: string },
  chainId: number,
) {
  assertSingleUse({ ...order });
  assertSame(isSameAddress(order.from, wanted.from), "From", wanted.from, order.from);
  assertSame(isSameAddress(order.to, wanted.to), "To", wanted.to, order.to);
  return typedDataOf("MoveOwner", order, chainId);
}
