/**
 * What an operator does by hand: the command line and the operators' page call the same functions. Each runs in the
 * caller's transaction, with its entry in the operators' record.
 */
import type { Address } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { actAsOperator, type Operator } from "../audit/operators.ts";
import { readAgainFrom } from "./cursor-store.ts";
import { closeManually } from "./store.ts";

type Network = Pick<NetworkFacts, "id" | "chainId" | "usdc">;

/** Why it was not done, in one sentence. */
export interface NotDone {
  refused: string;
}

export interface ClosedDifferences {
  closed: { key: string; agentId: string | null }[];
}

interface Act {
  by: Operator;
  why: string;
  /** Of the confirmation on the page, so that a second press is recognized. */
  confirmationId?: string;
}

/** Closes open differences of one kind that a person has looked at: all of them, or the one with this key. */
export async function closeDifferences(
  tx: Db,
  network: Network,
  { kind, key, by, why, confirmationId }: Act & { kind: string; key: string | undefined },
): Promise<ClosedDifferences | NotDone> {
  const closed = await closeManually(tx, { chainId: network.chainId, kind, key });
  if (closed.length === 0) return { refused: `no ${kind} is open on ${network.id}` };
  const keys = closed.map((each) => each.key);
  const what = { network: network.id, kind, keys, why, ...(confirmationId && { confirmationId }) };
  await actAsOperator(tx, by, "ledger.difference_healed", what);
  return { closed };
}

/** Reconciliation reads the chain again from this block. */
export async function readAgain(
  tx: Db,
  network: Network,
  { fromBlock, by, why, confirmationId }: Act & { fromBlock: bigint },
): Promise<{ wasAt: bigint } | NotDone> {
  const key = {
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
  };
  const wasAt = await readAgainFrom(tx, key, fromBlock);
  if (wasAt === undefined) return { refused: `reconciliation of ${network.id} has not started` };
  if (fromBlock > wasAt) return { refused: `reconciliation has read only to block ${wasAt - 1n}` };
  const what = {
    network: network.id,
    fromBlock: fromBlock.toString(),
    wasAt: wasAt.toString(),
    why,
    ...(confirmationId && { confirmationId }),
  };
  await actAsOperator(tx, by, "ledger.read_again", what);
  return { wasAt };
}
