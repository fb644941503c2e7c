// Calls of SQL functions, each in a transaction that is rolled back: which rows they change, on a clock that stands still.
import type { Pool, PoolClient } from "pg";
import { createPool } from "../../server/infra/db/pool.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";

export type Value = string | number | bigint | boolean | Buffer | null | string[] | object;
export type Row = Record<string, Value>;
/** One line for each row that changed: its name, and its new values. */
export type Changes = string[];

export const CHAIN = 5_042_002;
export const AGENT = "agt_1";
export const OWNER = "own_1";
/** Short names for hashes and accounts: h("a") is the hash of the block, transaction or nonce "a". */
export const h = (name: string): string =>
  `0x${Buffer.from(name).toString("hex").padStart(64, "0")}`;
export const account = (name: string): string =>
  `0x${Buffer.from(name).toString("hex").padStart(40, "0")}`;

export const LANE = account("lane");
export const ASSET = account("token");
export const PAYEE = account("payee");

const OTHER_LANE = `CASE chain_id WHEN ${CHAIN} THEN '' ELSE 'elsewhere, ' END
  || CASE lane_address WHEN '${LANE}' THEN '' ELSE lane_address || ', ' END`;

/** The tables that the functions write, and how a row is named. */
const TABLES: Record<string, string> = {
  settlements: "id",
  payments: `CASE agent_id WHEN '${AGENT}' THEN '' ELSE 'other agent, ' END || id`,
  relayer_transactions: `${OTHER_LANE} || 'tx ' || nonce`,
  settlement_transactions: `${OTHER_LANE} || lane_nonce || ' ' || position`,
  relayer_attempts: "hash",
  relayer_lanes: `CASE chain_id WHEN ${CHAIN} THEN '' ELSE 'elsewhere, ' END || address`,
  gas_accounts: `CASE chain_id WHEN ${CHAIN} THEN '' ELSE 'elsewhere, ' END || account`,
  fee_entries: "kind || ' ' || id",
  fee_accounts: `CASE chain_id WHEN ${CHAIN} THEN '' ELSE 'elsewhere, ' END || account`,
  lane_offenders: "payer",
  settlement_corrections: "settlement_id || ' ' || kind",
  agents: "id",
  channels: `CASE agent_id WHEN '${AGENT}' THEN '' ELSE 'other agent, ' END || id`,
  idempotency_keys: "key",
  withdrawal_orders: "nonce",
  spending_windows: "agent_id || ' ' || payee || ' ' || hours",
  approvals: "id",
  audit_notes: "action",
  notified: "number",
};
/** Times of the table itself, numbers of rows, and what the name of a new row says already. */
const LEFT_OUT = new Set(
  `id n at actor asset nonce chain_id from_address lane_address agent_id owner_id settlement_id channel number payer
   created_at seq tx account kind action`.split(/\s+/),
);

export function settlementRow(id: string, row: Row = {}): Row {
  const isAgents = "agent_id" in row && row["agent_id"] !== null;
  return {
    from_address: account(isAgents ? "wallet" : "payer"),
    chain_id: CHAIN,
    asset: ASSET,
    nonce: row["terms"] ? `permit2:${h(id)}` : h(id),
    id,
    kind: isAgents ? "spend" : "facilitated",
    to_address: PAYEE,
    value: 100,
    valid_after: 0,
    valid_before: 4_102_444_800,
    signature: Buffer.from("00", "hex"),
    relay: true,
    status: "queued",
    ...row,
  };
}

export class ChangedRows {
  readonly #client: PoolClient;
  readonly nowMs: number;

  constructor(client: PoolClient, nowMs: number) {
    this.#client = client;
    this.nowMs = nowMs;
  }

