// What the service itself reports at the end: agents' limits, owners' overviews, readiness.
import { isOpen, check, type ChainLog, type Check, type Rows } from "./reconciliation.ts";
import { atomic, callOnce, type SoakContext } from "./clients.ts";

/** How far the service's reconciliation may be behind the newest block. */
const BEHIND_AT_MOST = 30n;
/** There is no load any more, so a response must arrive within this time. */
const ASKED_MS = 5_000;

export async function checkServiceReports(
  context: SoakContext,
  chainLog: ChainLog,
  rows: Rows,
): Promise<Check[]> {
  const { world, agents } = context;
  const meters: string[] = [];
  for (const [index, agent] of agents.entries()) {
    const { url } = world.replicas[index % world.replicas.length] ?? { url: "" };
    const me = await callOnce(`${url}/api/agents/me`, {
      method: "GET",
      timeoutMs: ASKED_MS,
      headers: { authorization: `Bearer ${agent.apiKey}` },
    });
    const limits = me?.body["limits"] as { spent: string; reserved: string } | undefined;
    if (!limits) {
      meters.push(`${agent.id} does not get its limits: ${me?.status}`);
      continue;
    }
    const own = rows.payments.filter(
      (row) => row.agent_id === agent.id && (row.kind === "spend" || row.kind === "x402"),
    );
    // A withdrawal leaves the wallet too, but does not count as spent.
    const withdrawn = new Set<string | null>(
      rows.payments.filter(({ kind }) => kind === "withdrawal").map(({ nonce }) => nonce),
    );
    const spent = chainLog.moves
      .filter(({ from, nonce }) => from === agent.wallet.toLowerCase() && !withdrawn.has(nonce))
      .reduce((total, { amountAtomic }) => total + amountAtomic, 0n);
    const reserved = own.filter(isOpen).reduce((total, row) => total + BigInt(row.amount), 0n);
    if (atomic(limits.spent) !== spent || atomic(limits.reserved) !== reserved)
      meters.push(
        `${agent.id} reports ${limits.spent} spent, ${limits.reserved} reserved; it is ${spent} and ${reserved}`,
      );
  }
  const ready: string[] = [];
  for (const { url, index } of world.replicas) {
    const answer = await callOnce(`${url}/api/ready`, { method: "GET", timeoutMs: ASKED_MS });
    if (answer?.status !== 200)
      ready.push(`replica ${index}: ${answer?.status} ${JSON.stringify(answer?.body["parts"])}`);
  }
  return [
    check("what agents see as spent", agents.length, meters),
    check("replicas ready in the end", world.replicas.length, ready),
    ...(await checkReconciler(context)),
  ];
}

interface ReportedLedger {
  equalsChain: boolean;
  asOfBlock: number | string;
}

/**
 * Checks the `ledger: {equalsChain, asOfBlock}` of each network in `GET /api/overview`, where the service
 * reports its own reconciliation.
 */
async function checkReconciler({ world, agents }: SoakContext): Promise<Check[]> {
  const [replica] = world.replicas;
  if (!replica) return [];
  const reported: ReportedLedger[] = [];
  // Each owner's overview contains the differences of that owner's agents.
  for (const { cookie } of new Set(agents.map(({ owner }) => owner))) {
    const answer = await callOnce(`${replica.url}/api/overview`, {
      method: "GET",
      timeoutMs: ASKED_MS,
      headers: { cookie },
    });
    const ledger = answer?.body["ledger"];
    if (ledger !== undefined) reported.push(...ledgersOf(ledger));
  }
  const head = await world.chain.publicClient.getBlockNumber({ cacheTime: 0 });
  const wrong = reported.filter(
    ({ equalsChain, asOfBlock }) => !equalsChain || BigInt(asOfBlock) < head - BEHIND_AT_MOST,
  );
  return [
    check(
      "overviews show: ledger equals chain",
      reported.length,
      wrong.map((one) => `at head ${head}: ${JSON.stringify(one)}`),
    ),
  ];
}

/** Accepts one network's object, a list of them, or an object by network. */
function ledgersOf(ledger: unknown): ReportedLedger[] {
  if (Array.isArray(ledger)) return ledger as ReportedLedger[];
  const one = ledger as Record<string, unknown>;
  return "equalsChain" in one
    ? [ledger as ReportedLedger]
    : (Object.values(one) as ReportedLedger[]);
}
