// Goal: a contract owner is identified by address and chain: the same address on another chain is another owner.
import t from "tap";
import { encodeDeployData, getContractAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { asOwner, createAgent, freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import walletArtifact from "../helpers/contracts/TestWallet.json" with { type: "json" };

const OTHER = 84_532;
const HONEST = 0;

/** The first contract of a fresh account has the same address on every chain. */
async function deploy(chain: TestChain, by: PrivateKeyAccount, owner: Address): Promise<Address> {
  await chain.testClient.setBalance({ address: by.address, value: 10n ** 20n });
  const data = encodeDeployData({
    abi: walletArtifact.abi,
    bytecode: walletArtifact.bytecode as Hex,
    args: [owner, HONEST],
  });
  const hash = await chain.walletClient(by).sendTransaction({ data });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return getContractAddress({ from: by.address, nonce: 0n });
}

t.test("a wallet contract on another chain does not get the agents of its namesake", async (t) => {
  const chain = await testChain(t);
  const second = await testChain(t, {
    chainId: OTHER,
    usdc: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
  });
  const service = await testApp(t, {
    chain,
    env: {
      NETWORKS: `eip155:${chain.chainId},eip155:${OTHER}`,
      [`RPC_URL_${OTHER}`]: second.rpcUrl,
    },
  });
  const { app, database } = service;
  const deployer = privateKeyToAccount(generatePrivateKey());
  const victim = privateKeyToAccount(generatePrivateKey());
  const attacker = privateKeyToAccount(generatePrivateKey());
  const wallet = await deploy(chain, deployer, victim.address);
  t.equal(await deploy(second, deployer, attacker.address), wallet, "the same address");

  const enter = async (by: PrivateKeyAccount, chainId: number) => {
    const message = siweMessage(service, {
      nonce: await freshNonce(app),
      address: wallet,
      chainId,
    });
    const answer = await verify(service, { message, signature: await by.signMessage({ message }) });
    const [cookie = ""] = [answer.headers["set-cookie"]].flat();
    const headers = {
      cookie: cookie.split(";", 1)[0] ?? "",
      origin: service.config.publicUrl,
      "content-type": "application/json",
    };
    return { status: answer.statusCode, account: by, cookie: headers.cookie, headers };
  };
  const mine = await enter(victim, chain.chainId);
  t.equal(mine.status, 200);
  const agent = await createAgent(service, mine);
  await chain.mint(agent.walletAddress, 5_000_000n);

  t.equal(
    (await enter(attacker, chain.chainId)).status,
    401,
    "refused by the contract on the first chain",
  );
  const thief = await enter(attacker, OTHER);
  t.equal(thief.status, 200, "it signs in as a different owner");
  const agents = await app.inject({ url: "/api/agents", headers: thief.headers });
  t.same(agents.json<{ items: unknown[] }>().items, []);
  const raised = await asOwner(app, thief, {
    method: "PUT",
    url: `/api/agents/${agent.id}/allowlist`,
    body: { allowlist: [attacker.address] },
  });
  t.equal(raised.statusCode, 404);
  const { rows } = await database.pool.query(
    "SELECT chain_id::int AS chain FROM owners WHERE address = $1 ORDER BY 1",
    [wallet.toLowerCase()],
  );
  t.same(
    rows,
    [{ chain: OTHER }, { chain: chain.chainId }].sort((a, b) => a.chain - b.chain),
  );

  t.test("it cannot sign orders for the agent, in any session", async (t) => {
    const order = async () => {
      const prepared = await callApi(
        app,
        mine,
        "POST",
        `/api/agents/${agent.id}/withdrawals/prepare`,
        { amount: "1" },
      );
      t.equal(prepared.statusCode, 200, prepared.body);
      return prepared.json<{ order: object; typedData: never }>();
    };
    const carryOut = async (by: PrivateKeyAccount) => {
      const { order: signed, typedData } = await order();
      const answer = await callApi(app, mine, "POST", `/api/agents/${agent.id}/withdrawals`, {
        order: signed,
        signature: await by.signTypedData(typedData),
      });
      return { status: answer.statusCode, body: answer.json<{ code?: string }>() };
    };
    t.match(await carryOut(attacker), { status: 401, body: { code: "invalid_signature" } });
    t.match(await carryOut(victim), { status: 200 });

    // An owner with a plain key, at whose address a contract is deployed later.
    const plain = privateKeyToAccount(generatePrivateKey());
    const session = await signIn(service, plain);
    const own = await createAgent(service, session);
    await chain.mint(own.walletAddress, 5_000_000n);
    const code = await chain.publicClient.getCode({ address: wallet });
    await chain.testClient.setCode({ address: plain.address, bytecode: code ?? "0x" });
    await chain.testClient.setStorageAt({
      address: plain.address,
      index: 0,
      value: (await chain.publicClient.getStorageAt({ address: wallet, slot: "0x0" })) ?? "0x",
    });
    const prepared = await callApi(
      app,
      session,
      "POST",
      `/api/agents/${own.id}/withdrawals/prepare`,
      { amount: "1" },
    );
    const { order: plainOrder, typedData } = prepared.json<{ order: object; typedData: never }>();
    const send = async (by: PrivateKeyAccount) =>
      (
        await callApi(app, session, "POST", `/api/agents/${own.id}/withdrawals`, {
          order: plainOrder,
          signature: await by.signTypedData(typedData),
        })
      ).statusCode;
    t.equal(await send(victim), 401, "a contract deployed later does not verify for a key owner");
    t.equal(await send(plain), 200);
  });

  t.test("contracts' signatures are refused on a chain that is not verified", async (t) => {
    app.chains.verified.delete(OTHER);
    t.equal((await enter(attacker, OTHER)).status, 503);
    t.equal((await enter(victim, chain.chainId)).status, 200);
    t.ok((await signIn(service)).cookie, "a plain key needs no chain");
  });
});
