// What `.ci/image-test` runs beside the containers under test, in a container of the image's build stage:
// `chain` is a local chain on port 8545 that funds the relayers of RELAYER_PRIVATE_KEYS, and `pay SERVICE PUBLIC_URL`
// pays from an agent's wallet. The agent is kept in a file, so that a later call pays with the same one.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { erc20Abi, createPublicClient, getAddress, http, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { LOCAL_USDC } from "../../server/local/chain-contracts.ts";
import { raiseBalances, testChain } from "../helpers/chain.ts";
import { randomAddress, randomNonce } from "../helpers/engine.ts";
import { Random } from "../helpers/random.ts";
import { callUntilAnswered, openAgent, openOwner, type Notes } from "../soak/clients.ts";

const PORT = 8545;
const FUNDS = 10n ** 9n;
const AGENT_FILE = "/tmp/agent.json";
const PATIENCE_MS = 120_000;

async function chain(): Promise<void> {
  const ending: (() => unknown)[] = [];
  const { rpcUrl, testClient } = await testChain(
    { teardown: (end: () => unknown) => ending.push(end) },
    { blockTimeSeconds: 0.5 },
  );
  for (const key of (process.env["RELAYER_PRIVATE_KEYS"] ?? "").split(",")) {
    const { address } = privateKeyToAccount(key as Hex);
    await testClient.setBalance({ address, value: 10_000n * 10n ** 18n });
  }
  // The node listens on this container's loopback only.
  const { port, hostname } = new URL(rpcUrl);
  createServer((socket) => {
    const node = connect(Number(port), hostname);
    for (const [from, to] of [
      [socket, node],
      [node, socket],
    ] as const)
      from.on("error", () => to.destroy()).pipe(to);
  }).listen(PORT, () => console.log("the chain is ready"));
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => {
      void Promise.all(ending.map((end) => end())).finally(() => process.exit(0));
    });
}

async function pay(service: string, publicUrl: string): Promise<void> {
  const rpcUrl = `http://127.0.0.1:${PORT}`;
  const notes: Notes = { reported: [], counts: new Map(), faults: [], lastPaidMs: 0 };
  const context = {
    world: { publicUrl, replicas: [{ url: service }], chain: { chainId: 5042002 } },
    random: new Random(Date.now()),
    notes,
  } as unknown as Parameters<typeof openOwner>[0];
  if (!existsSync(AGENT_FILE)) {
    const payee = getAddress(randomAddress());
    const { apiKey, wallet } = await openAgent(context, await openOwner(context), {
      allowlist: [payee],
      limitAtomic: FUNDS,
      fundsAtomic: FUNDS,
    });
    await raiseBalances(rpcUrl, LOCAL_USDC, [wallet], FUNDS);
    writeFileSync(AGENT_FILE, JSON.stringify({ apiKey, payee }));
  }
  const { apiKey, payee } = JSON.parse(readFileSync(AGENT_FILE, "utf8")) as {
    apiKey: string;
    payee: Hex;
  };
  const client = createPublicClient({ transport: http(rpcUrl) });
  const received = () =>
    client.readContract({
      address: LOCAL_USDC,
      abi: erc20Abi,
      functionName: "balanceOf",
      args: [payee],
    });
  const before = await received();
  const key = randomNonce();
  const reply = await callUntilAnswered(context, "/api/agents/spend", {
    headers: () => ({ authorization: `Bearer ${apiKey}`, "idempotency-key": key }),
    body: { recipient: payee, amount: "0.01" },
    patienceMs: PATIENCE_MS,
  });
  const moved = (await received()) - before;
  if (reply?.status !== 200 || moved !== 10_000n)
    throw new Error(`paid ${moved} atomic units: ${JSON.stringify(reply)}`);
  console.log(`paid 0.01 USDC: ${String(reply.body["txHash"])}`);
}

const [, , command, service = "", publicUrl = ""] = process.argv;
await (command === "chain" ? chain() : pay(service, publicUrl));
