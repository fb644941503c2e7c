/**
 * What needs a person, the urgent first, each with the page of its runbook. The marks are those of the alerts in
 * ops/prometheus/rules.yaml.
 */
import type { OperatorAttention, OperatorOverview } from "../../schemas/operators.ts";

type Facts = Omit<OperatorOverview, "attention">;
type Problem = OperatorAttention & { level: "now" | "soon" };

const GAS_OUT = 100;
const GAS_LOW = 5_000;
const CHANNEL_GAS_LOW = 20;
const STUCK_TRANSACTION_SECONDS = 120;
const WORK_WAITS_SECONDS = 60;
const WORK_STUCK_SECONDS = 300;
const UNKNOWN_SECONDS = 900;
const READING_LATE_MS = 10 * 60_000;
const SHARE_LOW = 0.2;
const WITHDRAWALS_SHARE_LOW = 0.5;

const alert = (name: string): string => `operations/alerts/${name}`;

export function needsAttention(facts: Facts): OperatorAttention[] {
  const problems = [
    ...ofParts(facts),
    ...facts.lanes.flatMap(ofLane),
    ...ofWork(facts),
    ...ofReconciliation(facts),
    ...ofGas(facts),
    ...ofScreening(facts),
    ...ofReports(facts),
    ...ofProcesses(facts),
  ];
  return [
    ...problems.filter(({ level }) => level === "now"),
    ...problems.filter(({ level }) => level === "soon"),
  ];
}

const PARTS: readonly [prefix: string, runbook: string][] = [
  ["relayer:", alert("PurserGasOut")],
  ["chain:", alert("PurserRpcGone")],
  ["migrations", "operations/upgrade-and-rollback"],
  ["", "operations/outages"],
];

function ofParts({ parts }: Facts): Problem[] {
  return parts
    .filter(({ ok }) => !ok)
    .map(({ part, detail }) => ({
      level: "now",
      network: part.includes(":eip155:") ? part.slice(part.indexOf(":") + 1) : null,
      problem: `${part} is not ready: ${detail}.`.replace(/\.\.$/, "."),
      runbook: PARTS.find(([prefix]) => part.startsWith(prefix))?.[1] ?? "operations/outages",
    }));
}

function ofLane(lane: Facts["lanes"][number]): Problem[] {
  const { network, address, oldest, holder, paysFor, inFlight } = lane;
  const found: Problem[] = [];
  const add = (level: Problem["level"], problem: string, name: string): void =>
    void found.push({ level, network, problem, runbook: alert(name) });
  if (oldest && oldest.seconds > STUCK_TRANSACTION_SECONDS) {
    const error = oldest.error === null ? "" : ` The node's last answer: ${oldest.error}.`;
    add(
      "now",
      `Transaction ${oldest.nonce} of ${address} is in no block after ${spanOf(oldest.seconds)}.${error}`,
      "PurserWorkStuck",
    );
  }
  if (holder === null && (lane.configured || inFlight > 0))
    add("now", `No process sends for the relayer ${address}.`, "PurserLaneUnheld");
  if (lane.configured && paysFor !== null) {
    const what = lane.onlyChannels
      ? counted(paysFor, "more withdrawal from channels", "more withdrawals from channels")
      : counted(paysFor, "more payment", "more payments");
    const says = `${address} can pay the gas of ${what}.`;
    if (lane.onlyChannels) {
      if (paysFor < CHANNEL_GAS_LOW) add("soon", says, "PurserChannelGasLow");
    } else if (paysFor < GAS_OUT) add("now", says, "PurserGasOut");
    else if (paysFor < GAS_LOW) add("soon", says, "PurserGasLow");
  }
  return found;
}

const counted = (count: number, one: string, many: string): string =>
  `${count} ${count === 1 ? one : many}`;

/** What waits, by its class. */
const WORK: Readonly<Record<string, [one: string, many: string]>> = {
  agents: ["payment of an agent waits", "payments of agents wait"],
  withdrawals: ["withdrawal waits", "withdrawals wait"],
  "third parties": ["payment of a third party waits", "payments of third parties wait"],
};

