/** Who may settle through this facilitator. */
import { listed, valid } from "./setting.ts";

/** `0x...`, or `eip155:<chain>:0x...` for a contract account; in lower case. */
const ACCOUNT = /^(?:eip155:([1-9][0-9]{0,15}):)?(0x[0-9a-f]{40})$/;

/** A list of accounts: of `MERCHANTS`, and of `OPERATORS`. */
export function readAccounts(text: string): string[] {
  const accounts = [...new Set(listed(text.toLowerCase()))];
  const reasons = accounts
    .filter((entry) => !ACCOUNT.test(entry))
    .map(
      (entry) =>
        `has "${entry}"; it lists addresses, of a contract account as eip155:<chain id>:0x...`,
    );
  return valid(accounts, reasons);
}

/** Whether third parties are refused: keys or merchants are configured, and FACILITATOR_OPEN is not set. */
export const isClosed = (access: {
  facilitatorApiKeys: readonly string[];
  facilitatorOpen: boolean;
  merchants: readonly string[];
}): boolean =>
  !access.facilitatorOpen && access.facilitatorApiKeys.length + access.merchants.length > 0;

/** An owner in the form of `MERCHANTS`: a contract's address is meaningless on another chain. */
export const accountName = ({ address, chainId }: { address: string; chainId: number }): string =>
  chainId === 0 ? address.toLowerCase() : `eip155:${chainId}:${address.toLowerCase()}`;
