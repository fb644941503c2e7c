/**
 * Default durations: leases, intervals, retries, timeouts. One set for each app, at `config.timings`; tests pass
 * shorter ones instead of waiting. The time of day comes from the database.
 */
export interface Timings {
  /** How long the process that holds a relayer's lane may be silent before another one takes the lane. */
  laneLeaseMs: number;
  laneRenewMs: number;
  /** How often a process checks whether a lane has become free. */
  laneRetryMs: number;
  /** How often a lane looks for work that nobody announced. */
  laneLookMs: number;
  /** Timeout of a call to the custody process. A payment holds its reservation meanwhile. */
  custodyAnswerMs: number;
  /** How long to wait for a custody process that restarts. */
  custodyReachMs: number;
  /** How long a data key that the KMS opened may be used. */
  kmsCacheMs: number;
  /** The time limit for a request to arrive completely, and for a response to be read. */
  requestTimeoutMs: number;
  /** How often to retry a chain that was unreachable at the start. */
  chainRecheckMs: number;
  /** After its workers ended, a queue restarts after this. */
  jobRestartMs: number;
  /** How often to look for jobs without a notification. */
  jobPollMs: number;
  /** How often scheduled jobs are planned: well under a minute, so that a job that runs every minute misses none. */
  jobPlanMs: number;
  /** How long a fetch that is about to pay waits for memory for the response. */
  fetchRoomMs: number;
  /** How long the validator waits for each answer of a paid API. */
  validateMs: number;
  /** A transaction that is not in a block is sent again after this, or after three blocks if that is longer. */
  resendAfterMs: number;
  /** A nonce is given up after the nodes have refused its transaction for this long. */
  refusedForMs: number;
  /** If the nodes refuse that as well, it is tried again after this. */
  giveUpAgainMs: number;
  /** How long the receipt of a used nonce may be missing on all nodes before a replacement transaction is searched. */
  missingForMs: number;
  /** How long a transaction may be missing on all nodes before that raises an alarm. */
  unseenForMs: number;
  /** A refused payment that may still be used elsewhere is retried after this, later less often. */
  refusedRestMs: number;
  /** A payment is retried after this if its token accepts transfers but does nothing. */
  deadTokenRestMs: number;
  /** How long the status of the token and the relayers' balances may be used. */
  chainStatusFreshMs: number;
  /** How long a relayer's balance may be used. */
  balanceFreshMs: number;
  /** How long to wait for the block of a payer's approval, or four blocks if that is longer. */
  approvalWaitMs: number;
  /** How long the process that watches transactions relayed by others may be silent before another one takes over. */
  watchLeaseMs: number;
  watchRoundMs: number;
  /** How often to poll for new blocks while nothing waits for one. */
  idleHeadMs: number;
  /** If the head does not change for this long, or for ten blocks if that is longer, another endpoint is tried. */
  stuckHeadMs: number;
  /** How long the process that reconciles may be silent before another one takes over. */
  reconcileLeaseMs: number;
  /** How long a start waits for the first check of whether the database is older than the chain. */
  reconcileFirstMs: number;
  /** Reconciliation reads with each block, but not more often than this. */
  reconcileRoundMs: number;
  /** How long the engine has to write the outcomes of its own transactions before reconciliation does it. */
  reconcileOpenMs: number;
  /** Receipts and logs may be late, so an absence must last this long. */
  reconcileAbsentMs: number;
  /** How long database and chain must agree on a relayer's nonce before its alarm ends: long enough to be noticed. */
  reconcileAgreedMs: number;
  /** The interval between two reads of logs that may have arrived late. */
  reconcileLookBackMs: number;
  /** The interval between two checks of open differences. */
  reconcileRecheckMs: number;
  /** The interval between two batches of payment channels that are compared with a chain. */
  reconcileChannelsMs: number;
  /**
   * Timeout of one delivery: DNS, connection, and the last byte that is read. Its claim lasts longer
   * (deliveries-store.ts).
   */
  webhookTimeoutMs: number;
  /** How often a process looks for due deliveries. A job per event would be one row that all of them lock. */
  webhookLookMs: number;
  /** How often a round looks for more deliveries while some are in progress. */
  webhookRefillMs: number;
  /** How often the news of another cell are read. */
  cellNewsMs: number;
  /** How often a changed list of screened addresses is looked for. */
  screeningLookMs: number;
  /** The time limit for an answer of the operator's screening service. */
  screeningAnswerMs: number;
  /** How long such an answer is used again. */
  screeningFreshMs: number;
  /** The longest that a search or a sum over an owner's payments may take. */
  searchMs: number;
}

export const TIMINGS: Readonly<Timings> = {
  laneLeaseMs: 5_000,
  laneRenewMs: 1_200,
  laneRetryMs: 700,
  laneLookMs: 1_000,
  // A call to a contract owner's chain, or to a KMS, may be part of it.
  custodyAnswerMs: 5_000,
  custodyReachMs: 2_000,
  kmsCacheMs: 60_000,
  requestTimeoutMs: 30_000,
  chainRecheckMs: 5_000,
  jobRestartMs: 5_000,
  jobPollMs: 5_000,
  jobPlanMs: 15_000,
  fetchRoomMs: 10_000,
  validateMs: 6_000,
  resendAfterMs: 1_500,
  refusedForMs: 4_000,
  giveUpAgainMs: 30_000,
  missingForMs: 4_000,
  unseenForMs: 20_000,
  refusedRestMs: 2_000,
  deadTokenRestMs: 2_000,
  chainStatusFreshMs: 2_000,
  balanceFreshMs: 2_000,
  approvalWaitMs: 3_000,
  watchLeaseMs: 5_000,
  watchRoundMs: 1_000,
  idleHeadMs: 4_000,
  stuckHeadMs: 4_000,
  reconcileLeaseMs: 30_000,
  reconcileFirstMs: 3_000,
  reconcileRoundMs: 1_000,
  reconcileOpenMs: 15_000,
  reconcileAbsentMs: 30_000,
  reconcileAgreedMs: 600_000,
  reconcileLookBackMs: 15_000,
  reconcileRecheckMs: 30_000,
  reconcileChannelsMs: 10_000,
  webhookTimeoutMs: 15_000,
  webhookLookMs: 500,
  webhookRefillMs: 200,
  cellNewsMs: 2_000,
  screeningLookMs: 5_000,
  screeningAnswerMs: 2_000,
  screeningFreshMs: 60_000,
  // Less than the timeout of every other statement, so that this one has its own answer.
  searchMs: 4_000,
};
