/** The rows of payment channels that are compared with the chain. */
import type { Address, Hex } from "viem";
import { CHANNELS } from "../../schemes/batch-settlement/index.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { ChannelKey, ChannelKind, ChannelRows } from "./channels.ts";

/** As the index `payments_returns_idx` has it. */
const CONTRACT = CHANNELS.toLowerCase();

export async function dueChannels(sql: Sql, chainId: number, limit: number): Promise<ChannelKey[]> {
  // SQL: by the database's clock.
  const { rows } = await sql.query<ChannelKey>(
    `SELECT agent_id AS "agentId", id FROM channels
      WHERE chain_id = $1 AND prove_at <= clock_timestamp() ORDER BY prove_at LIMIT $2`,
    [chainId, limit],
  );
  return rows;
}

interface Stored extends Omit<ChannelRows, "config" | "voucher"> {
  payer: Address;
  payerAuthorizer: Address;
  receiver: Address;
  receiverAuthorizer: Address;
  token: Address;
  withdrawDelay: number;
  salt: Hex;
  voucher: Buffer | null;
}

export async function readChannelRows(
  sql: Sql,
  channels: readonly ChannelKey[],
  block: bigint,
): Promise<ChannelRows[]> {
  // SQL: one snapshot of each channel with its sums.
  const { rows } = await sql.query<Stored>(
    `SELECT c.agent_id AS "agentId", c.id, lower(a.wallet_address) AS payer, c.signer AS "payerAuthorizer", c.receiver,
            c.receiver_authorizer AS "receiverAuthorizer", c.asset AS token, c.withdraw_delay AS "withdrawDelay", c.salt,
            c.status = 'closed' AS "isClosed", c.ceiling, c.voucher, c.charged, c.returned, d.*,
            (SELECT coalesce(sum(o.returned), 0) FROM channels o
              WHERE o.agent_id = c.agent_id AND o.chain_id = c.chain_id) AS "returnedInAll",
            (SELECT coalesce(sum(p.amount), 0) FROM payments p
              WHERE p.agent_id = c.agent_id AND p.chain_id = c.chain_id AND p.kind = 'incoming'
                AND p.counterparty = '${CONTRACT}' AND p.status = 'settled' AND p.block_number <= $3) AS "receivedInAll"
       FROM unnest($1::text[], $2::text[]) AS k (agent_id, id)
       JOIN channels c ON c.agent_id = k.agent_id AND c.id = k.id
       JOIN agents a ON a.id = c.agent_id
      CROSS JOIN LATERAL (
        SELECT coalesce(sum(p.amount) FILTER (WHERE p.status = 'settled' AND p.block_number <= $3), 0) AS deposited,
               coalesce(bool_or(p.outstanding), FALSE) AS "hasOpenDeposit"
          FROM payments p WHERE p.agent_id = c.agent_id AND p.channel_id = c.id AND p.kind = 'deposit') AS d`,
    [channels.map(({ agentId }) => agentId), channels.map(({ id }) => id), String(block)],
  );
  return rows.map((row) => {
    const { payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt } =
      row;
    return {
      agentId: row.agentId,
      id: row.id,
      config: { payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt },
      isClosed: row.isClosed,
      ceiling: row.ceiling,
      voucher: row.voucher && `0x${row.voucher.toString("hex")}`,
      charged: row.charged,
      returned: row.returned,
      deposited: row.deposited,
      hasOpenDeposit: row.hasOpenDeposit,
      returnedInAll: row.returnedInAll,
      receivedInAll: row.receivedInAll,
    };
  });
}

/** The transactions that paid a wallet out of the contract since the channel's first deposit. */
export async function payoutsSince(
  sql: Sql,
  chainId: number,
  { agentId, id }: ChannelKey,
  block: bigint,
): Promise<Hex[]> {
  // SQL: with the partial index of these payments.
  const { rows } = await sql.query<{ hash: Hex }>(
    `SELECT DISTINCT p.tx_hash AS hash FROM payments p
      WHERE p.agent_id = $1 AND p.chain_id = $2 AND p.kind = 'incoming' AND p.counterparty = '${CONTRACT}'
        AND p.status = 'settled' AND p.block_number <= $4
        AND p.block_number >= (SELECT min(d.block_number) FROM payments d
                                WHERE d.agent_id = $1 AND d.channel_id = $3 AND d.kind = 'deposit')`,
    [agentId, chainId, id, String(block)],
  );
  return rows.map(({ hash }) => hash);
}

export async function correctReturned(
  sql: Sql,
  { agentId, id, returned: read }: ChannelRows,
  returned: bigint,
): Promise<boolean> {
  // SQL: beside the other statements of this file.
  const { rowCount } = await sql.query(
    "UPDATE channels SET returned = $4 WHERE agent_id = $1 AND id = $2 AND returned = $3",
    [agentId, id, String(read), String(returned)],
  );
  return rowCount === 1;
}

/** These channels agree with the chain in these respects: ends their differences, also those that a person closed. */
export async function endChannelDifferences(
  sql: Sql,
  chainId: number,
  channels: readonly { id: Hex; kinds: readonly ChannelKind[] }[],
): Promise<void> {
  const pairs = channels.flatMap(({ id, kinds }) => kinds.map((kind) => ({ id, kind })));
  // SQL: keys begin with the channel's id. With its time in the key, the same difference can be found anew.
  await sql.query(
    `UPDATE ledger_differences d
        SET healed_at = coalesce(d.healed_at, clock_timestamp()),
            key = d.key || ':' || (extract(epoch FROM d.seen_at) * 1000000)::bigint
       FROM unnest($2::text[], $3::text[]) AS k (kind, id)
      WHERE d.chain_id = $1 AND d.kind = k.kind AND d.key ^@ k.id AND d.key ~ '^0x[0-9a-f]+:-?[0-9]+$'`,
    [chainId, pairs.map(({ kind }) => kind), pairs.map(({ id }) => id)],
  );
}

/** Null seconds: ten minutes while the channel is used, otherwise a day, and a month after it was closed. */
export async function proveLater(
  sql: Sql,
  channels: readonly (ChannelKey & { seconds: number | null })[],
): Promise<void> {
  // SQL: by the database's clock.
  await sql.query(
    `UPDATE channels c SET prove_at = clock_timestamp() + CASE
         WHEN k.seconds IS NOT NULL THEN k.seconds * interval '1 second'
         WHEN GREATEST(c.used_at, c.closed_at, c.busy_until) > clock_timestamp() - interval '10 minutes'
           THEN interval '10 minutes'
         WHEN c.status = 'closed' THEN interval '30 days'
         ELSE interval '1 day' END
       FROM unnest($1::text[], $2::text[], $3::integer[]) AS k (agent_id, id, seconds)
      WHERE c.agent_id = k.agent_id AND c.id = k.id`,
    [
      channels.map(({ agentId }) => agentId),
      channels.map(({ id }) => id),
      channels.map(({ seconds }) => seconds),
    ],
  );
}
