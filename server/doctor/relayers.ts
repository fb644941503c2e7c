/** The doctor's checks of the keys that pay gas, relayers' and channels': enough of it, for how long, and no stuck nonce. */
import type { Hex } from "viem";
import type { Config } from "../config.ts";
import { addressOf } from "../core/signatures.ts";
import { readNativeBalance, readNonce } from "../infra/chain/contracts.ts";
import { createChainClient } from "../infra/chain/index.ts";
import { Kms } from "../infra/kms.ts";
import { readRelayers } from "../infra/relayer-signer.ts";
import { WITHDRAWAL_GAS } from "../core/channel-gas.ts";
import type { Database } from "./database.ts";
import { custodyOf } from "./service.ts";
import { durationOf, found, ok, warning, wrong, type Finding } from "./finding.ts";

type Network = Config["networks"][number];

export async function checkRelayers(
  { pool }: Database,
  config: Config,
  { isFirstStart = false } = {},
): Promise<Finding[]> {
  const rows = isFirstStart ? [] : await readLanes(pool);
  const kms = new Kms();
  const relayers = await readRelayers(config, kms);
  await kms.close();
  const signers = await channelSigners(config);
  const accounts: Account[] = [
    ...relayers.map(({ address }) => ({ ...RELAYER, address })),
    ...signers.map((address) => ({ ...OF_CHANNELS, address })),
  ];
  const findings = await Promise.all(
    config.networks.flatMap((network) =>
      accounts.map((account) => {
        const known = rows.find(
          (row) =>
            Number(row.chainId) === network.chainId &&
            row.address === account.address.toLowerCase(),
        );
        return checkLane(network, account, { known, isFirstStart });
      }),
    ),
  );
  return [...findings.flat(), ...(isFirstStart ? [] : await checkSigners(pool, signers))];
}

async function channelSigners(config: Config): Promise<string[]> {
  const custody = custodyOf(config);
  if (!custody) return config.channelKeys.map((key) => addressOf(key));
  try {
    return await custody.channelSigners();
  } finally {
    await custody.close();
  }
}

/** A channel names its key for good. */
async function checkSigners(
  pool: Database["pool"],
  configured: readonly string[],
): Promise<Finding[]> {
  // SQL: groups by the key.
  const { rows } = await pool.query<{ signer: string; channels: bigint }>(
    "SELECT signer, count(*) AS channels FROM channels WHERE status <> 'closed' GROUP BY signer ORDER BY signer",
  );
  return rows
    .filter(({ signer }) => !configured.includes(signer))
    .map(({ signer, channels }) =>
      wrong(
        `channels of ${signer}`,
        `${channels} are not closed, and their key is not configured: only their sellers can return what is in them`,
        "Put the key back into CHANNEL_KEYS, behind the others.",
      ),
    );
}

interface Account {
  name: string;
  address: string;
  /** What it must pay for at least, and what is so little that it may end before it is noticed. */
  leastGas: bigint;
  littleGas: bigint;
}
const RELAYER = { name: "relayer", leastGas: 170_000n, littleGas: 0n };
/** Warned of like by the alert PurserChannelGasLow. */
const OF_CHANNELS = {
  name: "channels' account",
  leastGas: WITHDRAWAL_GAS,
  littleGas: 20n * WITHDRAWAL_GAS,
};

async function readLanes(pool: Database["pool"]): Promise<(LaneRow & { chainId: bigint })[]> {
  // SQL: each lane's nonce, its pending transactions, and its cost of the last week.
  const { rows } = await pool.query<LaneRow & { chainId: bigint }>(
    `SELECT l.chain_id AS "chainId", l.address, l.next_nonce AS "nextNonce", t.pending, t.seconds AS "pendingSeconds",
            t.cost AS "gasPerDay"
       FROM relayer_lanes l, LATERAL (
         SELECT count(*) FILTER (WHERE status = 'pending') AS pending,
                extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'pending'))::float8 AS seconds,
                (coalesce(sum(gas_cost), 0) / greatest(least(7, extract(epoch FROM clock_timestamp() - min(created_at)) / 86400), 1))::float8 AS cost
           FROM relayer_transactions t
          WHERE t.chain_id = l.chain_id AND t.lane_address = l.address AND created_at > clock_timestamp() - interval '7 days') t`,
  );
  return rows;
}

