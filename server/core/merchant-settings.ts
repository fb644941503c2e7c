/** Who may settle here: callers with a key of the operator's, accounts it admitted as merchants, or everybody. */
import { listed } from "./network-settings.ts";

/** `0x...`, or `eip155:<chain>:0x...` for a contract account; in lower case. */
const ACCOUNT = /^(?:eip155:([1-9][0-9]{0,15}):)?(0x[0-9a-f]{40})$/;

export interface FacilitatorAccess {
  /** Keys the operator gives away. */
  facilitatorApiKeys: string[];
  /** Strangers may settle, with or without such keys. */
  facilitatorOpen: boolean;
  /** Accounts whose own keys are let in, at the merchants' gas. */
  merchants: string[];
}

export function readFacilitatorAccess(
  env: { FACILITATOR_API_KEYS?: string | undefined; FACILITATOR_OPEN: string },
  environment: Record<string, string | undefined>,
  problems: string[],
): FacilitatorAccess {
  const merchants = listed(environment["MERCHANTS"]?.toLowerCase());
  for (const entry of merchants)
    if (!ACCOUNT.test(entry))
      problems.push(
        `MERCHANTS has "${entry}"; it lists addresses, of a contract account as eip155:<chain id>:0x...`,
      );
  return {
    facilitatorApiKeys: listed(env.FACILITATOR_API_KEYS),
    facilitatorOpen: env.FACILITATOR_OPEN === "true",
    merchants: [...new Set(merchants)],
  };
}

/** Whether third parties are refused: callers are configured, and FACILITATOR_OPEN is not set. */
export const isClosed = (access: FacilitatorAccess): boolean =>
  !access.facilitatorOpen && access.facilitatorApiKeys.length + access.merchants.length > 0;

/** An owner as `MERCHANTS` names it: a contract's address means nothing on another chain. */
export const accountName = ({ address, chainId }: { address: string; chainId: number }): string =>
  chainId === 0 ? address.toLowerCase() : `eip155:${chainId}:${address.toLowerCase()}`;
