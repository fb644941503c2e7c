/** The fields of the withdrawal form, and their validation. */
import { checkAddress, isSameAddress } from "../../lib/address.ts";
import { atomic, formatUsdc, parseUsdc, toDecimal } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";

export interface WithdrawalDraft {
  /** The network that holds the money. */
  network: string;
  amount: string;
  isMax: boolean;
  target: "owner" | "other";
  to: string;
  /** The last characters of `to`, typed again. */
  confirmation: string;
}

export const EMPTY_DRAFT: Omit<WithdrawalDraft, "network"> = {
  amount: "",
  isMax: false,
  target: "owner",
  to: "",
  confirmation: "",
};

export type DraftErrors = Partial<Record<"amount" | "to" | "confirmation", string>>;

type DraftCheck =
  | { ok: true; amount: string; to: string | undefined }
  | { ok: false; errors: DraftErrors };

const CONFIRM_LENGTH = 6;

function checkAmount(
  { amount, isMax }: WithdrawalDraft,
  balance: string | null,
): string | undefined {
  if (isMax) return undefined;
  const value = parseUsdc(amount);
  if (value === undefined || value === 0n)
    return "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
  if (balance !== null && value > atomic(balance))
    return `The agent has only ${formatUsdc(balance)} USDC on this network.`;
  return undefined;
}

export async function checkDraft(
  draft: WithdrawalDraft,
  agent: Pick<Agent, "balances" | "walletAddress">,
): Promise<DraftCheck> {
  const errors: DraftErrors = {};
  const place = agent.balances.find(({ network }) => network === draft.network);
  const amountError = checkAmount(draft, place?.balance ?? null);
  if (amountError !== undefined) errors.amount = amountError;
  let to: string | undefined;
  if (draft.target === "other") {
    const checked = await checkAddress(draft.to);
    if (!checked.ok) errors.to = checked.reason;
    else if (isSameAddress(checked.address, agent.walletAddress))
      errors.to = "This is the agent's own address.";
    else {
      to = checked.address;
      const ending = to.slice(-CONFIRM_LENGTH).toLowerCase();
      if (draft.confirmation.trim().toLowerCase() !== ending)
        errors.confirmation = `The last ${CONFIRM_LENGTH} characters must match the address.`;
    }
  }
  if (Object.keys(errors).length > 0) return { ok: false, errors };
  const value = parseUsdc(draft.amount);
  return { ok: true, amount: draft.isMax || value === undefined ? "max" : toDecimal(value), to };
}