  /** One row, or several of the same columns in one statement. */
  async insert(table: string, ...rows: [Row, ...Row[]]): Promise<void> {
    if (table === "settlements" && (await this.#areWithoutPayments(rows))) {
      await this.query("ALTER TABLE settlements DISABLE TRIGGER settlements_accepted");
      await this.#insert(table, ...rows);
      return void (await this.query("ALTER TABLE settlements ENABLE TRIGGER settlements_accepted"));
    }
    await this.#insert(table, ...rows);
  }

  /** Settlements of agents whose payments are inserted later, or do not matter. */
  async #areWithoutPayments(rows: Row[]): Promise<boolean> {
    const { rows: found } = await this.#client.query("SELECT FROM payments WHERE id = ANY($1)", [
      rows.map(({ id }) => id),
    ]);
    return found.length === 0 && rows.some((row) => row["agent_id"] != null);
  }

  async #insert(table: string, ...rows: [Row, ...Row[]]): Promise<void> {
    const names = Object.keys(rows[0]);
    const values = rows.flatMap((row) => names.map((name) => forPostgres(row[name] ?? null)));
    const places = rows.map(
      (_, row) =>
        `(${names.map((_name, index) => `$${row * names.length + index + 1}`).join(", ")})`,
    );
    await this.query(
      `INSERT INTO ${table} (${names.join(", ")}) VALUES ${places.join(", ")}`,
      values,
    );
  }

  query<T extends object = Record<string, unknown>>(text: string, values: unknown[] = []) {
    return this.#client.query<T>(text, values);
  }

  async agent(row: Row = {}): Promise<void> {
    await this.insert("owners", { id: OWNER, address: account("owner") });
    await this.insert("agents", {
      id: AGENT,
      owner_id: OWNER,
      name: "a",
      network: `eip155:${CHAIN}`,
      wallet_address: account("wallet"),
      daily_limit: 1_000_000,
      window_tail_at: "-infinity",
      window_sum: 500,
      ...row,
    });
  }

  /** A payment of the agent. */
  payment(id: string, row: Row = {}): Promise<void> {
    return this.insert("payments", {
      agent_id: AGENT,
      id,
      kind: "spend",
      status: "submitted",
      chain_id: CHAIN,
      asset: ASSET,
      counterparty: PAYEE,
      amount: 100,
      nonce: h(id),
      ...row,
    });
  }

  /** A settlement as acceptance inserts it: an agent's needs its reservation. */
  accept(id: string, row: Row): Promise<void> {
    return this.#insert("settlements", settlementRow(id, row));
  }

  /** A settlement; an agent's, if it has an `agent_id`. */
  async settlement(id: string, row: Row = {}): Promise<void> {
    await this.insert("settlements", settlementRow(id, row));
    // The database takes an agent's gas from its payment.
    if ("agent_id" in row && "gas_hold" in row)
      await this.query("UPDATE settlements SET gas_hold = $1, gas_accounts = $2 WHERE id = $3", [
        row["gas_hold"],
        row["gas_accounts"],
        id,
      ]);
  }

  /**
   * Rows that share all but one part of their key with the rows that are there, and are like them. No function may touch them.
   * Each is before them in its table, where a statement that finds too much finds it first.
   */
  async neighbours(): Promise<void> {
    const others: Row[] = [
      { from_address: account("x") },
      { chain_id: 1 },
      { asset: account("x") },
      { nonce: h("x") },
    ];
    const { rows: keys } = await this.query<Row>(
      `SELECT from_address, chain_id::int, asset, nonce, status, tx_hash, block_number::int, block_hash, proof, settled_at,
         error_reason, lane_address, lane_epoch::int, attempts, relay
         FROM settlements WHERE nonce LIKE '0x%' ORDER BY id LIMIT 1`,
    );
    for (const like of keys)
      for (const [index, other] of others.entries()) {
        const row = { ...like, ...other };
        const { rowCount: known } = await this.query(
          "SELECT FROM settlements WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4",
          [row["from_address"], row["chain_id"], row["asset"], row["nonce"]],
        );
        if (known === 0) await this.settlement(`neighbour ${index}`, row);
      }
    await this.query("UPDATE settlements SET id = id WHERE id NOT LIKE 'neighbour %'");
    const { rows: transactions } = await this.query<{ lane: string; chain: number; nonce: number }>(
      "SELECT lane_address AS lane, chain_id::int AS chain, nonce::int FROM relayer_transactions ORDER BY nonce LIMIT 1",
    );
    for (const of of transactions)
      for (const other of [{ lane: account("x lane") }, { chain: 1 }, { nonce: of.nonce + 100 }]) {
        const { lane, chain, nonce } = { ...of, ...other };
        const { rowCount: known } = await this.query(
          "SELECT FROM relayer_transactions WHERE lane_address = $1 AND chain_id = $2 AND nonce = $3",
          [lane, chain, nonce],
        );
        const items = others.flatMap((row, index) =>
          keys.length > 0 && (row["chain_id"] ?? CHAIN) === chain ? [`neighbour ${index}`] : [],
        );
        const attempts = [{ hash: h(`n${Object.keys(other)[0]}`) }];
        if (known === 0) await this.transaction(nonce, items, { lane, chain, attempts });
      }
    await this.query(
      "UPDATE relayer_transactions SET status = status WHERE lane_address = $1 AND chain_id = $2 AND nonce < 100",
      [LANE, CHAIN],
    );
    await this.query(
      `INSERT INTO relayer_lanes (chain_id, address, lease_owner, lease_epoch, lease_until, next_nonce)
       SELECT chain_id, $1, lease_owner, lease_epoch, lease_until, next_nonce FROM relayer_lanes
       UNION ALL SELECT 1, address, lease_owner, lease_epoch, lease_until, next_nonce FROM relayer_lanes
       ON CONFLICT DO NOTHING`,
      [account("x lane")],
    );
    await this.query(
      "UPDATE relayer_lanes SET next_nonce = next_nonce WHERE chain_id = $1 AND address = $2",
      [CHAIN, LANE],
    );
    const { rowCount } = await this.query("SELECT FROM payments");
    if (rowCount === 0) return;
    for (const agent of ["agt_2", "agt_3"])
      await this.query(
        `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, window_tail_at, window_sum)
         SELECT $1, owner_id, name, network, $2, daily_limit, window_tail_at, window_sum FROM agents WHERE id = $3`,
        [agent, account(`wallet ${agent}`), AGENT],
      );
    const { rows: payments } = await this.query<Row & { id: string }>(
      `SELECT id, kind, status, amount::int - 1 AS amount, maximum::int, denial_code, failure_code, gas_hold::int FROM payments`,
    );
    const paid = { tx_hash: h("x"), settled_at: "2026-01-01" };
    for (const { id, ...like } of payments)
      for (const other of [
        { id, agent_id: "agt_2", ...like },
        { id, agent_id: "agt_3", ...like, status: "reserved", denial_code: null },
        { id: `${id} of another`, agent_id: AGENT, ...like },
      ]) {
        const prefix = like["maximum"] === null ? "" : "permit2:";
        await this.payment(other.id, { nonce: `${prefix}${h(other.id)}`, ...paid, ...other });
      }
    await this.query(
      "UPDATE payments SET id = id WHERE agent_id = $1 AND id NOT LIKE '% of another'",
      [AGENT],
    );
  }

  /** A transaction of the lane that carries these settlements, and its attempts. */
  async transaction(
    nonce: number,
    items: string[],
    {
      attempts = [{ hash: h(`t${nonce}`) }],
      lane = LANE,
      chain = CHAIN,
      ...row
    }: Row & { attempts?: Row[]; lane?: string; chain?: number } = {},
  ): Promise<void> {
    const key = { chain_id: chain, lane_address: lane, nonce };
    await this.insert("relayer_transactions", {
      ...key,
      status: "pending",
      to_address: ASSET,
      calldata: Buffer.from("00", "hex"),
      gas_limit: 100_000,
      ...row,
    });
    for (const [index, attempt] of attempts.entries())
      await this.insert("relayer_attempts", {
        ...key,
        attempt: index + 1,
        raw: Buffer.from("00", "hex"),
        max_fee_wei: 1,
        priority_fee_wei: 1,
        ...attempt,
      });
    for (const [position, id] of items.entries())
      await this.query(
        `INSERT INTO settlement_transactions
           (chain_id, lane_address, lane_nonce, position, action, from_address, asset, nonce, gas_hold)
         SELECT $1, $2, $3, $4, 'transfer', from_address, asset, nonce, gas_hold FROM settlements WHERE id = $5`,
        [chain, lane, nonce, position, id],
      );
  }

  async #rows(): Promise<Map<string, Record<string, unknown>>> {
    const parts = Object.entries(TABLES).map(
      ([table, name]) =>
        `SELECT '${table} ' || (${name}) AS name, to_jsonb(r) AS columns FROM ${table} r`,
    );
    // Named, so that Postgres plans it once.
    const { rows } = await this.#client.query<{ name: string; columns: Record<string, unknown> }>({
      name: "all rows",
      text: parts.join(" UNION ALL "),
    });
    return new Map(rows.map(({ name, columns }) => [name, columns]));
  }

  /** What the work changes. A time that is the clock's is "now"; a hash is shown by its name. */
  async changesOf(work: () => Promise<unknown>): Promise<Changes> {
    const before = await this.#rows();
    await work();
    const after = await this.#rows();
    const lines: string[] = [];
    for (const [name, columns] of after) {
      const old = before.get(name);
      if (name.startsWith("notified")) {
        if (!old)
          lines.push(...[columns["message"]].flat().map((one) => `told: ${this.shown(one)}`));
        continue;
      }
      const changed = Object.entries(columns).filter(([column, value]) =>
        old === undefined
          ? !LEFT_OUT.has(column) && value !== null
          : JSON.stringify(old[column]) !== JSON.stringify(value),
      );
      if (changed.length > 0 || !old)
        lines.push(`${name}: ${this.shown(Object.fromEntries(changed))}`);
    }
    for (const name of before.keys()) if (!after.has(name)) lines.push(`${name}: deleted`);
    return lines.map((line) => this.named(line)).toSorted();
  }

  /** Hashes as the names that they were made of. */
  named(line: string): string {
    return line.replaceAll(/0x0*([0-9a-f]{2,})/g, named);
  }

  shown(value: unknown): string {
    if (typeof value === "string" && /^\d{4}-\d\d-\d\dT.*(\+00:00|Z)$/.test(value)) {
      const seconds = (Date.parse(value) - this.nowMs) / 1_000;
      if (Math.abs(seconds) > 10_000_000) return "another day";
      return seconds === 0 ? "now" : `${seconds > 0 ? "+" : ""}${seconds} s`;
    }
    if (typeof value === "string" && /^\d{4}-\d\d-\d\d$/.test(value)) return "today";
    if (Array.isArray(value)) return `[${value.map((one) => this.shown(one)).join(", ")}]`;
    if (typeof value === "object" && value !== null)
      return Object.entries(value)
        .map(([name, one]) =>
          typeof one === "object" && one !== null
            ? `${name} (${this.shown(one)})`
            : `${name} ${this.shown(one)}`,
        )
        .toSorted()
        .join(", ");
    return String(value);
  }
}

