// Goal: local mode keeps its data through restarts, kills and half-written files, or explains in one line why it
// cannot; two starts never share a data folder.
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import t, { type Test } from "tap";
import { createPublicClient, http, type Address, type Hash } from "viem";
import { startAnvil, findAnvil, rpc } from "../../server/local/anvil.ts";
import { LOCAL_USDC } from "../../server/local/chain-contracts.ts";
import { startLocalChain } from "../../server/local/chain.ts";
import { readHead, withoutOldBlocks } from "../../server/local/chain-state.ts";
import { freePort } from "../../server/local/free-port.ts";
import { createFaucet } from "../../server/plugins/faucet/index.ts";
import { identityOf } from "../../server/local/processes.mjs";
import { startLocalWorld, type LocalWorld } from "../../server/local/world.ts";
import { childScript } from "../helpers/child-script.ts";
import { testAccount, testChain } from "../helpers/chain.ts";

const CHAIN_ID = 5042002;
/** The first of the system's ephemeral ports; undefined where the system does not report it. */
const givenFrom = ((): number | undefined => {
  try {
    return Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  } catch {
    return undefined;
  }
})();
const BALANCE_OF = [
  {
    type: "function",
    name: "balanceOf",
    stateMutability: "view",
    inputs: [{ type: "address" }],
    outputs: [{ type: "uint256" }],
  },
] as const;

function dataDir(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), "purser-world-"));
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, "data");
}

async function start(
  t: Test,
  dir: string,
  only: { postgres?: boolean; chain?: boolean } = {},
): Promise<LocalWorld & { progress: string[] }> {
  const progress: string[] = [];
  const world = await startLocalWorld({
    dataDir: dir,
    postgres: only.postgres ?? true,
    chain: only.chain ?? true,
    onProgress: (line) => progress.push(line),
  });
  t.teardown(() => world.stop());
  return { ...world, progress };
}

async function query<Row>(world: LocalWorld, sql: string): Promise<Row[]> {
  const client = new Client({ connectionString: world.databaseUrl });
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query(sql)).rows as Row[];
  } finally {
    await client.end();
  }
}

const reader = (world: LocalWorld) =>
  createPublicClient({ transport: http(world.rpcUrl, { retryCount: 0 }), cacheTime: 0 });
const balance = (world: LocalWorld, address: Address) =>
  reader(world).readContract({
    address: LOCAL_USDC,
    abi: BALANCE_OF,
    functionName: "balanceOf",
    args: [address],
  });
const give = (world: LocalWorld, to: Address): Promise<Hash> =>
  createFaucet({
    rpcUrl: world.rpcUrl ?? "",
    chainId: CHAIN_ID,
    privateKey: world.faucetPrivateKey,
    usdc: LOCAL_USDC,
  }).send({ to, amountAtomic: 5_000_000n });

const pidIn = (path: string): number =>
  (JSON.parse(readFileSync(path, "utf8")) as { pid: number }).pid;

async function eventually(what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + 120_000;
  for (;;) {
    try {
      if (await holds()) return;
    } catch {
      // Not yet.
    }
    if (Date.now() > deadline) throw new Error(`never: ${what}`);
    await delay(50);
  }
}

const recipient = testAccount(77).address;

