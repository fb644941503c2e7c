/** The doctor's checks of one network: each RPC endpoint by itself, and all of them together. */
import { WebSocket } from "undici";
import type { Hex } from "viem";
import type { Config } from "../config.ts";
import { BATCHER_ADDRESS } from "../core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../core/networks.ts";
import { readBatcher } from "../infra/chain/batcher/read.ts";
import { checkTokenDomain, readHeader } from "../infra/chain/contracts.ts";
import { ChainRpc } from "../infra/chain/rpc.ts";
import { createChainClient } from "../infra/chain/index.ts";
import { SCHEMES } from "../schemes/index.ts";
import { durationOf, found, ok, warning, wrong, type Finding } from "./finding.ts";

type Network = Config["networks"][number];

interface Endpoint {
  name: string;
  rpc: ChainRpc;
  network: Network;
}

interface Head {
  name: string;
  rpc: ChainRpc;
  number: bigint;
  timestampSeconds: number;
}

/** The range of blocks that reconciliation reads at once. */
const SPAN = 2_000n;
const LAG = { warningSeconds: 15, wrongSeconds: 60 };
const OLD = 100_000n;
const NOTIFICATION_WITHIN_MS = 15_000;

export async function checkChain(network: Network): Promise<Finding[]> {
  // Named by host only: the rest of a URL may contain a key.
  const endpoints = network.rpcUrls.map((url, index) => ({
    name: `rpc ${network.id} #${index + 1} (${new URL(url).host})`,
    rpc: new ChainRpc({ urls: [url] }),
    network,
  }));
  try {
    const each = await Promise.all(endpoints.map((endpoint) => checkEndpoint(endpoint)));
    const heads = each.flatMap(({ head }) => head ?? []);
    const announcements = network.wsUrls.map((url, index) =>
      checkAnnouncements(network, url, index),
    );
    return [
      ...each.flatMap(({ findings }) => findings),
      ...(await together(network, heads)),
      ...(await Promise.all(announcements)),
    ];
  } finally {
    await Promise.all(endpoints.map(({ rpc }) => rpc.close()));
  }
}

async function checkEndpoint(
  endpoint: Endpoint,
): Promise<{ findings: Finding[]; head: Head | undefined }> {
  const { name, rpc, network } = endpoint;
  let head: Head | undefined;
  const findings = await found(
    name,
    async () => {
      const chainId = Number(await rpc.call<Hex>("eth_chainId", []));
      if (chainId !== network.chainId)
        return wrong(
          name,
          `serves chain ${chainId}, not ${network.chainId}`,
          `Remove it from RPC_URL_${network.chainId}.`,
          "rpc_chain_id",
        );
      const block = await rpc.call<{ number: Hex; timestamp: Hex }>("eth_getBlockByNumber", [
        "latest",
        false,
      ]);
      const number = BigInt(block.number);
      head = { name, rpc, number, timestampSeconds: Number(block.timestamp) };
      return [
        ok(name, `responds, at block ${number}`),
        ...(await tokenOf(endpoint)),
        ...(await contractsAt(endpoint)),
        ...(await batcherAt(endpoint)),
        ...(await logsAt(endpoint, number)),
      ];
    },
    {
      todo: `Check that the provider is running and that its key in RPC_URL_${network.chainId} is right.`,
    },
  );
  return { findings, head };
}

async function tokenOf({ name, rpc, network }: Endpoint): Promise<Finding[]> {
  const client = createChainClient(network);
  try {
    const result = await checkTokenDomain({ ...client, rpc });
    const check = `${name} token`;
    if (result.ok) return [ok(check, "matches: DOMAIN_SEPARATOR is as expected")];
    const says =
      result.actual === undefined
        ? `there is no USDC at ${network.usdc.address}`
        : `DOMAIN_SEPARATOR is ${result.actual}, expected ${result.expected}`;
    return [
      wrong(
        check,
        says,
        "No payment would work. Check whether the endpoint serves a different chain or a fork.",
      ),
    ];
  } finally {
    await client.rpc.close();
  }
}

