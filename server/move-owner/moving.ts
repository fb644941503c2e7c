/** What moves, by its ids. */
import { escapeLiteral } from "pg";

export interface Moving {
  owners: string[];
  agents: string[];
  wallets: string[];
}

const arrayOf = (ids: readonly string[]): string =>
  `ARRAY[${ids.map((id) => escapeLiteral(id)).join(", ")}]::text[]`;

/** Fills in the ids that move. Cursors and one condition for many tables cannot have parameters. */
export const withIds = (text: string, { owners, agents, wallets }: Moving): string =>
  text
    .replaceAll("$owners", () => arrayOf(owners))
    .replaceAll("$agents", () => arrayOf(agents))
    .replaceAll("$wallets", () => arrayOf(wallets));