t.test("a restart keeps rows, balances, receipts, logs, keys and the chain's port", async (t) => {
  const dir = dataDir(t);
  const first = await start(t, dir);
  await query(first, "CREATE TABLE kept AS SELECT 42 AS answer");
  const hash = await give(first, recipient);
  const receipt = await reader(first).getTransactionReceipt({ hash });
  t.equal(await balance(first, recipient), 5_000_000n);
  t.equal(statSync(join(dir, "secrets.json")).mode & 0o777, 0o600);
  await first.stop();
  t.notOk(existsSync(join(dir, "lock")), "the folder is unlocked");

  const second = await start(t, dir);
  t.match(await query(second, "SELECT answer FROM kept"), [{ answer: 42 }]);
  t.equal(await balance(second, recipient), 5_000_000n);
  const after = await reader(second).getTransactionReceipt({ hash });
  t.equal(after.blockHash, receipt.blockHash);
  const logs = await reader(second).getLogs({ address: LOCAL_USDC, fromBlock: 0n });
  t.ok(logs.some((log) => log.transactionHash === hash));
  t.ok((await reader(second).getBlockNumber()) >= receipt.blockNumber);
  t.equal(second.lostFromBlock, undefined);
  const kept = ["relayerPrivateKeys", "masterKeys", "demoOwnerPrivateKey", "receiverAuthorizerKey"];
  for (const key of ["rpcUrl", ...kept] as (keyof LocalWorld)[])
    t.same(second[key], first[key], `the same ${key}`);
  const nowSeconds = BigInt(Math.floor(Date.now() / 1000));
  const block = await reader(second).getBlock();
  t.ok(nowSeconds - block.timestamp < 5n, "the chain's clock is the wall clock");
});

t.test("a key that is newer than the folder is added to its secrets, once", async (t) => {
  const dir = dataDir(t);
  const path = join(dir, "secrets.json");
  const none = { postgres: false, chain: false };
  const restart = async () => {
    const world = await start(t, dir, none);
    await world.stop();
    return Object.fromEntries(Object.entries(world).filter(([key]) => key.endsWith("Key")));
  };
  const before = await restart();
  const { receiverAuthorizerKey, ...older } = JSON.parse(readFileSync(path, "utf8"));
  t.equal(receiverAuthorizerKey, before["receiverAuthorizerKey"]);
  writeFileSync(path, JSON.stringify(older));
  const after = await restart();
  t.match(after, { ...before, receiverAuthorizerKey: /^0x[0-9a-f]{64}$/ });
  t.match(JSON.parse(readFileSync(path, "utf8")), older);
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.same(await restart(), after);
  writeFileSync(path, JSON.stringify({ receiverAuthorizerKey }));
  await t.rejects(start(t, dir, none), { message: /secrets\.json is damaged/ });
});

t.test("a second start on the same folder is refused in one line", async (t) => {
  const dir = dataDir(t);
  await start(t, dir, { postgres: false });
  await t.rejects(start(t, dir, { postgres: false }), {
    name: "StartError",
    message: new RegExp(`^another Purser \\(process ${process.pid}\\) already uses [^\\n]+$`),
  });
});

t.test("a lock of a dead process, or of another process with its pid, is taken over", async (t) => {
  const dir = dataDir(t);
  mkdirSync(dir, { recursive: true });
  const ghost = spawn(process.execPath, ["-e", "0"], { stdio: "ignore" });
  const identity = identityOf(ghost.pid);
  await once(ghost, "exit");
  for (const content of [
    JSON.stringify({ pid: ghost.pid, identity }),
    JSON.stringify({ pid: process.pid, identity: "another boot:1" }),
    '{"pid": 12',
    "",
  ]) {
    writeFileSync(join(dir, "lock"), content);
    const world = await start(t, dir, { postgres: false, chain: false });
    await world.stop();
  }
  t.pass("four times");
});

t.test("Postgres or anvil killed with -9: started again, nothing lost", async (t) => {
  const dir = dataDir(t);
  const world = await start(t, dir);
  await query(world, "CREATE TABLE kept AS SELECT 42 AS answer");
  const hash = await give(world, recipient);
  const { blockNumber } = await reader(world).getTransactionReceipt({ hash });
  await eventually("a checkpoint with the block", async () => {
    const checkpoint = readFileSync(join(dir, "chain", "checkpoint.json"), "utf8");
    return (
      checkpoint.includes(hash) &&
      (await readHead(join(dir, "chain")))?.number === Number(blockNumber)
    );
  });

  process.kill(pidIn(join(dir, "postgres.pid")), "SIGKILL");
  process.kill(pidIn(join(dir, "chain", "anvil.pid")), "SIGKILL");
  await eventually("both answer again", async () => {
    const rows = await query<{ answer: number }>(world, "SELECT answer FROM kept");
    return rows[0]?.answer === 42 && (await balance(world, recipient)) === 5_000_000n;
  });
  t.equal((await reader(world).getTransactionReceipt({ hash })).status, "success");
  t.ok(world.progress.some((line) => line.startsWith("Postgres ended unexpectedly")));
  t.ok(world.progress.some((line) => line.startsWith("The local chain ended unexpectedly")));
  t.ok(await give(world, recipient), "the chain continues");
});

