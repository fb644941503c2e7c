/** Where a paywall keeps what it has charged to payment channels. A lost record is lost money. */
import type { KeptResponse } from "./answers.ts";
import type { ChannelConfig, Hex } from "./voucher.ts";
import type { SettleResponse } from "@x402/core/types";

/** The chain's state of a channel, as the facilitator reports it. Amounts are atomic units, as everywhere here. */
export interface ChannelState {
  balance: string;
  totalClaimed: string;
  /** Seconds; 0 while the payer has not begun to withdraw. */
  withdrawRequestedAt: number;
  refundNonce: string;
}

/** Plain JSON. */
export interface Channel {
  /** Lower case. */
  id: Hex;
  /** CAIP-2 id. */
  network: string;
  config: ChannelConfig;
  /** In all requests, claimed or not. */
  charged: string;
  /** The voucher that covers `charged`. */
  voucher?: { ceiling: string; signature: Hex };
  state: ChannelState;
  stateReadMs: number;
  /** When the oldest charge was made that is not claimed. */
  unclaimedSinceMs?: number;
  /** The request in progress. */
  request?: { id: string; untilMs: number };
  /**
   * The newest refund that was signed, or requested from the facilitator. Until its nonce is used it may be paid out at any
   * time, so no charge may rely on this money.
   */
  signedRefund?: { nonce: string; amount: string };
  /** The newest charge, for a payer that did not get its response. */
  last?: LastCharge;
  usedMs: number;
}

export interface LastCharge {
  ceiling: string;
  signature: Hex;
  /** A hash of it. */
  request: string;
  amount: string;
  settlement: SettleResponse;
  response: Omit<KeptResponse, "payload"> & { text?: string; base64?: string };
  untilMs: number;
}

export interface StoredChannel {
  channel: Channel;
  version: number;
}

/** Each method is one atomic step. */
export interface ChannelStore {
  /** Whether it outlives this process. */
  readonly isDurable: boolean;
  find(id: Hex): Promise<StoredChannel | undefined>;
  /** Writes where the stored version is still this one (0: nothing is stored); false where it is not. */
  save(channel: Channel, version: number): Promise<boolean>;
  /** Channels with charges that are not claimed, the largest first; it may be a limited number. */
  unclaimed(): Promise<StoredChannel[]>;
  /** Deletes channels that were not used since, and whose charges are all claimed. */
  forget(unusedSince: Date): Promise<void>;
  /** Of several processes, one has the turn at a time, for so long: false where another one has it. */
  takeTurn(holder: string, forMs: number): Promise<boolean>;
}

const MOST_UNCLAIMED = 1_000;

export const unclaimedOf = ({ charged, state }: Pick<Channel, "charged" | "state">): bigint =>
  BigInt(charged) - BigInt(state.totalClaimed);

/** For a single process and for tests: a restart loses every charge that is not claimed. */
export class OneProcessChannelStore implements ChannelStore {
  readonly isDurable = false;
  readonly #channels = new Map<string, StoredChannel>();
  #turn = { holder: "", untilMs: 0 };

