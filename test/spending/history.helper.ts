// Histories of payments of several agents, written to the ledger as their outcomes would be, and what they add up to.
import type { TestApp } from "../helpers/app.ts";
import type { NewTestAgent } from "../helpers/owner.ts";
import type { Random } from "../helpers/random.ts";
import { CHANNELS } from "../../server/schemes/batch-settlement/index.ts";

export const DAY_MS = 86_400_000;
/** Blocks that the test's chain does not reach, so that nobody looks there for these payments. */
export const FIRST_BLOCK = 1_000_000;
const PAYEES = ["a1", "b2", "c3", "d4", "e5"].map((byte) => `0x${byte.repeat(20)}`);
const FUNDER = `0x${"fe".repeat(20)}`;
const SITES = [null, "https://api.example.com", "http://127.0.0.1:8080", "https://a-b.example"];
const MEMOS = [
  null,
  "",
  "forecast",
  '=1+1","x"\n2026-01-01 open Assets:Evil',
  '"\\',
  "100% sure_thing",
];

export interface HistoryRow {
  agent_id: string;
  id: string;
  kind: "spend" | "x402" | "withdrawal" | "incoming" | "deposit";
  status: string;
  counterparty: string;
  amount: string;
  memo: string | null;
  task_id: string | null;
  url: string | null;
  tx_hash: string | null;
  nonce: string;
  channel_id: string | null;
  ceiling: string | null;
  charged: string | null;
  voucher: string | null;
  failure_code: string | null;
  denial_code: string | null;
  created_at: string;
  settled_at: string | null;
  block_number: number | null;
}

/** A refund that arrived: the row of the transfer, and the payment that it returns. */
export interface HistoryRefund {
  arrived: HistoryRow;
  of: HistoryRow;
}

const hex = (random: Random, bytes: number): string =>
  `0x${Array.from({ length: bytes }, () => random.int(0, 255).toString(16).padStart(2, "0")).join("")}`;

/** @param span in milliseconds: the payments are made in it */
export function makeHistory(
  random: Random,
  agents: readonly NewTestAgent[],
  span: { from: number; to: number },
  count: number,
): { rows: HistoryRow[]; refunds: HistoryRefund[] } {
  const rows: HistoryRow[] = [];
  const refunds: HistoryRefund[] = [];
  for (let n = 0; n < count; n += 1) {
    const row = makeRow(random, random.pick(agents), span, n);
    rows.push(row);
    if (row.kind !== "x402" || row.status !== "settled" || row.ceiling || random.next() > 0.3)
      continue;
    const at = Date.parse(String(row.settled_at)) + random.int(1, DAY_MS);
    const arrived: HistoryRow = {
      ...makeRow(random, random.pick(agents), span, n),
      agent_id: row.agent_id,
      id: `pay_r${n}`,
      kind: "incoming",
      status: "settled",
      counterparty: row.counterparty,
      amount: String(random.int(1, Number(row.amount))),
      url: null,
      channel_id: null,
      ceiling: null,
      charged: null,
      voucher: null,
      failure_code: null,
      denial_code: null,
      tx_hash: hex(random, 32),
      settled_at: new Date(at).toISOString(),
      block_number: FIRST_BLOCK + n,
    };
    rows.push(arrived);
    refunds.push({ arrived, of: row });
  }
  return { rows, refunds };
}