interface LaneRow {
  address: string;
  nextNonce: bigint;
  pending: bigint;
  /** The age of the oldest transaction that is not in a block. */
  pendingSeconds: number | null;
  /** Over the last week, in units of core/gas.ts. */
  gasPerDay: number;
}

/** What the database knows of a lane. */
interface Records {
  known: LaneRow | undefined;
  isFirstStart: boolean;
}

/** A reserve of one day is too little to be noticed in time. */
const LASTS = { warningDays: 7, wrongDays: 1 };
const STUCK_SECONDS = 120;

/** Checks gas and nonce of one key on one chain. */
async function checkLane(
  network: Network,
  { name, address, leastGas, littleGas }: Account,
  records: Records,
): Promise<Finding[]> {
  const check = `${name} ${network.id} ${address}`;
  const { rpc } = createChainClient(network);
  try {
    return await found(
      check,
      async () => {
        const [wei, nonce, price] = await Promise.all([
          readNativeBalance(rpc, address),
          readNonce(rpc, address, "latest"),
          rpc.call<Hex>("eth_gasPrice", []).then(BigInt),
        ]);
        const balance = (Number(wei) / 1e18) * (Number(network.nativePriceAtomic) / 1e6);
        const perDay = (records.known?.gasPerDay ?? 0) / 1e18;
        const days = perDay > 0 ? balance / perDay : Number.POSITIVE_INFINITY;
        const lasts =
          perDay > 0
            ? `lasts ${durationOf(days * 86_400)} at the recent rate`
            : "not used recently";
        const says = `${(Number(wei) / 1e18).toFixed(4)} ${network.nativeSymbol}, ${lasts}`;
        const todo = `Send ${network.nativeSymbol} to ${address}.`;
        const gas =
          wei < leastGas * price * 2n || days < LASTS.wrongDays
            ? wrong(check, says, todo, "gas_low")
            : wei < littleGas * price * 2n || days < LASTS.warningDays
              ? warning(check, says, todo, "gas_low")
              : ok(check, says);
        return [gas, nonceOf(check, nonce, records)];
      },
      { todo: "See the lines about its RPC endpoints." },
    );
  } finally {
    await rpc.close();
  }
}

function nonceOf(check: string, onChain: bigint, { known, isFirstStart }: Records): Finding {
  const name = `${check} nonces`;
  if (isFirstStart && onChain > 0n)
    return warning(
      name,
      `the chain has ${onChain} transactions of this key although this database is empty`,
      "Check DATABASE_URL: the database in use may be another one. Otherwise the key was used before.",
    );
  if (!known) return ok(name, `at ${onChain}, not used by this service yet`);
  const { nextNonce, pending, pendingSeconds } = known;
  if (onChain > nextNonce)
    return wrong(
      name,
      `the chain has ${onChain - nextNonce} more transactions than this service signed`,
      "This is expected after a restore (reconciliation corrects it). Otherwise someone else signs with this key: replace it and empty the old account.",
    );
  if (pendingSeconds !== null && pendingSeconds > STUCK_SECONDS)
    return wrong(
      name,
      `${pending} in flight, the oldest for ${durationOf(pendingSeconds)}`,
      "Check that a replica is running and whether gas is above MAX_FEE_GWEI. The service sends it again with a higher fee each time.",
    );
  if (onChain + pending < nextNonce)
    return warning(
      name,
      `the chain expects ${onChain}, the service would sign ${nextNonce}, and ${pending} are in flight`,
      "A node lags, or the chain lost blocks. A running replica closes the gap.",
    );
  return ok(name, `at ${onChain}, ${pending} in flight`);
}
