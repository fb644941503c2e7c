/** `npm run batcher`: deploys our batcher contract with the deterministic deployer, at the same address on every network. */
import { formatEther, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { ConfigError, loadConfig } from "../../../config.ts";
import { BATCHER_ADDRESS } from "../../../core/batcher.ts";
import { CREATE2_DEPLOYER } from "../../../core/networks.ts";
import { readArguments, runAsProgram } from "../../command-line.ts";
import { readBatcher } from "./read.ts";
import { createChainClient, type ChainClient } from "../index.ts";
import artifact from "./Batcher.json" with { type: "json" };

const USAGE = `npm run batcher -- --network <id> [--dry-run]

Deploys our batcher contract, with which payments share a transaction. DEPLOYER_PRIVATE_KEY pays for it and has no rights
in it; anybody can do it. A running service finds the contract within a minute.

  --network <id>   such as eip155:8453; one of NETWORKS
  --dry-run        reports the cost

All other settings come from the environment of a replica.`;

const wrong = (problem: string): ConfigError => new ConfigError([problem]);

const codeAt = ({ rpc }: ChainClient, address: string): Promise<Hex> =>
  rpc.call<Hex>("eth_getCode", [address, "latest"]);

const isThere = async (chain: ChainClient): Promise<boolean> => {
  const found = await readBatcher(chain.rpc, BATCHER_ADDRESS);
  if (found === "mute")
    throw wrong(`it is at ${BATCHER_ADDRESS}, and does not work on this chain (has it PUSH0?)`);
  return found === "ours";
};

export async function deployBatcher(
  args: string[],
  environment: Record<string, string | undefined>,
  say: (line: string) => void,
): Promise<void> {
  const { values } = readArguments(args, USAGE, {
    network: { type: "string" },
    "dry-run": { type: "boolean" },
  });
  const config = loadConfig(environment);
  const network = config.networks.find(({ id }) => id === values.network);
  if (!network)
    throw wrong(`--network is one of ${config.networks.map(({ id }) => id).join(", ")}`);
  if (network.rpcUrls.length === 0) throw wrong("the embedded chain has its batcher");
  const chain = createChainClient(network);
  try {
    const chainId = Number(await chain.rpc.call<Hex>("eth_chainId", []));
    if (chainId !== network.chainId) throw wrong(`the RPC endpoint is of chain ${chainId}`);
    if (await isThere(chain)) return say(`${network.id}: it is at ${BATCHER_ADDRESS} already.`);
    if ((await codeAt(chain, CREATE2_DEPLOYER)).length <= 2)
      throw wrong(`${network.id} has no deterministic deployer at ${CREATE2_DEPLOYER}`);
    await deploy(chain, environment, { dryRun: values["dry-run"] === true, say });
  } finally {
    await chain.rpc.close();
  }
}

async function deploy(
  chain: ChainClient,
  environment: Record<string, string | undefined>,
  { dryRun, say }: { dryRun: boolean; say: (line: string) => void },
): Promise<void> {
  const { client, network, viemChain } = chain;
  const data = `${artifact.salt}${artifact.creationCode.slice(2)}` as Hex;
  const gas = await client.estimateGas({ to: CREATE2_DEPLOYER, data });
  const price = await client.getGasPrice();
  const cost = `${gas} gas, about ${formatEther(gas * price)} ${network.nativeSymbol}`;
  if (dryRun) return say(`${network.id}: ${BATCHER_ADDRESS} would cost ${cost}.`);
  const key = environment["DEPLOYER_PRIVATE_KEY"] ?? "";
  if (!/^0x[0-9a-fA-F]{64}$/.test(key))
    throw wrong("DEPLOYER_PRIVATE_KEY is the key that pays for it: 0x and 64 hexadecimal digits");
  const account = privateKeyToAccount(key as Hex);
  // A relayer lane counts its own nonces, so a foreign transaction with its key would raise an alarm.
  const relayers = environment["RELAYER_PRIVATE_KEYS"]?.toLowerCase().split(/[\s,]+/);
  if (relayers?.includes(key.toLowerCase()))
    throw wrong(
      "DEPLOYER_PRIVATE_KEY is a relayer's, whose nonces the service counts: take another",
    );
  const request = await client.prepareTransactionRequest({
    account,
    chain: viemChain,
    to: CREATE2_DEPLOYER,
    data,
    gas: (gas * 6n) / 5n,
  });
  const { nonce, maxFeePerGas, maxPriorityFeePerGas } = request;
  const raw = await account.signTransaction({
    type: "eip1559",
    chainId: network.chainId,
    to: CREATE2_DEPLOYER,
    data,
    gas: request.gas,
    nonce,
    maxFeePerGas,
    maxPriorityFeePerGas,
  });
  const hash = await client.sendRawTransaction({ serializedTransaction: raw });
  say(`${network.id}: sent ${hash} from ${account.address} (${cost})`);
  const { status } = await client.waitForTransactionReceipt({ hash });
  if (status !== "success" || !(await isThere(chain)))
    throw wrong(`${hash} did not put it at ${BATCHER_ADDRESS} (${status})`);
  say(`${network.id}: the batcher is at ${BATCHER_ADDRESS}.`);
}

await runAsProgram(
  import.meta.url,
  () => deployBatcher(process.argv.slice(2), process.env, (line) => console.log(line)),
  { ours: (error) => error instanceof ConfigError },
);
