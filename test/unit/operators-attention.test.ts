// Goal: what needs a person is named with its runbook and nothing else is; a page that cries wolf is not read.
import { existsSync } from "node:fs";
import t from "tap";
import { needsAttention } from "../../server/plugins/operators/attention.ts";
import type { OperatorOverview } from "../../server/schemas/operators.ts";

type Facts = Omit<OperatorOverview, "attention">;

const NETWORK = "eip155:5042002";
const AT = "2026-11-27T12:00:00.000Z";
const lane: Facts["lanes"][number] = {
  network: NETWORK,
  address: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  configured: true,
  onlyChannels: false,
  balance: "100",
  paysFor: 9_000,
  nextNonce: "7",
  holder: "a:1",
  inFlight: 0,
  oldest: null,
};
const reading: Facts["reconciliation"][number] = {
  network: NETWORK,
  proven: true,
  asOfBlock: "9",
  asOf: AT,
  readAt: AT,
  headBlock: "10",
  open: 0,
  heldUntilBlock: null,
};
const run: Facts["processes"][number] = {
  id: "prc_1",
  host: "a",
  pid: 1,
  worker: null,
  version: "1.0.0",
  commit: "a",
  startedAt: AT,
  seenAt: AT,
  gone: false,
};
const WELL: Facts = {
  at: AT,
  parts: [{ part: "database", ok: true, detail: "answers" }],
  lanes: [lane],
  waiting: [{ network: NETWORK, class: "agents", count: 3, oldestSeconds: 59 }],
  unknown: [{ network: NETWORK, count: 1, oldestSeconds: 800 }],
  gas: [
    { network: NETWORK, share: "agents", perDay: "100", left: "20", used: "5" },
    { network: NETWORK, share: "withdrawals", perDay: "50", left: "25", used: "5" },
    { network: NETWORK, share: "merchants", perDay: "0", left: "0", used: "0" },
  ],
  reconciliation: [reading],
  requests: [],
  failing: { webhooks: 9, mail: 0, devices: 9, jobs: 0 },
  processes: [run, { ...run, id: "prc_2" }, { ...run, id: "prc_3", commit: "old", gone: true }],
  screening: { listAgeSeconds: 3_600, maxAgeSeconds: 3_600 },
};

t.test("all well", async (t) => {
  t.same(needsAttention(WELL), []);
  const { lanes: _lanes, ...rest } = WELL;
  t.same(needsAttention({ ...rest, lanes: [{ ...lane, balance: null, paysFor: null }] }), []);
});

const CASES: [name: string, change: Partial<Facts>, level: "now" | "soon", runbook: RegExp][] = [
  [
    "a part is not ready",
    { parts: [{ part: `chain:${NETWORK}`, ok: false, detail: "not reachable" }] },
    "now",
    /PurserRpcGone/,
  ],
  ["gas is out", { lanes: [{ ...lane, paysFor: 99 }] }, "now", /PurserGasOut/],
  ["gas is low", { lanes: [{ ...lane, paysFor: 4_999 }] }, "soon", /PurserGasLow/],
  [
    "gas for channels is low",
    { lanes: [{ ...lane, onlyChannels: true, paysFor: 19 }] },
    "soon",
    /PurserChannelGasLow/,
  ],
  ["nobody sends", { lanes: [{ ...lane, holder: null }] }, "now", /PurserLaneUnheld/],
  [
    "a transaction is stuck",
    { lanes: [{ ...lane, oldest: { nonce: "6", seconds: 121, attempts: 3, error: "refused" } }] },
    "now",
    /PurserWorkStuck/,
  ],
  [
    "work waits",
    { waiting: [{ network: NETWORK, class: "agents", count: 1, oldestSeconds: 61 }] },
    "soon",
    /PurserWorkWaits/,
  ],
  [
    "work is stuck",
    { waiting: [{ network: NETWORK, class: "withdrawals", count: 2, oldestSeconds: 301 }] },
    "now",
    /PurserWorkStuck/,
  ],
  [
    "an outcome is not known",
    { unknown: [{ network: NETWORK, count: 1, oldestSeconds: 901 }] },
    "now",
    /PurserPaymentsUnknown/,
  ],
  [
    "ledger and chain differ",
    { reconciliation: [{ ...reading, open: 1, proven: false }] },
    "now",
    /differences/,
  ],
  [
    "payments are held",
    { reconciliation: [{ ...reading, heldUntilBlock: "12" }] },
    "now",
    /restore/,
  ],
  [
    "the chain is not compared",
    { reconciliation: [{ ...reading, readAt: "2026-11-27T11:49:00.000Z" }] },
    "now",
    /PurserLedgerStandsStill/,
  ],
  [
    "a share is used up",
    { gas: [{ network: NETWORK, share: "agents", perDay: "100", left: "0", used: "5" }] },
    "now",
    /PurserGasShareLow/,
  ],
  [
    "the share of withdrawals is half used",
    { gas: [{ network: NETWORK, share: "withdrawals", perDay: "50", left: "24", used: "5" }] },
    "soon",
    /PurserGasShareLow/,
  ],
  [
    "the list is too old",
    { screening: { listAgeSeconds: 3_601, maxAgeSeconds: 3_600 } },
    "now",
    /screen-addresses/,
  ],
  [
    "jobs failed for good",
    { failing: { webhooks: 0, mail: 0, devices: 0, jobs: 1 } },
    "soon",
    /PurserJobsGivenUp/,
  ],
  [
    "mail is refused",
    { failing: { webhooks: 0, mail: 1, devices: 0, jobs: 0 } },
    "soon",
    /PurserMailsGivenUp/,
  ],
  [
    "two builds run",
    { processes: [run, { ...run, id: "prc_2", commit: "b" }] },
    "soon",
    /PurserVersionsDiffer/,
  ],
];

for (const [name, change, level, runbook] of CASES)
  t.test(name, async (t) => {
    const found = needsAttention({ ...WELL, ...change });
    t.match(found, [{ level, runbook }]);
    t.equal(found.length, 1);
    for (const each of found)
      t.ok(
        existsSync(new URL(`../../docs/${each.runbook}.md`, import.meta.url)),
        `${each.runbook} is a page`,
      );
  });

t.test("what is urgent comes first", async (t) => {
  const found = needsAttention({
    ...WELL,
    lanes: [{ ...lane, paysFor: 4_000 }],
    reconciliation: [{ ...reading, open: 2, proven: false }],
  });
  t.same(
    found.map(({ level }) => level),
    ["now", "soon"],
  );
});

t.test("one of anything is no plural", async (t) => {
  const one = { network: NETWORK, count: 1, oldestSeconds: 901 };
  const problems = (count: number) =>
    needsAttention({
      ...WELL,
      waiting: ["agents", "withdrawals", "third parties"].map((each) => ({
        ...one,
        class: each,
        count,
      })),
      unknown: [{ ...one, count }],
      failing: { webhooks: 0, devices: 0, mail: count, jobs: count },
    }).map(({ problem }) => problem.replace(/(,| is not| failed).*|\.$/, ""));
  t.same(problems(1).toSorted(), [
    "1 background job",
    "1 e-mail was refused and waits",
    "1 payment of a third party waits",
    "1 payment of an agent waits",
    "1 withdrawal waits",
    "The outcome of 1 payment of an agent",
  ]);
  t.same(problems(2).toSorted(), [
    "2 background jobs",
    "2 e-mails were refused and wait",
    "2 payments of agents wait",
    "2 payments of third parties wait",
    "2 withdrawals wait",
    "The outcome of 2 payments of agents",
  ]);
});
