/** The configured networks: facts from the table, with the environment's settings for each. */
import { type GasBudgetName, readGasBudget } from "./gas.ts";
import type { Address } from "viem";
import { parseAddress } from "./foreign-text.ts";
import { parsePayable } from "./money.ts";
import { findNetwork, type NetworkFacts } from "./networks.ts";

export const LOCAL_CHAIN_ID = 5042002;

/** Splits a comma-separated list. */
export const listed = (text: string | undefined): string[] =>
  (text ?? "")
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "");

/** A configured network: the table's facts and its endpoints. */
export interface NetworkConfig extends NetworkFacts {
  /** In order of preference. Empty only for the local chain, before local mode has started it. */
  rpcUrls: string[];
  /** WebSocket endpoints that notify of new blocks; all reads still use `rpcUrls`. */
  wsUrls: string[];
  /** Per day, in the units of core/gas.ts. */
  gasBudget: Readonly<Record<GasBudgetName, bigint>>;
  /** The price of the coin that pays for gas, in atomic USDC. */
  nativePriceAtomic: bigint;
}

/** Reads NETWORKS and the settings of each network; problems are added to `problems`. */
export function readNetworks(
  ids: readonly string[],
  environment: Record<string, string | undefined>,
  problems: string[],
): NetworkConfig[] {
  const networks: NetworkConfig[] = [];
  const readGwei = (key: string, usual: number): number => {
    const text = environment[key];
    if (text === undefined || text === "") return usual;
    if (!/^(0|[1-9][0-9]{0,6})(\.[0-9]{1,9})?$/.test(text) || Number(text) === 0)
      problems.push(`${key} must be a number of gwei above 0, with at most 9 decimals`);
    return Number(text);
  };
  for (const id of ids) {
    const facts = findNetwork(id);
    if (!facts) {
      problems.push(`NETWORKS names "${id}", which is not in the network table`);
      continue;
    }
    if (networks.some((network) => network.chainId === facts.chainId)) {
      problems.push(`NETWORKS names ${facts.id} twice`);
      continue;
    }
    const key = `RPC_URL_${facts.chainId}`;
    const urls = listed(environment[key]);
    for (const url of urls)
      if (!/^(http|ws)s?:\/\/./.test(url) || !URL.canParse(url))
        problems.push(`${key} must list http(s) URLs, and ws(s) URLs that announce new blocks`);
    const wsUrls = urls.filter((url) => url.startsWith("ws"));
    const rpcUrls = urls.filter((url) => !wsUrls.includes(url));
    if (wsUrls.length > 0 && rpcUrls.length === 0) problems.push(`${key} has no http(s) URL`);
    if (rpcUrls.length === 0 && facts.chainId !== LOCAL_CHAIN_ID)
      problems.push(`${key} is missing (an RPC endpoint of ${facts.name})`);
    const depthOf = (name: string, fallback: number): number => {
      const given = environment[`${name}_${facts.chainId}`];
      if (given !== undefined && !/^[1-9][0-9]{0,2}$/.test(given))
        problems.push(`${name}_${facts.chainId} must be a whole number from 1 to 999`);
      return given === undefined ? fallback : Number(given);
    };
    const confirmations = depthOf("CONFIRMATIONS", facts.confirmations);
    // A final payment is always reported, so this must not be deeper.
    const inclusionDepth = Math.min(
      depthOf("INCLUSION_DEPTH", facts.inclusionDepth),
      confirmations,
    );
    const maxFeeGwei = readGwei(`MAX_FEE_GWEI_${facts.chainId}`, facts.maxFeeGwei);
    const maxTipGwei = readGwei(`MAX_TIP_GWEI_${facts.chainId}`, facts.maxTipGwei);
    if (maxTipGwei > maxFeeGwei)
      problems.push(`MAX_TIP_GWEI_${facts.chainId} must not be above the fee cap (${maxFeeGwei})`);
    const approvals = environment[`PAYER_APPROVALS_${facts.chainId}`] ?? "";
    if (!["", "true", "false"].includes(approvals))
      problems.push(`PAYER_APPROVALS_${facts.chainId} must be true or false`);
    const budgetKey = `GAS_BUDGET_${facts.chainId}`;
    networks.push({
      ...facts,
      rpcUrls,
      wsUrls,
      confirmations,
      inclusionDepth,
      maxFeeGwei,
      maxTipGwei,
      sendsApprovals: approvals === "true",
      batcher: readBatcher(facts, environment, problems),
      gasBudget: readGasBudget(budgetKey, environment[budgetKey], problems),
      nativePriceAtomic: readNativePrice(facts, environment, problems),
    });
  }
  if (networks.length === 0 && problems.length === 0) problems.push("NETWORKS is empty");
  return networks;
}

/** The contract at this address is used only after its code and its response were checked. */
function readBatcher(
  facts: NetworkFacts,
  environment: Record<string, string | undefined>,
  problems: string[],
): Address | undefined {
  const key = `BATCHER_${facts.chainId}`;
  const given = environment[key];
  if (given === undefined || given === "") return facts.batcher;
  if (given === "none") return undefined;
  const parsed = parseAddress(given);
  if (!parsed.ok) problems.push(`${key} ${parsed.reason} (or none)`);
  return parsed.ok ? parsed.address : undefined;
}

/** From the operator and not from an oracle: a price that others can move would let them change our gas budgets. */
function readNativePrice(
  facts: NetworkFacts,
  environment: Record<string, string | undefined>,
  problems: string[],
): bigint {
  const key = `NATIVE_PRICE_${facts.chainId}`;
  const given = environment[key];
  const text = given === undefined || given === "" ? facts.nativePrice : given;
  if (text === undefined) {
    problems.push(`${key} is missing (USDC for one ${facts.nativeSymbol}, which pays for gas)`);
    return 0n;
  }
  const price = parsePayable(text);
  if (!price.ok) problems.push(`${key} must be USDC for one ${facts.nativeSymbol}, such as 3000`);
  return price.ok ? price.atomic : 0n;
}