async function contractsAt({ name, rpc }: Endpoint): Promise<Finding[]> {
  const check = `${name} contracts`;
  const isThere = async (address: string): Promise<boolean> =>
    (await rpc.call<Hex>("eth_getCode", [address, "latest"])).length > 2;
  if (!(await isThere(MULTICALL3_ADDRESS)))
    return [
      wrong(
        check,
        `Multicall3 is not at ${MULTICALL3_ADDRESS}`,
        "Payments cannot share a transaction, and balances cannot share a call. Deploy it there.",
      ),
    ];
  const wanted = Object.assign({}, ...SCHEMES.map(({ contracts }) => contracts)) as Record<
    string,
    `0x${string}`
  >;
  const missing: string[] = [];
  for (const [what, address] of Object.entries(wanted))
    if (!(await isThere(address))) missing.push(what);
  return [
    missing.length > 0
      ? warning(
          check,
          `missing: ${missing.join(", ")}`,
          "Permit2 payments are refused on this network; EIP-3009 payments work.",
        )
      : ok(check, ["Multicall3", ...Object.keys(wanted)].join(", ")),
  ];
}

/** The batcher is optional: without it everything works, for a little more gas. */
async function batcherAt({ name, rpc, network }: Endpoint): Promise<Finding[]> {
  const check = `${name} batcher`;
  const state = await readBatcher(rpc, BATCHER_ADDRESS);
  if (state === "ours") return [ok(check, `at ${BATCHER_ADDRESS}`)];
  if (state !== "absent")
    return [
      warning(
        check,
        state === "other"
          ? `the code at ${BATCHER_ADDRESS} is not our batcher and is not used`
          : `the batcher at ${BATCHER_ADDRESS} does not work on this chain and is not used`,
        "Nothing needs to be done: batches use Multicall3, for a little more gas.",
      ),
    ];
  const says = `not at ${BATCHER_ADDRESS}: batches use Multicall3; with the batcher, a payment in a full batch uses 6 to 8 % less gas`;
  const todo = `To deploy it, run with the environment of a replica: DEPLOYER_PRIVATE_KEY=0x... npm run batcher -- --network ${network.id}`;
  return [{ ...ok(check, says), todo }];
}

async function logsAt({ name, rpc, network }: Endpoint, head: bigint): Promise<Finding[]> {
  const from = head > SPAN ? head - SPAN + 1n : 0n;
  const tag = (number: bigint): Hex => `0x${number.toString(16)}`;
  const logs = await found(
    `${name} logs`,
    async () => {
      const topics = [`0x${"0".repeat(63)}1`];
      const filter = {
        address: network.usdc.address,
        fromBlock: tag(from),
        toBlock: tag(head),
        topics,
      };
      await rpc.call("eth_getLogs", [filter]);
      return ok(`${name} logs`, `${head - from + 1n} blocks at once`);
    },
    {
      todo: `Reconciliation reads up to ${SPAN} blocks per request: choose a plan or a provider that allows that.`,
    },
  );
  const old = head > OLD ? head - OLD : 1n;
  const states = await found(
    `${name} archive`,
    async () => {
      await rpc.call("eth_getBalance", [MULTICALL3_ADDRESS, tag(old < head ? old : head)]);
      return ok(`${name} archive`, `has the state of ${head - old} blocks ago`);
    },
    {
      level: "warning",
      todo: "The service works without it, but then searches block by block for a transaction that used a relayer's nonce.",
    },
  );
  return [...logs, ...states];
}

