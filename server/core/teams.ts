/** Teams: accounts of several people. What their orders and signatures mean is in packages/rules. */
import type { Address, Hex } from "viem";
import { TEAMS_CHAIN } from "../../packages/rules/src/teams.ts";
import { PASSKEYS_CHAIN } from "./passkeys.ts";

export * from "../../packages/rules/src/teams.ts";

/** The address of a team whose first list has this digest. */
export const addressOfTeam = (digest: Hex): Address => `0x${digest.slice(-40)}`;

/** An owner whose address nobody can spend from: its withdrawals go to a payout address. */
export const hasNoWallet = (chainId: number): boolean =>
  chainId === PASSKEYS_CHAIN || chainId === TEAMS_CHAIN;
