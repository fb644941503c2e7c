// Goal: money that arrives at an agent's wallet on any configured network is visible, prevents archiving, and can
// be withdrawn.
import t from "tap";
import { encodeDeployData, getAddress, parseAbi, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import walletArtifact from "../helpers/contracts/TestWallet.json" with { type: "json" };
import {
  createAgent,
  freshNonce,
  signIn,
  siweMessage,
  verify,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { usdcOf } from "./ledger.helper.ts";

// Both networks have USDC at the same address: only the signed EIP-712 domain tells them apart.
const other = await testChain(t, { chainId: 5042 });
const ctx = await testApp(t, {
  env: { NETWORKS: "eip155:5042002,eip155:5042", RPC_URL_5042: other.rpcUrl },
});
const { app, chain } = ctx;
const owner = await signIn(ctx);
const usdc = 1_000_000n;
const HOME = "eip155:5042002";
const OTHER = "eip155:5042";
const ERC20 = parseAbi(["function transfer(address to, uint256 value) returns (bool)"]);

interface Prepared {
  order: Record<string, string>;
  typedData: {
    types: { Withdraw: { name: string; type: string }[] };
    domain: { name: string; version: string; chainId: number };
    message: Record<string, string>;
  };
}

const call = async (method: "GET" | "POST", url: string, body?: unknown, who = owner) => {
  const payload = body === undefined ? undefined : JSON.stringify(body);
  const answer = await app.inject({ method, url, headers: who.headers, payload });
  return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
};

async function sign(account: PrivateKeyAccount, { typedData }: Prepared): Promise<Hex> {
  return account.signTypedData({
    types: { Withdraw: typedData.types.Withdraw },
    primaryType: "Withdraw",
    domain: typedData.domain,
    message: typedData.message,
  });
}

async function withdraw(agent: NewTestAgent, request: object, who = owner) {
  const path = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await call("POST", `${path}/prepare`, request, who);
  if (prepared.status !== 200) return prepared;
  const ready = prepared.body as unknown as Prepared;
  const signature = await sign(who.account, ready);
  return call("POST", path, { order: ready.order, signature }, who);
}

const newAgent = () => createAgent(ctx, owner, { dailyLimit: "0", allowlist: [] });

async function deployWallet(on: TestChain, key: Address): Promise<Address> {
  const hash = await on.walletClient(on.admin).sendTransaction({
    data: encodeDeployData({
      abi: walletArtifact.abi,
      bytecode: walletArtifact.bytecode as Hex,
      args: [key, 0],
    }),
  });
  const receipt = await on.publicClient.waitForTransactionReceipt({ hash });
  return getAddress(receipt.contractAddress as Address);
}

t.test("owner and agent read the balance of every network, and totals add them up", async (t) => {
  const agent = await newAgent();
  await chain.mint(agent.walletAddress, 2n * usdc);
  await other.mint(agent.walletAddress, 5n * usdc);
  const balances = [
    { network: HOME, asset: getAddress(chain.usdc), balance: "2" },
    { network: OTHER, asset: getAddress(other.usdc), balance: "5" },
  ];
  t.match((await call("GET", `/api/agents/${agent.id}`)).body, { balance: "2", balances });
  const me = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), { balance: "2", balances });
  const { body } = await call("GET", `/api/overview?agentId=${agent.id}`);
  t.match(body, {
    totals: {
      balance: "7",
      balances: [
        { network: HOME, balance: "2" },
        { network: OTHER, balance: "5" },
      ],
    },
  });
  const listed = (await call("GET", "/api/agents")).body as { items: { id: string }[] };
  t.match(
    listed.items.find(({ id }) => id === agent.id),
    { balance: "2", balances },
  );
});

t.test("an incoming transfer on another network appears in the activity", async (t) => {
  const read = async () => {
    while (await app.reconciliation.read(other.chainId));
  };
  await read();
  const agent = await newAgent();
  const [sender] = other.accounts;
  if (!sender) throw new Error("no account");
  await other.mint(sender.address, usdc);
  const hash = await other.walletClient(sender).writeContract({
    address: other.usdc,
    abi: ERC20,
    functionName: "transfer",
    args: [agent.walletAddress, usdc],
  });
  await other.publicClient.waitForTransactionReceipt({ hash });
  await read();
  const { body } = await call("GET", `/api/agents/${agent.id}/payments`);
  t.match(body, { items: [{ kind: "incoming", network: OTHER, amount: "1", txHash: hash }] });
});

t.test("archiving checks every network and names the one with funds", async (t) => {
  const agent = await newAgent();
  await other.mint(agent.walletAddress, 3n * usdc);
  const refused = await call("POST", `/api/agents/${agent.id}/archive`);
  t.match(refused, {
    status: 409,
    body: {
      code: "agent_has_funds",
      detail: /3 USDC on Arc\./,
      balance: "3",
      networks: [{ network: OTHER, balance: "3", outstanding: "0" }],
    },
  });
  t.match(await withdraw(agent, { amount: "max", network: OTHER }), { status: 200 });
  t.match(await call("POST", `/api/agents/${agent.id}/archive`), {
    status: 200,
    body: { status: "archived" },
  });
});