/** Do the endpoints agree on the chain and its head, and is the head recent? */
async function together(network: Network, heads: readonly Head[]): Promise<Finding[]> {
  const [first, ...rest] = heads;
  if (!first) return [];
  const findings: Finding[] = [];
  const check = `chain ${network.id}`;
  const newest = heads.reduce((one, other) => (other.number > one.number ? other : one), first);
  const ageSeconds = Date.now() / 1_000 - newest.timestampSeconds;
  const atMost = Math.max(60, (network.blockTimeMs / 1_000) * 20);
  const clockTodo =
    "Check this machine's clock. If it is right, the chain has stopped or the nodes lag.";
  if (ageSeconds > atMost)
    findings.push(
      wrong(check, `its newest block is ${durationOf(ageSeconds)} old`, clockTodo, "chain_clock"),
    );
  else if (ageSeconds < -15)
    findings.push(
      wrong(
        check,
        `its newest block is ${durationOf(-ageSeconds)} ahead of our clock`,
        clockTodo,
        "chain_clock",
      ),
    );
  else findings.push(ok(check, `its clock is ${durationOf(Math.max(0, ageSeconds))} behind ours`));
  for (const head of heads) {
    const lagSeconds = newest.timestampSeconds - head.timestampSeconds;
    if (lagSeconds <= LAG.warningSeconds) continue;
    const says = `${newest.number - head.number} blocks (${durationOf(lagSeconds)}) behind ${newest.name}`;
    const todo = "Move it to the end of the list, or change the provider.";
    const level = lagSeconds > LAG.wrongSeconds ? wrong : warning;
    findings.push(level(head.name, says, todo, "rpc_lag"));
  }
  const lowest = heads.reduce((low, { number }) => (number < low ? number : low), first.number);
  const depth = BigInt(network.confirmations);
  const common = lowest > depth ? lowest - depth : 0n;
  const hashes = await Promise.all(
    [first, ...rest].map(async ({ name, rpc }) => {
      const header = await readHeader(rpc, common).catch(() => undefined);
      return { name, hash: header?.hash };
    }),
  );
  for (const { name, hash } of hashes)
    if (hash === undefined)
      findings.push(
        wrong(
          name,
          `does not return the final block ${common}`,
          "No payment would become final. Change the provider, or remove it from the list.",
          "rpc_final_block",
        ),
      );
  const other = hashes.find(({ hash }) => hash !== undefined && hash !== hashes[0]?.hash);
  if (other && hashes[0]?.hash !== undefined)
    findings.push(
      wrong(
        other.name,
        `has a different final block ${common} from ${first.name}`,
        "One of them serves a fork. Compare with an explorer and remove it.",
        "rpc_fork",
      ),
    );
  return findings;
}

function checkAnnouncements(network: Network, url: string, index: number): Promise<Finding> {
  const check = `announcements ${network.id} #${index + 1} (${new URL(url).host})`;
  const atMostMs = Math.min(Math.max(network.blockTimeMs * 3, 3_000), NOTIFICATION_WITHIN_MS);
  return new Promise((resolve) => {
    const socket = new WebSocket(url);
    let isSubscribed = false;
    const end = (finding: Finding): void => {
      clearTimeout(timer);
      socket.close();
      resolve(finding);
    };
    const todo =
      "The service polls for blocks instead, a little later. Change the endpoint or remove it.";
    const timer = setTimeout(
      () =>
        end(
          isSubscribed
            ? warning(check, `no block was announced in ${durationOf(atMostMs / 1_000)}`, todo)
            : warning(check, "does not announce new blocks", todo),
        ),
      atMostMs,
    );
    socket.addEventListener("open", () =>
      socket.send(
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: ["newHeads"] }),
      ),
    );
    socket.addEventListener("error", () => end(warning(check, "cannot be reached", todo)));
    socket.addEventListener("message", ({ data }) => {
      const said = readJson(data);
      if (said?.["id"] === 1) isSubscribed = said["result"] !== undefined;
      else if (said?.["method"] === "eth_subscription") end(ok(check, "announces new blocks"));
    });
  });
}

function readJson(data: unknown): Record<string, unknown> | undefined {
  try {
    return JSON.parse(String(data)) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