t.test("a state file that anvil wrote only half is skipped for the checkpoint", async (t) => {
  const dir = dataDir(t);
  const first = await start(t, dir, { postgres: false });
  await give(first, recipient);
  await eventually("a checkpoint with the mint", () => existsSync(join(dir, "chain", "head.json")));
  await eventually("its file", async () => {
    const head = await readHead(join(dir, "chain"));
    const { best_block_number: saved } = JSON.parse(
      readFileSync(join(dir, "chain", "checkpoint.json"), "utf8"),
    ) as { best_block_number: number };
    return head !== undefined && saved >= head.number;
  });
  await first.stop();
  const state = join(dir, "chain", "state.json");
  truncateSync(state, Math.floor(statSync(state).size / 2));

  const second = await start(t, dir, { postgres: false });
  t.equal(await balance(second, recipient), 5_000_000n);
  t.equal(second.lostFromBlock, undefined);
});

t.test("a chain that restarts from an older state is reported", async (t) => {
  const dir = dataDir(t);
  const first = await start(t, dir, { postgres: false });
  await first.stop();
  const files = ["state.json", "checkpoint.json"].map((name) => join(dir, "chain", name));
  const before = files.map((path) => readFileSync(path));

  const second = await start(t, dir, { postgres: false });
  await give(second, recipient);
  await eventually(
    "the head is noted",
    async () => (await readHead(join(dir, "chain"))) !== undefined,
  );
  await second.stop();
  const head = await readHead(join(dir, "chain"));
  files.forEach((path, index) => writeFileSync(path, before[index] ?? ""));

  const third = await start(t, dir, { postgres: false });
  t.equal(third.lostFromBlock, head?.number);
  t.ok(third.progress.some((line) => line.startsWith("Warning: the local chain was killed")));
});

t.test("half-written data is recreated where it was empty, and refused otherwise", async (t) => {
  const dir = dataDir(t);
  // A first start that died while it created the database.
  mkdirSync(join(dir, "postgres.new", "base"), { recursive: true });
  writeFileSync(join(dir, "postgres.new", "postgresql.conf"), "half");
  mkdirSync(join(dir, "postgres"));
  mkdirSync(join(dir, "chain"));
  writeFileSync(join(dir, "chain", "state.json"), '{"block": {"numb');
  const world = await start(t, dir);
  t.match(await query(world, "SELECT 1 AS one"), [{ one: 1 }]);
  t.ok(await give(world, recipient));
  await world.stop();

  writeFileSync(join(dir, "postgres", "PG_VERSION"), "15\n");
  await t.rejects(start(t, dir, { chain: false }), {
    name: "StartError",
    message: /was made by Postgres 15, this is Postgres 18\. Start fresh with: npm run reset/,
  });
  rmSync(join(dir, "postgres", "PG_VERSION"));
  await t.rejects(start(t, dir, { chain: false }), { name: "StartError", message: /is damaged/ });
  const secrets = join(dir, "secrets.json");
  truncateSync(secrets, 40);
  await t.rejects(start(t, dir, { chain: false }), {
    name: "StartError",
    message: /secrets\.json is damaged/,
  });
  t.equal(statSync(secrets).size, 40, "the damaged file is kept for recovery");
});

