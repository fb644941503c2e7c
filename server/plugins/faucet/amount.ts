/** What the local faucet gives: toy money, but not so much that a mistyped demo becomes unreadable. */
import { parsePayable, type ParsedAmount } from "../../core/money.ts";

export const FAUCET = { usualAmount: "100", maxAmount: "10000", perMinute: 600 } as const;

export function readFaucetAmount(text: string = FAUCET.usualAmount): ParsedAmount {
  const parsed = parsePayable(text);
  const max = parsePayable(FAUCET.maxAmount);
  if (parsed.ok && max.ok && parsed.atomic > max.atomic)
    return { ok: false, reason: `must be at most ${FAUCET.maxAmount}` };
  return parsed;
}