function ofWork({ waiting, unknown }: Facts): Problem[] {
  const late = waiting.filter(({ oldestSeconds }) => oldestSeconds > WORK_WAITS_SECONDS);
  const open = unknown.filter(({ oldestSeconds }) => oldestSeconds > UNKNOWN_SECONDS);
  return [
    ...late.map(({ network, class: name, count, oldestSeconds }): Problem => {
      const isStuck = oldestSeconds > WORK_STUCK_SECONDS;
      return {
        level: isStuck ? "now" : "soon",
        network,
        problem: `${counted(count, ...(WORK[name] ?? [`${name} waits`, `${name} wait`]))}, the oldest for ${spanOf(oldestSeconds)}.`,
        runbook: alert(isStuck ? "PurserWorkStuck" : "PurserWorkWaits"),
      };
    }),
    ...open.map(({ network, count, oldestSeconds }): Problem => ({
      level: "now",
      network,
      problem: `The outcome of ${counted(count, "payment of an agent", "payments of agents")} is not known, of the oldest for ${spanOf(oldestSeconds)}.`,
      runbook: alert("PurserPaymentsUnknown"),
    })),
  ];
}

function ofReconciliation({ at, reconciliation }: Facts): Problem[] {
  return reconciliation.flatMap(({ network, open, heldUntilBlock, readAt }) => {
    const found: Problem[] = [];
    if (open > 0)
      found.push({
        level: "now",
        network,
        problem: `The ledger and the chain differ in ${open} ${open === 1 ? "place" : "places"}.`,
        runbook: "operations/differences",
      });
    if (heldUntilBlock !== null)
      found.push({
        level: "now",
        network,
        problem: `Agents do not pay until the chain is compared up to block ${heldUntilBlock}: this database may lack payments.`,
        runbook: "operations/restore",
      });
    if (readAt !== null && Date.parse(at) - Date.parse(readAt) > READING_LATE_MS)
      found.push({
        level: "now",
        network,
        problem: `The chain was last compared with the ledger at ${readAt}.`,
        runbook: alert("PurserLedgerStandsStill"),
      });
    return found;
  });
}

function ofGas({ gas }: Facts): Problem[] {
  return gas
    .filter(({ share, left, perDay }) => {
      const mark = share === "withdrawals" ? WITHDRAWALS_SHARE_LOW : SHARE_LOW;
      return Number(perDay) > 0 && Number(left) < Number(perDay) * mark;
    })
    .map(({ network, share, left, perDay }) => ({
      level: Number(left) === 0 ? "now" : "soon",
      network,
      problem: `Of today's gas budget for ${share}, ${left} of ${perDay} USDC are left.`,
      runbook: alert("PurserGasShareLow"),
    }));
}

function ofScreening({ screening }: Facts): Problem[] {
  const { listAgeSeconds = null, maxAgeSeconds = null } = screening ?? {};
  if (listAgeSeconds === null || maxAgeSeconds === null || listAgeSeconds <= maxAgeSeconds)
    return [];
  return [
    {
      level: "now",
      network: null,
      problem: `The list of screened addresses is ${spanOf(listAgeSeconds)} old.`,
      runbook: "how-to/screen-addresses",
    },
  ];
}

function ofReports({ failing }: Facts): Problem[] {
  const found: Problem[] = [];
  const add = (count: number, problem: string, name: string): void => {
    if (count > 0) found.push({ level: "soon", network: null, problem, runbook: alert(name) });
  };
  const jobs = counted(failing.jobs, "background job", "background jobs");
  add(failing.jobs, `${jobs} failed for good.`, "PurserJobsGivenUp");
  const mails = counted(
    failing.mail,
    "e-mail was refused and waits",
    "e-mails were refused and wait",
  );
  add(failing.mail, `${mails}.`, "PurserMailsGivenUp");
  // A webhook or device that fails is its owner's to repair.
  return found;
}

function ofProcesses({ processes }: Facts): Problem[] {
  const alive = processes.filter(({ gone }) => !gone);
  const builds = new Set(alive.map(({ version, commit }) => `${version} (${commit})`));
  if (builds.size < 2) return [];
  return [
    {
      level: "soon",
      network: null,
      problem: `${builds.size} builds run: ${[...builds].join(", ")}.`,
      runbook: alert("PurserVersionsDiffer"),
    },
  ];
}

function spanOf(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} seconds`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} minutes`;
  return seconds < 172_800
    ? `${Math.round(seconds / 3_600)} hours`
    : `${Math.round(seconds / 86_400)} days`;
}
