/** Puts the facts of the operators' page together. What cannot be read now is null, so that an outage does not hide the rest. */
import { getAddress } from "viem";
import { costOf, formatGas, GAS_SHARES } from "../../core/gas.ts";
import type { NetworkConfig } from "../../config.ts";
import type { ReadyPart } from "../../schemas/meta.ts";
import type { OperatorLane, OperatorOverview } from "../../schemas/operators.ts";
import type { GasAccount } from "../settlement/gas-store.ts";
import type { LaneFunds } from "../settlement/index.ts";
import type { Waiting } from "../settlement/work-store.ts";
import { needsAttention } from "./attention.ts";
import type { Failing, LaneRow, ReadingRow } from "./store.ts";

type Process = {
  id: string;
  host: string;
  pid: number;
  worker: string | null;
  version: string;
  commit: string;
  startedAt: Date;
  seenAt: Date;
  gone: boolean;
};

export interface OverviewSources {
  now(): Promise<Date>;
  networks: readonly NetworkConfig[];
  relayers: readonly string[];
  parts(): Promise<Record<string, ReadyPart>>;
  lanes(): Promise<LaneRow[]>;
  funds(chainId: number): Promise<LaneFunds[]>;
  work(chainId: number): Promise<Map<string, Waiting>>;
  outstanding(chainId: number): Promise<Map<string, Waiting>>;
  gas(chainId: number, shares: readonly string[]): Promise<GasAccount[]>;
  readings(): Promise<ReadingRow[]>;
  differences(): Promise<{ chainId: number; count: number }[]>;
  head(chainId: number): bigint | undefined;
  requests(): Promise<OperatorOverview["requests"]>;
  failing(): Promise<Failing>;
  processes(): Promise<Process[]>;
  screening: OperatorOverview["screening"];
}

export async function readOverview(sources: OverviewSources): Promise<OperatorOverview> {
  const { networks } = sources;
  const [at, parts, lanes, readings, differences, requests, failing, processes, perNetwork] =
    await Promise.all([
      sources.now(),
      sources.parts(),
      sources.lanes(),
      sources.readings(),
      sources.differences(),
      sources.requests(),
      sources.failing(),
      sources.processes(),
      Promise.all(networks.map((network) => ofNetwork(network, sources))),
    ]);
  const facts = {
    at: at.toISOString(),
    parts: Object.entries(parts).map(([part, { ok, detail }]) => ({ part, ok, detail })),
    lanes: networks.flatMap((network, index) =>
      lanesOf(network, lanes, { funds: perNetwork[index]?.funds, relayers: sources.relayers }),
    ),
    waiting: perNetwork.flatMap(({ waiting }) => waiting),
    unknown: perNetwork.flatMap(({ unknown }) => unknown),
    gas: perNetwork.flatMap(({ gas }) => gas),
    reconciliation: networks.map(({ id, chainId }) => {
      const reading = readings.find((row) => row.chainId === chainId);
      const open = differences
        .filter((row) => row.chainId === chainId)
        .reduce((sum, { count }) => sum + count, 0);
      const asOfBlock = reading?.asOfBlock ?? null;
      return {
        network: id,
        proven: asOfBlock === null ? null : open === 0,
        asOfBlock: digits(asOfBlock),
        asOf: reading?.asOf?.toISOString() ?? null,
        readAt: reading?.readAt.toISOString() ?? null,
        headBlock: digits(sources.head(chainId)),
        open,
        heldUntilBlock: digits(reading?.heldUntilBlock),
      };
    }),
    requests,
    failing,
    processes: processes.map(({ startedAt, seenAt, ...process }) => ({
      id: process.id,
      host: process.host,
      pid: process.pid,
      worker: process.worker,
      version: process.version,
      commit: process.commit,
      startedAt: startedAt.toISOString(),
      seenAt: seenAt.toISOString(),
      gone: process.gone,
    })),
    screening: sources.screening,
  };
  return { ...facts, attention: needsAttention(facts) };
}

const digits = (block: bigint | null | undefined): string | null =>
  block === null || block === undefined ? null : block.toString();

/** The names that people read. */
const CLASS: Readonly<Record<string, string>> = {
  withdrawal: "withdrawals",
  agent: "agents",
  facilitated: "third parties",
};

async function ofNetwork({ id: network, chainId }: NetworkConfig, sources: OverviewSources) {
  const [work, outstanding, gas, funds] = await Promise.all([
    sources.work(chainId),
    sources.outstanding(chainId),
    sources.gas(chainId, GAS_SHARES),
    // Its nodes may not respond.
    sources.funds(chainId).catch(() => undefined),
  ]);
  const unknown = outstanding.get("unknown") ?? { count: 0, oldestSeconds: 0 };
  return {
    funds,
    waiting: [...work].map(([name, waiting]) => ({
      network,
      class: CLASS[name] ?? name,
      ...waiting,
    })),
    unknown: [{ network, ...unknown }],
    gas: gas.map(({ account, perDay, left, used }) => ({
      network,
      share: account,
      perDay: formatGas(perDay),
      left: left === 0n ? "0" : formatGas(left),
      used: formatGas(used),
    })),
  };
}

/** Those of this configuration, and those of other keys that have transactions in flight. */
function lanesOf(
  { id: network, chainId, nativePriceAtomic }: NetworkConfig,
  rows: readonly LaneRow[],
  of: { funds: readonly LaneFunds[] | undefined; relayers: readonly string[] },
): OperatorLane[] {
  const known = new Map(
    rows.filter((row) => Number(row.chainId) === chainId).map((row) => [row.address, row]),
  );
  const funds = new Map((of.funds ?? []).map((each) => [each.lane, each]));
  const configured = new Set([...of.relayers.map((each) => each.toLowerCase()), ...funds.keys()]);
  const others = [...known.values()].filter(
    ({ address, pending }) => !configured.has(address) && pending > 0,
  );
  return [...configured, ...others.map(({ address }) => address)].map((address) => {
    const row = known.get(address);
    const fund = funds.get(address);
    return {
      network,
      address: getAddress(address),
      configured: configured.has(address),
      onlyChannels: fund?.withdrawals !== undefined,
      balance: fund ? formatGas(costOf(fund.balanceWei, nativePriceAtomic)) : null,
      paysFor: fund?.payments ?? fund?.withdrawals ?? null,
      nextNonce: (row?.nextNonce ?? 0n).toString(),
      holder: row?.holder?.split(":").slice(0, -1).join(":") ?? null,
      inFlight: row?.pending ?? 0,
      oldest:
        row?.oldestNonce === null || row?.oldestNonce === undefined
          ? null
          : {
              nonce: row.oldestNonce.toString(),
              seconds: row.oldestSeconds ?? 0,
              attempts: row.attempts,
              error: row.answer === "taken" ? null : row.answer,
            },
    };
  });
}
