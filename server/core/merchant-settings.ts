/**
 * Who may settle through this facilitator: callers with an API key from the operator, accounts admitted as merchants,
 * or everybody.
 */
import { listed } from "./network-settings.ts";

/** `0x...`, or `eip155:<chain>:0x...` for a contract account; in lower case. */
const ACCOUNT = /^(?:eip155:([1-9][0-9]{0,15}):)?(0x[0-9a-f]{40})$/;

export interface FacilitatorAccess {
  /** API keys that the operator hands out. */
  facilitatorApiKeys: string[];
  /** Third parties may settle too, whether or not such keys are configured. */
  facilitatorOpen: boolean;
  /** Accounts whose own API keys are accepted, charged to the merchants' gas share. */
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

/** Whether third parties are refused: keys or merchants are configured, and FACILITATOR_OPEN is not set. */
export const isClosed = (access: FacilitatorAccess): boolean =>
  !access.facilitatorOpen && access.facilitatorApiKeys.length + access.merchants.length > 0;

/** An owner in the form of `MERCHANTS`: a contract's address is meaningless on another chain. */
export const accountName = ({ address, chainId }: { address: string; chainId: number }): string =>
  chainId === 0 ? address.toLowerCase() : `eip155:${chainId}:${address.toLowerCase()}`;
