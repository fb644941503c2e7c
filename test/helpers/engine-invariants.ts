// The invariants after every engine test: each authorization moved money at most once, and the ledger equals the chain.
import type { Pool } from "pg";
import type { Test } from "tap";
import type { Hex } from "viem";
import type { SchemeTerms } from "../../server/core/authorization.ts";
import { tagOf } from "../../server/infra/chain/contracts.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import type { TestChain } from "./chain.ts";
import { TOKEN_ABI } from "./engine.ts";
import { differingGasAccounts } from "./gas-accounts.ts";
import { isNonceUsed } from "./permit2.ts";

interface Row {
  id: string;
  from_address: Hex;
  to_address: Hex;
  value: string;
  nonce: string;
  status: string;
  tx_hash: Hex | null;
  kind: string;
  asset: Hex;
  accepted_block: string | null;
  terms: SchemeTerms | null;
}

/** Permit2 logs no nonce. Its state shows whether the nonce is used, and calls and logs show by which transaction. */
async function permit2Use(chain: TestChain, row: Row): Promise<{ hash: Hex } | undefined> {
  const nonce = BigInt(row.nonce.slice("permit2:".length));
  const isUsed = await isNonceUsed(chain, row.from_address, nonce);
  const transfers = await chain.publicClient.getContractEvents({
    address: chain.usdc,
    abi: TOKEN_ABI,
    eventName: "Transfer",
    args: { from: row.from_address, to: row.to_address },
    fromBlock: 0n,
    toBlock: "latest",
  });
  const expected = {
    asset: row.asset,
    from: row.from_address,
    nonce: row.nonce,
    terms: row.terms,
    to: row.to_address,
    value: BigInt(row.value),
  };
  const found: Hex[] = [];
  for (const hash of new Set(transfers.map(({ transactionHash }) => transactionHash))) {
    const { input, to } = await chain.publicClient.getTransaction({ hash });
    const receipt = await chain.publicClient.getTransactionReceipt({ hash });
    const logs = receipt.logs.map((log) => ({ ...log, blockNumber: tagOf(log.blockNumber) }));
    const sent = { to: to ?? "0x", data: input };
    if (schemeOf(expected).outcomeIn({ logs, sent }, expected) === "paid") found.push(hash);
  }
  const [hash, ...more] = found;
  if (more.length > 0 || (hash && !isUsed)) throw new Error(`${row.nonce} was paid more than once`);
  return hash && { hash };
}

export async function expectLedgerEqualsChain(
  t: Pick<Test, "same" | "equal" | "ok">,
  chain: TestChain,
  pool: Pool,
  options: { isAllFinal?: boolean } = {},
): Promise<void> {
  const range = { fromBlock: 0n, toBlock: "latest" } as const;
  const used = await chain.publicClient.getContractEvents({
    address: chain.usdc,
    abi: TOKEN_ABI,
    eventName: "AuthorizationUsed",
    ...range,
  });
  const uses = new Map<string, { hash: Hex; times: number }>();
  for (const log of used) {
    const key = `${String(log.args.authorizer).toLowerCase()}:${log.args.nonce}`;
    uses.set(key, { hash: log.transactionHash, times: (uses.get(key)?.times ?? 0) + 1 });
  }
  t.ok(
    [...uses.values()].every((use) => use.times === 1),
    "every authorization was used at most once",
  );
  const { rows } = await pool.query<Row>("SELECT * FROM settlements");
  const wrong: string[] = [];
  for (const row of rows) {
    const use = row.terms
      ? await permit2Use(chain, row)
      : uses.get(`${row.from_address}:${row.nonce}`);
    const isOpen = row.status === "queued" || row.status === "submitted";
    if (row.status === "settled" && use?.hash !== row.tx_hash)
      wrong.push(`${row.id} is settled by ${row.tx_hash}, the chain has ${use?.hash}`);
    if (!isOpen && row.status !== "settled" && use && !(await isReplay(chain, row, use.hash)))
      wrong.push(`${row.id} is ${row.status}, but the chain used it`);
    if (isOpen && options.isAllFinal !== false) wrong.push(`${row.id} is still ${row.status}`);
  }
  t.same(wrong, [], "the ledger equals the chain");
  const { rows: links } = await pool.query<{ count: string }>(
    `SELECT count(*) FROM settlements s WHERE s.status = 'settled' AND NOT s.by_other AND NOT EXISTS (
       SELECT 1 FROM settlement_transactions l JOIN relayer_attempts a
         ON a.chain_id = l.chain_id AND a.lane_address = l.lane_address AND a.nonce = l.lane_nonce
        WHERE l.from_address = s.from_address AND l.nonce = s.nonce AND a.hash = s.tx_hash)`,
  );
  t.equal(Number(links[0]?.count), 0, "every hash of ours was stored with its payments");
  await expectGasIsAccounted(t, pool);
}

/** Each settled settlement with a fee, or that paid fees, has one entry; and the accounts are the sums of the entries. */
export async function expectFeesAgree(
  t: Pick<Test, "same">,
  pool: Pool,
  { isRestored = false } = {},
): Promise<void> {
  const { rows: accounts } = await pool.query(
    `SELECT account, a.charged::text, a.paid::text, e.charged::text AS due_charged, e.paid::text AS due_paid
       FROM fee_accounts a FULL JOIN (
         SELECT chain_id, account, coalesce(sum(amount) FILTER (WHERE kind = 'fee'), 0) AS charged,
                coalesce(sum(amount) FILTER (WHERE kind = 'payment'), 0) AS paid
           FROM fee_entries GROUP BY 1, 2) e USING (chain_id, account)
      WHERE coalesce(a.charged, 0) <> coalesce(e.charged, 0) OR coalesce(a.paid, 0) <> coalesce(e.paid, 0)`,
  );
  t.same(accounts, [], "the fee accounts are the sums of their entries");
  if (isRestored) return;
  const { rows: entries } = await pool.query(
    `SELECT s.id, s.status, s.fee, e.kind, e.amount::text FROM settlements s
       FULL JOIN fee_entries e USING (from_address, chain_id, asset, nonce)
      WHERE (e.id IS NOT NULL) <> coalesce(s.fee IS NOT NULL AND s.status = 'settled'
              AND (NOT s.fee ? 'amount' OR NOT s.by_other), FALSE)
         OR e.amount <> coalesce((s.fee->>'amount')::numeric, s.value)`,
  );
  t.same(entries, [], "every settlement with a fee is charged once, while it is settled");
}

export async function expectGasIsAccounted(t: Pick<Test, "same">, pool: Pool): Promise<void> {
  t.same(await differingGasAccounts(pool), [], "every unit of gas is charged to one account, once");
}

/** True if it was used at or before the head at which a third party submitted it, or its nonce moved something else. */
async function isReplay(chain: TestChain, row: Row, hash: Hex): Promise<boolean> {
  const receipt = await chain.publicClient.getTransactionReceipt({ hash });
  const logs = receipt.logs.map((log) => ({ ...log, blockNumber: tagOf(log.blockNumber) }));
  const expected = { asset: row.asset, from: row.from_address, nonce: row.nonce };
  const outcome = schemeOf(expected).outcomeIn(
    { logs },
    {
      ...expected,
      to: row.to_address,
      value: BigInt(row.value),
    },
  );
  if (outcome !== "paid") return true;
  const { kind, accepted_block: accepted } = row;
  return kind === "facilitated" && accepted !== null && receipt.blockNumber <= BigInt(accepted);
}