t.test("a postmaster.pid with the pid of another process does not block the start", async (t) => {
  const dir = dataDir(t);
  const first = await start(t, dir, { chain: false });
  const pidFile = join(dir, "postgres", "postmaster.pid");
  const lines = readFileSync(pidFile, "utf8").split("\n");
  await first.stop();
  const owner = statSync(join(dir, "postgres"));
  const bystander = spawn("sleep", ["60"], {
    stdio: "ignore",
    ...(process.getuid?.() === 0 && { uid: owner.uid, gid: owner.gid, cwd: "/" }),
  });
  t.teardown(() => bystander.kill());
  writeFileSync(pidFile, [bystander.pid, ...lines.slice(1)].join("\n"));
  const second = await start(t, dir, { chain: false });
  t.match(await query(second, "SELECT 1 AS one"), [{ one: 1 }]);
  t.equal(bystander.exitCode, null, "the other process is still running");
});

t.test("the next start ends child processes that outlived their server", async (t) => {
  const dir = dataDir(t);
  const holder = spawn(process.execPath, [childScript("test/local/world.child.ts"), dir], {
    stdio: ["ignore", "pipe", "inherit"],
    env: cleanEnvironment(),
  });
  await once(holder.stdout, "data");
  const [postgres, anvil] = [
    pidIn(join(dir, "postgres.pid")),
    pidIn(join(dir, "chain", "anvil.pid")),
  ];
  // Kills everything but the children, like an out-of-memory killer; SIGSTOP first, so that no process reacts to
  // the death of another.
  const victims = [holder.pid ?? 0, parentOf(postgres), parentOf(anvil)];
  for (const pid of victims) process.kill(pid, "SIGSTOP");
  for (const pid of victims) process.kill(pid, "SIGKILL");
  await once(holder, "exit");
  t.ok(identityOf(postgres), "Postgres is an orphan now");

  const world = await start(t, dir);
  t.match(await query(world, "SELECT 1 AS one"), [{ one: 1 }]);
  t.equal(identityOf(postgres), null);
  t.equal(identityOf(anvil), null);
});

t.test("when the server is killed with -9, its children end by themselves", async (t) => {
  const dir = dataDir(t);
  const holder = spawn(process.execPath, [childScript("test/local/world.child.ts"), dir], {
    stdio: ["ignore", "pipe", "inherit"],
    env: cleanEnvironment(),
  });
  await once(holder.stdout, "data");
  const pids = [pidIn(join(dir, "postgres.pid")), pidIn(join(dir, "chain", "anvil.pid"))];
  const wardens = pids.map(parentOf);
  process.kill(holder.pid ?? 0, "SIGKILL");
  await eventually("all gone", () =>
    [...pids, ...wardens].every((pid) => identityOf(pid) === null),
  );
  t.notOk(existsSync(join(dir, "postgres", "postmaster.pid")), "Postgres shut down cleanly");
  const world = await start(t, dir);
  t.match(await query(world, "SELECT 1 AS one"), [{ one: 1 }]);
});

t.test("another chain at the stored port is never mistaken for the local one", async (t) => {
  const other = await testChain(t);
  const dir = dataDir(t);
  mkdirSync(dir, { recursive: true });
  const binary = findAnvil();
  if (binary === undefined) throw new Error("no anvil");
  const port = Number(new URL(other.rpcUrl).port);
  await t.rejects(startAnvil({ binary, dir, port, chainId: CHAIN_ID, keepState: true }), {
    message: /another program responds at/,
  });
  mkdirSync(join(dir, "chain"));
  writeFileSync(join(dir, "chain", "port"), String(port));
  const world = await start(t, dir, { postgres: false });
  t.not(world.rpcUrl, other.rpcUrl);
});

t.test("another program at the stored port that is not a chain is reported", async (t) => {
  // It accepts connections and reads, but never responds.
  const squatter = createServer((socket) => {
    socket.on("error", () => undefined).resume();
  }).listen(0, "127.0.0.1");
  await once(squatter, "listening");
  t.teardown(() => squatter.close());
  const { port } = squatter.address() as AddressInfo;
  const binary = findAnvil() ?? "anvil";
  const dir = mkdtempSync(join(tmpdir(), "purser-port-"));
  const removeIfAbandoned = dir;
  t.teardown(() => rmSync(dir, { recursive: true, force: true }));
  const options = { binary, dir, port, chainId: CHAIN_ID, keepState: true, removeIfAbandoned };
  await t.rejects(startAnvil(options), { message: /another program responds at/ });
  t.ok(existsSync(dir), "the folder of a failed start is kept");
});