t.test("an order for another network moves money on that network only", async (t) => {
  const agent = await newAgent();
  await chain.mint(agent.walletAddress, 4n * usdc);
  await other.mint(agent.walletAddress, 4n * usdc);
  const before = await usdcOf({ chain: other }, owner.account.address);
  const path = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await call("POST", `${path}/prepare`, { amount: "1.5", network: OTHER });
  t.match(prepared.body, { typedData: { domain: { chainId: 5042 } } });
  const ready = prepared.body as unknown as Prepared;
  const body = { order: ready.order, signature: await sign(owner.account, ready) };
  const done = await call("POST", path, body);
  t.match(done, { status: 200, body: { network: OTHER, amount: "1.5" } });
  t.equal(await usdcOf({ chain: other }, agent.walletAddress), 2_500_000n);
  t.equal(await usdcOf({ chain }, agent.walletAddress), 4n * usdc);
  t.equal((await usdcOf({ chain: other }, owner.account.address)) - before, 1_500_000n);
  t.match(await call("POST", path, body), { status: 409, body: { code: "withdrawal_replayed" } });

  // The default is the agent's own network, and the balances of two networks are separate.
  const home = await withdraw(agent, { amount: "4" });
  t.match(home, { status: 200, body: { network: HOME } });
  t.match(await call("POST", `${path}/prepare`, { amount: "2.6", network: OTHER }), {
    status: 402,
    body: { code: "insufficient_funds", detail: /2\.5 USDC on Arc / },
  });
  t.match(await call("POST", `${path}/prepare`, { amount: "1", network: "eip155:1" }), {
    status: 422,
    body: { code: "validation_failed" },
  });
  const forged = { ...ready, typedData: { ...ready.typedData } };
  forged.typedData.domain = { ...ready.typedData.domain, chainId: 8453 };
  const elsewhere = { order: ready.order, signature: await sign(owner.account, forged) };
  t.match(await call("POST", path, elsewhere), {
    status: 401,
    body: { code: "invalid_signature" },
  });
});

t.test("a contract owner's signature is checked only on the contract's own chain", async (t) => {
  const key = privateKeyToAccount(generatePrivateKey());
  const contract = await deployWallet(chain, key.address);
  const message = siweMessage(ctx, { nonce: await freshNonce(app), address: contract });
  const signedIn = await verify(ctx, { message, signature: await key.signMessage({ message }) });
  const cookie = String([signedIn.headers["set-cookie"]].flat()[0]).split(";", 1)[0] ?? "";
  const smart: SignedInOwner = { account: key, cookie, headers: { ...owner.headers, cookie } };
  const agent = await createAgent(ctx, smart, { dailyLimit: "0", allowlist: [] });
  await other.mint(agent.walletAddress, 2n * usdc);
  t.match(await withdraw(agent, { amount: "1", network: OTHER }, smart), {
    status: 422,
    body: { code: "validation_failed", detail: /a contract on a different network from Arc/ },
  });
  const to = privateKeyToAccount(generatePrivateKey()).address;
  const done = await withdraw(agent, { amount: "1", network: OTHER, to }, smart);
  t.match(done, { status: 200, body: { network: OTHER, recipient: to } });

  // An attacker's contract at the owner's address on another chain has no rights.
  const thief = privateKeyToAccount(generatePrivateKey());
  const evil = await deployWallet(other, thief.address);
  const code = await other.publicClient.getCode({ address: evil });
  await other.testClient.setCode({ address: contract, bytecode: code ?? "0x" });
  const storedKey = await other.publicClient.getStorageAt({
    address: evil,
    slot: `0x${"0".repeat(64)}`,
  });
  await other.testClient.setStorageAt({
    address: contract,
    index: 0,
    value: storedKey ?? `0x${"0".repeat(64)}`,
  });
  const stolen = await withdraw(
    agent,
    { amount: "1", network: OTHER, to: thief.address },
    { ...smart, account: thief },
  );
  t.match(stolen, { status: 401, body: { code: "invalid_signature" } });
});

t.test("a network that is down hides only its own balance, and blocks archiving", async (t) => {
  const agent = await newAgent();
  await chain.mint(agent.walletAddress, 1n * usdc);
  for (const [way, stop, start] of [
    ["down", () => other.stop(), () => other.start()],
    ["hanging", async () => other.freeze(), async () => other.thaw()],
  ] as const) {
    await stop();
    t.match((await call("GET", `/api/agents/${agent.id}`)).body, {
      balance: "1",
      balances: [{ balance: "1" }, { network: OTHER, balance: null }],
    });
    t.match((await call("GET", `/api/overview?agentId=${agent.id}`)).body, {
      totals: { balance: null, balances: [{ balance: "1" }, { network: OTHER, balance: null }] },
    });
    const archived = await call("POST", `/api/agents/${agent.id}/archive`);
    t.match(archived, { status: 503, body: { code: "chain_unavailable" } }, way);
    await start();
  }
  // While the agent's own network is down, money on other networks can still be withdrawn.
  await other.mint(agent.walletAddress, 2n * usdc);
  await chain.stop();
  t.match((await call("GET", `/api/agents/${agent.id}`)).body, {
    balance: null,
    balances: [{ balance: null }, { network: OTHER, balance: "2" }],
  });
  t.match(await withdraw(agent, { amount: "max", network: OTHER }), { status: 200 });
  await chain.start();
});
