/** What cells tell each other, in the database: fee accounts that changed, and notifications of payees without an account here. */
import type { Sql } from "../../infra/db/pool.ts";
import type { News, NewsAsked } from "../../schemas/cells.ts";

const MOST = 500;
const ROW = /^([0-9]{1,19}) ([0-9]{1,19}) (0x[0-9a-f]{40})$/;
const NOTICE = /^([0-9]{1,19}) ([0-9]{1,19})$/;

/**
 * What the other cell has not read yet. Transactions that still run may have smaller numbers than those that have ended, so
 * nothing is read before all older ones have ended. A place in the future is from before this database was restored.
 */
export async function readNewsFor(sql: Sql, cell: string, asked: NewsAsked): Promise<News> {
  // SQL: the snapshot itself, which is not a table.
  const { rows: snapshots } = await sql.query<{ oldest: bigint; next: bigint }>(
    `SELECT pg_snapshot_xmin(s)::text::bigint AS oldest, pg_snapshot_xmax(s)::text::bigint AS next
       FROM pg_current_snapshot() AS s`,
  );
  const { oldest, next } = snapshots[0] as { oldest: bigint; next: bigint };
  const known = (place: string | null, form: RegExp): RegExpExecArray | undefined => {
    const read = place === null ? null : form.exec(place);
    return read && BigInt(read[1] as string) < next ? read : undefined;
  };
  const [, feesTx = "-1", chainId = "0", account = ""] = known(asked.feesAfter, ROW) ?? [];
  const [, noticesTx = String(oldest - 1n), seq = String(2n ** 63n - 1n)] =
    known(asked.noticesAfter, NOTICE) ?? [];
  const [fees, notices] = await Promise.all([
    // SQL: positions are compared as rows.
    sql.query<{ tx: bigint; chainId: bigint; account: string; charged: bigint; paid: bigint }>(
      `SELECT tx, chain_id AS "chainId", account, charged, paid FROM fee_accounts
        WHERE tx < $1 AND (tx, chain_id, account) > ($2, $3, $4) ORDER BY tx, chain_id, account LIMIT $5`,
      [String(oldest), feesTx, chainId, account, MOST],
    ),
    sql.query<{ tx: bigint; seq: bigint; notice: News["notices"][number] }>(
      `SELECT tx, seq, jsonb_build_object('address', address, 'chainId', chain_id, 'type', type, 'subjectId', subject_id,
                'data', data) AS notice
         FROM cell_notices WHERE tx < $1 AND (tx, seq) > ($2, $3) ORDER BY tx, seq LIMIT $4`,
      [String(oldest), noticesTx, seq, MOST],
    ),
    // Notices that all cells have read are deleted (retention).
    sql.query("UPDATE cell_news SET their_tx = $2 WHERE cell = $1 AND their_tx <> $2", [
      cell,
      noticesTx,
    ]),
  ]);
  const lastFee = fees.rows.at(-1);
  const lastNotice = notices.rows.at(-1);
  const noticesAfter = lastNotice ? `${lastNotice.tx} ${lastNotice.seq}` : `${noticesTx} ${seq}`;
  return {
    fees: fees.rows.map((row) => ({
      chainId: Number(row.chainId),
      account: row.account,
      charged: String(row.charged),
      paid: String(row.paid),
    })),
    feesAfter: lastFee
      ? `${lastFee.tx} ${lastFee.chainId} ${lastFee.account}`
      : feesTx === "-1"
        ? null
        : asked.feesAfter,
    notices: notices.rows.map(({ notice }) => notice),
    noticesAfter,
    isMore: fees.rows.length === MOST || notices.rows.length === MOST,
    behindSeconds: await ageOfFirstAfter(sql, noticesAfter),
  };
}

/** How old the oldest notice is that comes after this place; 0 without one. */
async function ageOfFirstAfter(sql: Sql, place: string): Promise<number> {
  // SQL: positions are compared as rows.
  const { rows } = await sql.query<{ seconds: number }>(
    `SELECT greatest(extract(epoch FROM clock_timestamp() - created_at), 0)::float8 AS seconds FROM cell_notices
      WHERE (tx, seq) > ($1, $2) ORDER BY tx, seq LIMIT 1`,
    place.split(" "),
  );
  return rows[0]?.seconds ?? 0;
}

export async function addCells(sql: Sql, cells: readonly string[]): Promise<void> {
  // SQL: rows of cells that nobody asks any more are deleted by their age (retention), and not at this start.
  await sql.query(
    `INSERT INTO cell_news (cell) SELECT unnest($1::text[])
     ON CONFLICT (cell) DO UPDATE SET next_read_at = clock_timestamp()`,
    [cells],
  );
}

/** One replica reads at a time. False: it is not this one's turn. */
export async function takeTurn(sql: Sql, cell: string, everyMs: number): Promise<boolean> {
  // SQL: taken by the database's clock in one statement.
  const { rowCount } = await sql.query(
    `UPDATE cell_news SET next_read_at = clock_timestamp() + make_interval(secs => $2)
      WHERE cell = $1 AND next_read_at <= clock_timestamp()`,
    [cell, everyMs / 1000],
  );
  return rowCount === 1;
}

/** Where to go on reading there. */
export async function placeIn(sql: Sql, cell: string): Promise<NewsAsked> {
  const { rows } = await sql.query<NewsAsked>(
    `SELECT fees_after AS "feesAfter", notices_after AS "noticesAfter" FROM cell_news WHERE cell = $1`,
    [cell],
  );
  if (!rows[0]) throw new Error(`no row for the cell ${cell}`);
  return rows[0];
}

/** False: another replica has read on from the same place, and nothing was written. */
export async function writeNews(
  sql: Sql,
  cell: string,
  { asked, news }: { asked: NewsAsked; news: News },
): Promise<boolean> {
  // SQL: a function, so that the news and the place are written together.
  const { rows } = await sql.query<{ written: boolean }>(
    "SELECT purser_cell_news($1, $2, $3, $4) AS written",
    [cell, asked.feesAfter, asked.noticesAfter, JSON.stringify(news)],
  );
  return rows[0]?.written === true;
}

/** Fee accounts are read from the beginning again: what a restore of the other cell changed is found. */
export async function readFeesAgain(sql: Sql): Promise<void> {
  await sql.query("UPDATE cell_news SET fees_after = NULL");
}

/** How old the news of each cell are. */
export async function readAges(
  sql: Sql,
  cells: readonly string[],
): Promise<{ cell: string; seconds: number }[]> {
  const { rows } = await sql.query<{ cell: string; seconds: number }>(
    `SELECT cell, extract(epoch FROM clock_timestamp() - read_at)::float8 AS seconds FROM cell_news WHERE cell = ANY ($1)`,
    [cells],
  );
  return rows;
}
