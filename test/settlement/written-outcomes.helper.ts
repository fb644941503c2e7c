// What the tests of written outcomes share: outcomes as the engine writes them, and a check of every row that a call changes.
import type { Test } from "tap";
import {
  account,
  AGENT,
  ASSET,
  CHAIN,
  h,
  rowChanges,
  type ChangedRows,
  type Changes,
  type Row,
} from "./changed-rows.ts";

export interface Outcome {
  id: string;
  status: string;
  [more: string]: unknown;
}
export const receipt = (tx: string, block = 60) => ({
  kind: "receipt",
  tx: h(tx),
  block: String(block),
  blockHash: h(`b${block}`),
});
export const state = { kind: "state", block: "70", blockHash: h("b70"), timestamp: "1" };

/** As the engine writes them; the key is that of the settlement. */
export async function outcomesOf(rows: ChangedRows, outcomes: Outcome[]): Promise<string> {
  const { rows: keys } = await rows.query<{
    id: string;
    from: string;
    asset: string;
    nonce: string;
  }>(`SELECT id, from_address AS "from", asset, nonce FROM settlements`);
  return JSON.stringify(
    outcomes.map(({ id, ...outcome }) => {
      const { id: _, ...key } = keys.find((one) => one.id === id) ?? {
        id,
        from: account("nobody"),
        asset: ASSET,
        nonce: h(id),
      };
      return { ...key, ...outcome };
    }),
  );
}

type Work = (rows: ChangedRows) => Promise<unknown>;

/** The check of a file: what a call changes, beside rows that are alike, and that the same call again changes nothing. */
export async function outcomeChecks(t: Test) {
  const inRows = await rowChanges(t);
  const check = async (what: string, prepare: Work, call: Work, expected: Changes) => {
    await t.test(what, async (t) => {
      await inRows(async (rows) => {
        await prepare(rows);
        await rows.neighbours();
        let result:
          | {
              finished: number;
              corrected: { id: string; kind: string }[];
              included?: Record<"hash" | "blockNumber" | "blockHash", string>;
            }
          | undefined;
        const changes = await rows.changesOf(async () => {
          result = (await call(rows)) as typeof result;
        });
        const corrected = result?.corrected.map(({ id, kind }) => `corrected: ${id} ${kind}`) ?? [];
        const elsewhere = result?.included;
        const included = elsewhere ? [`included: ${rows.named(rows.shown(elsewhere))}`] : [];
        const all = [`finished: ${result?.finished}`, ...changes, ...corrected, ...included];
        t.same(all, expected);
        // Written twice, an outcome changes nothing.
        const again = await rows.changesOf(() => call(rows));
        t.same(again, [], "a second time");
      });
    });
  };
  return { inRows, check };
}

export const finalize = (outcomes: Outcome[]) => async (rows: ChangedRows) => {
  const { rows: found } = await rows.query<{ result: unknown }>(
    "SELECT purser_settlements_finalize($1, $2) AS result",
    [CHAIN, await outcomesOf(rows, outcomes)],
  );
  return found[0]?.result;
};
export const gas = { gas_accounts: ["payer:p", "strangers"], gas_hold: 7 };
export const agents = { agent_id: AGENT };
export const upto = (maximum: number) => ({
  terms: { scheme: "upto", maximum: String(maximum), facilitator: account("f") },
  value: maximum,
});
export const ended = (status: string, row: Row = {}): Row => ({
  status,
  proof: receipt("t5"),
  ...(status === "settled"
    ? { tx_hash: h("t5"), block_number: 60, block_hash: h("b60"), settled_at: "2026-01-01" }
    : { error_reason: "why", error_message: "Why." }),
  ...row,
});
export const settled = { status: "settled", proof: receipt("t5"), isFinal: false };
export const failed = {
  status: "failed",
  proof: state,
  isFinal: true,
  reason: "late",
  message: "Late.",
};
