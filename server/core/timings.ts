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
};
