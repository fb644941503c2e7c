/**
 * How long the service waits where nobody configures it: leases, rounds, retries, patience. One set for each app, at
 * `config.timings`; tests pass shorter ones instead of waiting. What time it is, the database says.
 */
export interface Timings {
  /** For how long a process that holds a relayer's lane may be silent before another takes the lane. */
  laneLeaseMs: number;
  laneRenewMs: number;
  /** How often a process asks whether a lane has become free. */
  laneRetryMs: number;
  /** How long a call to the custody process may take. A payment holds its reservation meanwhile. */
  custodyAnswerMs: number;
  /** How long a custody process that restarts is waited for. */
  custodyReachMs: number;
  /** How often a chain that was away at the start is looked for. */
  chainRecheckMs: number;
  /** A queue whose workers ended starts again after this. */
  jobRestartMs: number;
  /** How often jobs are looked for that nobody announced. */
  jobPollMs: number;
  /** How often what runs by the clock is planned: well under a minute, so that what runs every minute misses none. */
  jobPlanMs: number;
  /** How long a fetch that is about to pay waits for room in memory for its answer. */
  fetchRoomMs: number;
  /** A transaction without a block is sent again after this, or after three blocks if that is longer. */
  resendAfterMs: number;
  /** A nonce is given up when the nodes have refused its transaction for this long. */
  refusedForMs: number;
  /** When nodes refuse even that, another attempt to give it up is made after this. */
  giveUpAgainMs: number;
  /** For how long no node may show a receipt for a used nonce before another's transaction is looked for. */
  missingForMs: number;
  /** For how long no node may show what payments wait for before that is an alarm. */
  unseenForMs: number;
  /** A payment that may still be used elsewhere and is refused now is tried again after this, later less often. */
  refusedRestMs: number;
  /** A payment is tried again after this when its token takes transfers and does nothing. */
  deadTokenRestMs: number;
  /** What is known of the token and of the relayers' coins is believed for this long. */
  standingFreshMs: number;
  /** What is older than this is asked along with a payment: then it is fresh as long as its payment needs. */
  standingAskAlongMs: number;
  /** What a relayer was seen to hold is believed for this long. */
  balanceFreshMs: number;
  /** A payer's approval is in a block by then, or four blocks later if that is longer; else it is not waited for. */
  approvalWaitMs: number;
  /** For how long a process that watches what others relay may be silent before another does it. */
  watchLeaseMs: number;
  watchRoundMs: number;
  /** How often new blocks are looked for while nobody waits for one. */
  idleHeadMs: number;
  /** A head that stands still for this long, or for ten blocks if that is longer, makes another endpoint be asked. */
  stuckHeadMs: number;
  /** For how long a process that reads the books may be silent before another does it. */
  booksLeaseMs: number;
  /** A start waits this long for the first look at whether the database is older than the chain. */
  booksFirstLookMs: number;
  /** The books are read with each block, but not more often than this. */
  booksRoundMs: number;
  /** The engine writes what its own transactions did: it has this long before the books do it. */
  booksOpenMs: number;
  /** Receipts and logs may be late: an absence must last this long. */
  booksAbsentMs: number;
  /** Between two looks at logs that may have come late. */
  booksLookBackMs: number;
  /** Between two looks at differences that may be over. */
  booksRecheckMs: number;
  /** Of one delivery: DNS, connection, and the last byte that is read. Its claim lasts longer (deliveries-store.ts). */
  webhookTimeoutMs: number;
  /** How often a process looks for deliveries that are due. A job for each event would be one row that all of them lock. */
  webhookLookMs: number;
  /** How often a round looks for more deliveries while some are in progress. */
  webhookRefillMs: number;
}

export const TIMINGS: Readonly<Timings> = {
  laneLeaseMs: 5_000,
  laneRenewMs: 1_200,
  laneRetryMs: 700,
  // A contract owner's chain may be asked, or a KMS.
  custodyAnswerMs: 5_000,
  custodyReachMs: 2_000,
  chainRecheckMs: 5_000,
  jobRestartMs: 5_000,
  jobPollMs: 5_000,
  jobPlanMs: 15_000,
  fetchRoomMs: 10_000,
  resendAfterMs: 1_500,
  refusedForMs: 4_000,
  giveUpAgainMs: 30_000,
  missingForMs: 4_000,
  unseenForMs: 20_000,
  refusedRestMs: 2_000,
  deadTokenRestMs: 2_000,
  standingFreshMs: 2_000,
  standingAskAlongMs: 1_000,
  balanceFreshMs: 2_000,
  approvalWaitMs: 3_000,
  watchLeaseMs: 5_000,
  watchRoundMs: 1_000,
  idleHeadMs: 4_000,
  stuckHeadMs: 4_000,
  booksLeaseMs: 30_000,
  booksFirstLookMs: 3_000,
  booksRoundMs: 1_000,
  booksOpenMs: 15_000,
  booksAbsentMs: 30_000,
  booksLookBackMs: 15_000,
  booksRecheckMs: 30_000,
  webhookTimeoutMs: 15_000,
  webhookLookMs: 500,
  webhookRefillMs: 200,
};
