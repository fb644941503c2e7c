/**
 * Balances of wallets on all networks: an address is the same on every network, so money may have arrived on any of
 * them.
 */
import { setTimeout as delay } from "node:timers/promises";
import { getAddress, type Address } from "viem";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { uintOf } from "../../core/abi.ts";
import { readMany } from "../../infra/chain/contracts.ts";
import type { ChainClient } from "../../infra/chain/index.ts";
import type { WalletFacts } from "../guardrails/available.ts";
import type { WalletQuery } from "../guardrails/store.ts";
import type { AgentDetail, NetworkBalance as WireBalance } from "../../schemas/agents.ts";
import type { AgentRow } from "./store.ts";
import { allowanceCall, SPENDERS } from "../../schemes/index.ts";

interface NetworkBalance {
  network: NetworkFacts;
  /** The balance and its block; undefined if the chain does not respond. */
  held: { atomic: bigint; blockNumber: bigint } | undefined;
}

/** One wallet's balances, one for each configured network in their order. */
export type WalletBalances = readonly NetworkBalance[];

/** By wallet in lower case; a chain that is down or slow hides only its own balances. */
export type ReadAllBalances = (wallets: readonly Address[]) => Promise<Map<string, WalletBalances>>;

/** How long to wait for a chain; after that, its balance is unknown. */
const WAIT_MS = 2_000;

const inTime = <T>(answer: Promise<T>): Promise<T | undefined> =>
  Promise.race([answer.catch(() => undefined), delay(WAIT_MS, undefined, { ref: false })]);

export function readAllBalances(
  networks: readonly NetworkFacts[],
  read: (
    chainId: number,
    wallets: readonly Address[],
  ) => Promise<{ blockNumber: bigint; balances: Map<string, bigint> }>,
): ReadAllBalances {
  return async (wallets) => {
    const addresses = wallets.map((wallet) => wallet.toLowerCase() as Address);
    if (addresses.length === 0) return new Map();
    const answers = await Promise.all(
      networks.map(async (network) => ({
        network,
        answer: await inTime(read(network.chainId, addresses)),
      })),
    );
    return new Map(
      addresses.map((wallet) => [
        wallet,
        answers.map(({ network, answer }) => ({
          network,
          held: answer && {
            atomic: answer.balances.get(wallet) ?? 0n,
            blockNumber: answer.blockNumber,
          },
        })),
      ]),
    );
  };
}

/** An agent's own network is used for its payments unless they name another one. */
type AgentWallet = Pick<AgentRow, "id" | "network" | "walletAddress">;

export interface Wallets {
  balances: Map<string, WalletBalances>;
  /** By agent, for the wallet on the agent's own network; missing if that chain does not respond. */
  facts: Map<string, WalletFacts>;
}

export type ReadWallets = (agents: readonly AgentWallet[]) => Promise<Wallets>;

/** Balances, and the facts about each wallet that the rules use. */
export function readWalletsBy(deps: {
  networks: readonly NetworkFacts[];
  balances: ReadAllBalances;
  gasHold(chainId: number): Promise<bigint>;
  facts(queries: readonly WalletQuery[]): Promise<Map<string, WalletFacts>>;
}): ReadWallets {
  return async (agents) => {
    const [balances, holds] = await Promise.all([
      deps.balances(agents.map(({ walletAddress }) => walletAddress)),
      Promise.all(
        deps.networks.map(
          async ({ id, chainId }) => [id, await inTime(deps.gasHold(chainId))] as const,
        ),
      ).then((each) => new Map<string, bigint | undefined>(each)),
    ]);
    const queries = agents.flatMap((agent): WalletQuery[] => {
      const place = balances
        .get(agent.walletAddress)
        ?.find(({ network }) => network.id === agent.network);
      const gasHold = holds.get(agent.network);
      if (place?.held === undefined || gasHold === undefined) return [];
      const { chainId, usdc } = place.network;
      return [{ agentId: agent.id, chainId, asset: usdc.address, balance: place.held, gasHold }];
    });
    return { balances, facts: await deps.facts(queries) };
  };
}

/** The allowances of contracts for a wallet, without those of zero. */
export async function readAllowances(
  chains: readonly ChainClient[],
  wallet: Address,
): Promise<AgentDetail["allowances"]> {
  const each = await Promise.all(
    chains.map(async ({ network, rpc }) => {
      const calls = SPENDERS.map((spender) => allowanceCall(network.usdc.address, wallet, spender));
      const answers = await inTime(readMany(rpc, calls, "latest"));
      return SPENDERS.flatMap((spender, index) => {
        const atomic = uintOf(answers?.[index]);
        if (answers && (atomic ?? 0n) === 0n) return [];
        const amount = atomic === undefined ? null : formatAtomic(atomic);
        return [{ network: network.id, spender, amount }];
      });
    }),
  );
  return each.flat();
}

export const balanceOn = (
  balances: WalletBalances | undefined,
  networkId: string,
): NetworkBalance["held"] => balances?.find(({ network }) => network.id === networkId)?.held;

export const balancesOnWire = (balances: WalletBalances | undefined): WireBalance[] =>
  (balances ?? []).map(({ network, held }) => ({
    network: network.id,
    asset: getAddress(network.usdc.address),
    balance: held === undefined ? null : formatAtomic(held.atomic),
  }));

/** Throws `chain_unavailable` if a network did not respond: money there could be stranded. */
export function assertAllKnown(
  balances: WalletBalances,
): { network: NetworkFacts; atomic: bigint; blockNumber: bigint }[] {
  const silent = balances.filter(({ held }) => held === undefined);
  if (silent.length > 0)
    throw new ApiError("chain_unavailable", {
      detail: `${silent.map(({ network }) => network.name).join(" and ")} cannot be read right now, so the wallet's balance there is unknown.`,
      extra: { networks: silent.map(({ network }) => network.id) },
    });
  return balances.flatMap(({ network, held }) => (held ? { network, ...held } : []));
}