function forPostgres(value: Value): unknown {
  if (typeof value === "bigint") return String(value);
  const isJson =
    typeof value === "object" && value !== null && !Array.isArray(value) && !Buffer.isBuffer(value);
  return isJson ? JSON.stringify(value) : value;
}

/** The name that `h` and `account` made a hash of. */
function named(hash: string, digits: string): string {
  const text = Buffer.from(digits, "hex").toString();
  return /^[\w' -]+$/.test(text) ? text : hash;
}

/** A run with mutants keeps the database for thousands of files: every case is rolled back. */
const { keptRows } = globalThis as { keptRows?: { prepared?: ReturnType<typeof prepare> } };

async function prepare(t: Parameters<typeof testDatabase>[0]) {
  const database = await testDatabase(t);
  const clock = await withOwnClock(database);
  await database.pool.query(`
    CREATE TABLE clock.notified (number SERIAL, channel TEXT, message JSONB);
    CREATE FUNCTION clock.pg_notify(channel TEXT, payload TEXT) RETURNS VOID LANGUAGE sql AS
      'INSERT INTO clock.notified (channel, message)
       SELECT $1, CASE $1 WHEN ''purser_settled'' THEN $2::jsonb END WHERE $1 = ''purser_settled'''`);
  const pool: Pool = createPool(database.url, { maxConnections: 1 });
  t.teardown(() => pool.end());
  await pool.query("SET timezone = 'UTC'");
  return { clock, pool };
}

/** One database for a file, and a transaction for each case. */
export async function rowChanges(t: Parameters<typeof testDatabase>[0]) {
  const { clock, pool } = await (keptRows
    ? (keptRows.prepared ??= prepare({ teardown: () => undefined }))
    : prepare(t));
  // What was rolled back stays in the tables otherwise, and slows every case down.
  if (keptRows) await pool.query(`VACUUM ${Object.keys(TABLES).join(", ")}`);
  const nowMs = Math.floor(Date.now() / 1_000) * 1_000;
  await clock.set(BigInt(nowMs) * 1_000n);
  return async <T>(work: (rows: ChangedRows) => Promise<T>): Promise<T> => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN; ALTER SEQUENCE clock.notified_number_seq RESTART");
      return await work(new ChangedRows(client, nowMs));
    } finally {
      await client.query("ROLLBACK");
      client.release();
    }
  };
}