  async find(id: Hex): Promise<StoredChannel | undefined> {
    return structuredClone(this.#channels.get(id));
  }
  async save(channel: Channel, version: number): Promise<boolean> {
    if ((this.#channels.get(channel.id)?.version ?? 0) !== version) return false;
    checkCovered(channel);
    this.#channels.set(channel.id, structuredClone({ channel, version: version + 1 }));
    return true;
  }
  async unclaimed(): Promise<StoredChannel[]> {
    return [...this.#channels.values()]
      .map((stored) => ({ stored, amount: unclaimedOf(stored.channel) }))
      .filter(({ amount }) => amount > 0n)
      .toSorted((one, other) => Number(other.amount - one.amount))
      .map(({ stored }) => structuredClone(stored));
  }
  async forget(unusedSince: Date): Promise<void> {
    for (const [id, { channel }] of this.#channels)
      if (channel.usedMs < unusedSince.getTime() && unclaimedOf(channel) <= 0n)
        this.#channels.delete(id);
  }
  async takeTurn(holder: string, forMs: number): Promise<boolean> {
    if (this.#turn.holder !== holder && this.#turn.untilMs > Date.now()) return false;
    this.#turn = { holder, untilMs: Date.now() + forMs };
    return true;
  }
}

/** The same that a constraint of the table says. */
function checkCovered({ charged, voucher }: Channel): void {
  if (BigInt(charged) > BigInt(voucher?.ceiling ?? charged))
    throw new RangeError("a channel cannot be charged more than its payer signed");
}

/** The `query` method of a `pg` pool or client, or of anything like it. */
export type Query = (
  text: string,
  values?: unknown[],
) => Promise<{ rows: Record<string, unknown>[] }>;

const NAME = /^[a-z_][a-z0-9_]{0,40}$/;

/** For any number of processes on one Postgres. Call `createTables` once before it is used. */
export class PostgresChannelStore implements ChannelStore {
  readonly isDurable = true;
  readonly #query: Query;
  readonly #table: string;

  /** Names may have a schema: set the search path of your connections. */
  constructor(query: Query, { table = "paywall_channels" }: { table?: string } = {}) {
    if (!NAME.test(table)) throw new Error("the name of the channels' table must be a plain one");
    this.#query = query;
    this.#table = table;
  }

  /** What `createTables` runs, for those who create tables by themselves. It may run any number of times. */
  get ddl(): string {
    const table = this.#table;
    return `
      SELECT pg_advisory_xact_lock(hashtext('${table}'));
      CREATE TABLE IF NOT EXISTS ${table} (
        id text PRIMARY KEY,
        version bigint NOT NULL,
        charged numeric(39) NOT NULL CHECK (charged >= 0),
        claimed numeric(39) NOT NULL CHECK (claimed >= 0),
        ceiling numeric(39) NOT NULL CHECK (ceiling >= charged),
        used_at timestamptz NOT NULL,
        channel text NOT NULL
      );
      CREATE INDEX IF NOT EXISTS ${table}_unclaimed ON ${table} ((charged - claimed) DESC)
        WHERE charged > claimed;
      CREATE INDEX IF NOT EXISTS ${table}_used ON ${table} (used_at);
      CREATE TABLE IF NOT EXISTS ${table}_turn (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        holder text NOT NULL,
        until timestamptz NOT NULL
      )`;
  }

  async createTables(): Promise<void> {
    await this.#query(this.ddl);
  }

  async find(id: Hex): Promise<StoredChannel | undefined> {
    const { rows } = await this.#query(
      `SELECT version, channel FROM ${this.#table} WHERE id = $1`,
      [id],
    );
    return rows[0] && storedIn(rows[0]);
  }

  async save(channel: Channel, version: number): Promise<boolean> {
    const { id, charged, state, voucher, usedMs } = channel;
    const values = [
      id,
      charged,
      state.totalClaimed,
      // Charges from before a record was lost are known by their claims only.
      voucher?.ceiling ?? charged,
      new Date(usedMs).toISOString(),
      JSON.stringify(channel),
    ];
    const { rows } =
      version === 0
        ? await this.#query(
            `INSERT INTO ${this.#table} (id, version, charged, claimed, ceiling, used_at, channel)
             VALUES ($1, 1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING RETURNING id`,
            values,
          )
        : await this.#query(
            `UPDATE ${this.#table} SET version = version + 1, charged = $2, claimed = $3, ceiling = $4,
               used_at = $5, channel = $6
             WHERE id = $1 AND version = $7 RETURNING id`,
            [...values, version],
          );
    return rows.length === 1;
  }

  async unclaimed(): Promise<StoredChannel[]> {
    const { rows } = await this.#query(
      `SELECT version, channel FROM ${this.#table} WHERE charged > claimed
       ORDER BY charged - claimed DESC LIMIT ${MOST_UNCLAIMED}`,
    );
    return rows.map(storedIn);
  }

  async forget(unusedSince: Date): Promise<void> {
    await this.#query(`DELETE FROM ${this.#table} WHERE used_at < $1 AND charged <= claimed`, [
      unusedSince.toISOString(),
    ]);
  }

  async takeTurn(holder: string, forMs: number): Promise<boolean> {
    // By the clock of the database, which all processes share.
    const { rows } = await this.#query(
      `INSERT INTO ${this.#table}_turn AS turn (holder, until)
       VALUES ($1, clock_timestamp() + $2 * interval '1 millisecond')
       ON CONFLICT (one) DO UPDATE SET holder = excluded.holder, until = excluded.until
       WHERE turn.holder = excluded.holder OR turn.until <= clock_timestamp()
       RETURNING holder`,
      [holder, forMs],
    );
    return rows.length === 1;
  }
}

const storedIn = ({ version, channel }: Record<string, unknown>): StoredChannel => ({
  version: Number(version),
  channel: JSON.parse(String(channel)) as Channel,
});