const cannotTell =
  givenFrom !== undefined && givenFrom > 12_000
    ? false
    : "this system gives away all ports, or does not say which";

t.test(
  "a free port is outside of the system's ephemeral range",
  { skip: cannotTell },
  async (t) => {
    const ports = await Promise.all(Array.from({ length: 20 }, freePort));
    t.ok(
      ports.every((port) => port > 10_080 && port < (givenFrom ?? 0)),
      `${ports.join(", ")}, before ${givenFrom}`,
    );
    for (const port of ports) {
      const server = createServer().listen(port, "127.0.0.1");
      await once(server, "listening");
      server.close();
    }
  },
);

t.test("an unusable folder is reported in one line, and no process is left", async (t) => {
  const dir = dataDir(t);
  const parent = join(dir, "..");
  writeFileSync(join(parent, "file"), "");
  await t.rejects(start(t, join(parent, "file")), {
    name: "StartError",
    message: /cannot be used: it or a part of its path is a file\.$/,
  });
  await t.rejects(start(t, join(parent, "file", "below")), {
    name: "StartError",
    message: /cannot be used: it or a part of its path is a file\.$/,
  });
  await t.rejects(start(t, "/proc/purser-data"), {
    name: "StartError",
    message: /^the data folder \/proc\/purser-data cannot be used: [^\n]+$/,
  });
  if (process.getuid?.() !== 0) {
    mkdirSync(dir);
    chmodSync(dir, 0o500);
    await t.rejects(start(t, dir), { message: /this user may not write there/ });
    chmodSync(dir, 0o700);
  }
});

t.test("an idle chain's node restarts trimmed, and keeps its transactions", async (t) => {
  const dir = dataDir(t);
  mkdirSync(dir, { recursive: true });
  const chain = await startLocalChain({
    dataDir: dir,
    chainId: CHAIN_ID,
    admin: testAccount(0).address,
    senders: [],
    onProgress: (line) => t.fail(line),
    recycleAfterBlocks: 200,
  });
  t.teardown(() => chain.stop());
  const world = {
    rpcUrl: chain.rpcUrl,
    faucetPrivateKey: testAccount(0).privateKey,
  } as LocalWorld;
  const hash = await give(world, recipient);
  const anvil = pidIn(join(dir, "chain", "anvil.pid"));
  // The node may stop before it responds.
  await rpc(chain.rpcUrl, "anvil_mine", [600]).catch(() => undefined);
  await eventually("a new node", () => pidIn(join(dir, "chain", "anvil.pid")) !== anvil);
  await eventually("it answers", async () => (await balance(world, recipient)) === 5_000_000n);
  const client = reader(world);
  t.ok((await client.getBlockNumber()) >= 200n, "the block height continues");
  t.equal((await client.getTransactionReceipt({ hash })).status, "success");
  const logs = await client.getLogs({ address: LOCAL_USDC, fromBlock: 0n });
  t.ok(logs.some((log) => log.transactionHash === hash));
});

t.test("trimming removes only old empty blocks", async (t) => {
  const block = (number: number, transactions: unknown[] = []) => ({
    header: { number: `0x${number.toString(16)}` },
    transactions,
  });
  const state = {
    best_block_number: 10_000,
    blocks: Array.from({ length: 10_001 }, (_, number) => block(number, number === 7 ? [{}] : [])),
    transactions: [{ block_number: 7 }],
    accounts: { untouched: true },
  };
  const trimmed = withoutOldBlocks(state);
  t.equal(trimmed.blocks.length, 2_003, "genesis, the block with a transaction, the newest 2,001");
  t.ok(trimmed.blocks.some(({ header }) => header.number === "0x7"));
  t.same(trimmed.transactions, state.transactions);
  t.same(trimmed.accounts, { untouched: true });
});

function cleanEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(([key]) => key !== "NODE_OPTIONS" && !/^_?TAP/.test(key)),
  );
}

function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}