function makeRow(
  random: Random,
  agent: NewTestAgent,
  { from, to }: { from: number; to: number },
  n: number,
): HistoryRow {
  const kind = random.weighted([
    ["spend", 4],
    ["x402", 6],
    ["withdrawal", 1],
    ["incoming", 2],
    ["deposit", 1],
  ] as const);
  const status = random.weighted([
    ["settled", 8],
    ["voided", 1],
    ["blocked", kind === "spend" || kind === "x402" ? 1 : 0],
    ["unknown", kind === "incoming" ? 0 : 1],
    // A payment that a reorganisation took back is open again, with the hash of the block that is gone.
    ["submitted", kind === "incoming" ? 0 : 1],
  ] as const);
  const isVoucher = kind === "x402" && random.next() < 0.4 && status !== "blocked";
  const createdAt = random.int(from, to - 60_000);
  const isSettled = status === "settled";
  const amount = random.int(1, 3_000_000);
  const charged = random.weighted([
    [amount, 4],
    [random.int(1, amount), 2],
    [0, 1],
    [null, 1],
  ] as const);
  const hasHash = !isVoucher && (isSettled || status === "submitted");
  return {
    agent_id: agent.id,
    id: `pay_h${n}`,
    kind,
    status,
    counterparty:
      kind === "incoming"
        ? random.pick([FUNDER, CHANNELS.toLowerCase()])
        : kind === "deposit"
          ? CHANNELS.toLowerCase()
          : random.pick(PAYEES),
    amount: String(amount),
    memo: kind === "spend" ? random.pick(MEMOS) : null,
    task_id: random.pick([null, "report-1", "report-2"]),
    url: kind === "x402" ? pathOf(random.pick(SITES)) : null,
    tx_hash: hasHash ? hex(random, 32) : null,
    nonce: hex(random, 32),
    channel_id: isVoucher || kind === "deposit" ? `0x${"77".repeat(32)}` : null,
    ceiling: isVoucher ? String(amount * 3) : null,
    charged: isVoucher && isSettled && charged !== null ? String(charged) : null,
    voucher: isVoucher ? "\\x01" : null,
    failure_code: isVoucher && isSettled && charged === null ? "charge_not_known" : null,
    denial_code: status === "blocked" ? "daily_limit_exceeded" : null,
    created_at: new Date(createdAt).toISOString(),
    settled_at: isSettled ? new Date(createdAt + random.int(0, 50_000)).toISOString() : null,
    block_number: isSettled && !isVoucher ? FIRST_BLOCK + n : null,
  };
}

const pathOf = (site: string | null): string | null => (site === null ? null : `${site}/v1?q=1#x`);

export const siteOf = ({ url }: HistoryRow): string | null =>
  url === null ? null : new URL(url).origin;

/** What a row cost, if it counts as spent. */
export function spentOf(row: HistoryRow): bigint | undefined {
  if (!["spend", "x402"].includes(row.kind) || row.status !== "settled") return undefined;
  if (row.ceiling === null) return BigInt(row.amount);
  return row.charged === null ? undefined : BigInt(row.charged);
}

export async function writeHistory(
  { database: { pool }, chain }: Pick<TestApp, "database" | "chain">,
  { rows, refunds }: ReturnType<typeof makeHistory>,
): Promise<void> {
  const asset = chain.usdc.toLowerCase();
  await pool.query("ALTER TABLE payments DISABLE TRIGGER USER");
  await pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, memo, task_id, url, tx_hash, nonce,
       channel_id, ceiling, charged, voucher, failure_code, denial_code, created_at, settled_at, block_number, log_index)
     SELECT agent_id, id, kind, status, $2, $3, counterparty, amount, memo, task_id, url, tx_hash, nonce, channel_id, ceiling,
            charged, voucher::bytea, failure_code, denial_code, created_at, settled_at, block_number, 0
       FROM jsonb_to_recordset($1) AS r (agent_id TEXT, id TEXT, kind TEXT, status TEXT, counterparty TEXT, amount NUMERIC,
         memo TEXT, task_id TEXT, url TEXT, tx_hash TEXT, nonce TEXT, channel_id TEXT, ceiling NUMERIC, charged NUMERIC, voucher TEXT,
         failure_code TEXT, denial_code TEXT, created_at TIMESTAMPTZ, settled_at TIMESTAMPTZ, block_number BIGINT)`,
    [JSON.stringify(rows), chain.chainId, asset],
  );
  await pool.query("ALTER TABLE payments ENABLE TRIGGER USER");
  for (const { arrived, of } of refunds) {
    await pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
         valid_before, signature, relay, status, tx_hash, proof, settled_at, final_at)
       SELECT $1, $2, $3, $4, $5, 'refund', lower(a.wallet_address), $6, 0, 1, '', true, 'settled', $7, '{}', $8, now()
         FROM agents a WHERE a.id = $9`,
      [
        of.counterparty,
        chain.chainId,
        asset,
        arrived.nonce,
        `rfd_${arrived.id}`,
        arrived.amount,
        arrived.tx_hash,
        arrived.settled_at,
        of.agent_id,
      ],
    );
    await pool.query(
      `INSERT INTO refunds (id, owner_id, settlement_id, number, from_address, chain_id, asset, nonce, value)
       SELECT $1, owner_id, $2, 1, $3, $4, $5, $6, $7 FROM agents WHERE id = $8`,
      [
        `rfd_${arrived.id}`,
        of.id,
        of.counterparty,
        chain.chainId,
        asset,
        arrived.nonce,
        arrived.amount,
        of.agent_id,
      ],
    );
  }
}
