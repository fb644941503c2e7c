import { getAddress } from "viem";
import { formatAtomic } from "../../../core/money.ts";
import { usdc, type Rule } from "./rule.ts";
import { remainingOf } from "./windows.ts";

export interface BalanceFacts {
  requested: bigint;
  balance: bigint;
  /** Reserved or sent from this wallet, and not yet subtracted from `balance`. */
  outstanding: bigint;
}

export const balance = {
  name: "balance",
  codes: ["insufficient_funds"],
  check: ({ requested, balance, outstanding }) => ({
    refusal: requested > balance - outstanding ? "insufficient_funds" : null,
    detail:
      outstanding === 0n
        ? `${usdc(requested)} requested; the wallet has ${usdc(balance)}.`
        : `${usdc(requested)} requested; the wallet has ${usdc(balance)}, and ${usdc(outstanding)} of it is already reserved.`,
  }),
  most: ({ balance, outstanding }) => remainingOf(balance, outstanding),
  advise: ({ requested, balance, outstanding }, { walletAddress }) => ({
    extra: {
      balance: formatAtomic(balance),
      outstanding: formatAtomic(outstanding),
      required: formatAtomic(requested),
      fundingAddress: getAddress(walletAddress),
    },
  }),
} as const satisfies Rule<BalanceFacts, "insufficient_funds">;
