// Goal: only an order signed by the owner withdraws money, exactly once, in any state of the agent.
import t from "tap";
import { encodeDeployData, getAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { newId } from "../../server/core/ids.ts";
import { REQUESTED_FORM, typedDataOf } from "../../server/core/orders.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { randomNonce } from "../helpers/engine.ts";
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
import { statusesOf, usdcOf } from "./ledger.helper.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const usdc = 1_000_000n;

type Order = Record<"wallet" | "to" | "asset" | "amount" | "nonce" | "deadline", string>;
interface Prepared {
  order: Order;
  typedData: object;
}

const call = (
  who: Pick<SignedInOwner, "headers">,
  path: string,
  payload: unknown,
  headers: Record<string, string> = {},
) =>
  app.inject({
    method: "POST",
    url: path,
    headers: { ...who.headers, ...headers },
    payload: JSON.stringify(payload),
  });

async function prepare(agent: NewTestAgent, body: Record<string, unknown>, who = owner) {
  const answer = await call(who, `/api/agents/${agent.id}/withdrawals/prepare`, body);
  if (answer.statusCode !== 200) throw new Error(answer.body);
  return answer.json<Prepared>();
}

/** Signs like a wallet's `eth_signTypedData_v4`. */
async function sign(
  account: PrivateKeyAccount,
  { order }: Prepared,
  domain: Record<string, unknown> = {},
): Promise<Hex> {
  const typedData = typedDataOf("Withdraw", order, chain.chainId, REQUESTED_FORM);
  return account.signTypedData({
    ...typedData,
    domain: { ...typedData.domain, ...domain },
  } as never);
}

const execute = (agent: NewTestAgent, body: unknown, headers = {}, who = owner) =>
  call(who, `/api/agents/${agent.id}/withdrawals`, body, headers);

async function fundedAgent(rules: Record<string, unknown> = {}): Promise<NewTestAgent> {
  const agent = await createAgent(ctx, owner, { dailyLimit: "0", allowlist: [], ...rules });
  await chain.mint(agent.walletAddress, 10n * usdc);
  return agent;
}
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code: string }).code;

t.test("withdraws exactly the signed amount, to the owner by default", async (t) => {
  const agent = await fundedAgent();
  const before = await usdcOf(ctx, owner.account.address);
  const prepared = await prepare(agent, { amount: "1.5" });
  t.match(prepared.order, {
    wallet: getAddress(agent.walletAddress),
    to: owner.account.address,
    asset: getAddress(chain.usdc),
    amount: "1500000",
  });
  t.match(prepared.typedData, {
    primaryType: "Withdraw",
    domain: { name: "Purser", version: "3", chainId: chain.chainId },
    message: { ...prepared.order, amount: "1.50 USDC", deadline: / UTC$/ },
  });
  const signature = await owner.account.signTypedData(prepared.typedData as never);
  const answer = await execute(agent, { order: prepared.order, signature });
  t.equal(answer.statusCode, 200, answer.body);
  t.match(answer.json(), { success: true, txHash: /^0x[0-9a-f]{64}$/, paymentId: /^pay_/ });
  t.equal((await usdcOf(ctx, owner.account.address)) - before, 1_500_000n);

  const again = await execute(agent, { order: prepared.order, signature });
  t.equal(again.statusCode, 409);
  t.equal(codeOf(again), "withdrawal_replayed");
  t.same(await statusesOf(ctx, agent.id), { settled: 1 });
});

t.test("max empties the wallet; another recipient needs the signature", async (t) => {
  const agent = await fundedAgent();
  const to = privateKeyToAccount(generatePrivateKey()).address;
  const prepared = await prepare(agent, { amount: "max", to });
  t.equal(prepared.order.amount, String(10n * usdc));
  const answer = await execute(agent, {
    order: prepared.order,
    signature: await sign(owner.account, prepared),
  });
  t.equal(answer.statusCode, 200, answer.body);
  t.equal(await usdcOf(ctx, to), 10n * usdc);
  const empty = await call(owner, `/api/agents/${agent.id}/withdrawals/prepare`, { amount: "max" });
  t.equal(empty.statusCode, 402);
  t.match(empty.json(), {
    code: "insufficient_funds",
    suggestion: /^Payments and withdrawals that are not settled yet/,
  });
});

t.test("any field changed after signing is refused", async (t) => {
  const agent = await fundedAgent();
  const otherAccount = privateKeyToAccount(generatePrivateKey());
  const prepared = await prepare(agent, { amount: "1" });
  const signature = await sign(owner.account, prepared);
  const changes: Partial<Order>[] = [
    { wallet: otherAccount.address },
    { to: otherAccount.address },
    { asset: otherAccount.address },
    { amount: "9000000" },
    { nonce: `0x${"11".repeat(32)}` },
    { deadline: String(BigInt(prepared.order.deadline) - 1n) },
  ];
  for (const change of changes) {
    const answer = await execute(agent, { order: { ...prepared.order, ...change }, signature });
    t.equal(answer.statusCode, 401, `${JSON.stringify(change)} ${answer.body}`);
    t.equal(codeOf(answer), "invalid_signature");
  }
  for (const [name, forged] of [
    ["another signer", await sign(otherAccount, prepared)],
    ["another chain", await sign(owner.account, prepared, { chainId: 1 })],
    ["another domain", await sign(owner.account, prepared, { name: "Parser" })],
    ["another version", await sign(owner.account, prepared, { version: "1" })],
    ["a broken signature", `0x${"00".repeat(65)}`],
    ["a short signature", "0x00"],
  ] as const) {
    const answer = await execute(agent, { order: prepared.order, signature: forged });
    t.equal(answer.statusCode, 401, `${name} ${answer.body}`);
    t.equal(codeOf(answer), "invalid_signature");
  }
  t.equal(await usdcOf(ctx, agent.walletAddress), 10n * usdc);
});

t.test("an order signed for something else is refused", async (t) => {
  const [agent, other] = [await fundedAgent(), await fundedAgent()];
  const prepared = await prepare(other, { amount: "1" });
  const crossed = await execute(agent, {
    order: prepared.order,
    signature: await sign(owner.account, prepared),
  });
  t.equal(codeOf(crossed), "invalid_signature", "another agent's wallet");

  const signedAs = async (change: Partial<Order>) => {
    const fresh = await prepare(agent, { amount: "1" });
    const changed = { ...fresh, order: { ...fresh.order, ...change } };
    const signature = await sign(owner.account, changed);
    return execute(agent, { order: changed.order, signature });
  };
  const now = Math.floor(Date.now() / 1000);
  t.equal(codeOf(await signedAs({ deadline: String(now - 1) })), "signature_expired");
  t.equal(codeOf(await signedAs({ deadline: String(now + 3600) })), "validation_failed");
  t.equal(codeOf(await signedAs({ asset: owner.account.address })), "invalid_signature");
  t.equal(codeOf(await signedAs({ amount: String(11n * usdc) })), "insufficient_funds");
  t.equal(codeOf(await signedAs({ to: agent.walletAddress })), "invalid_address");
  t.equal(codeOf(await signedAs({ amount: "0" })), "invalid_amount");
  t.same(await statusesOf(ctx, agent.id), {});
});

t.test("a withdrawal cannot move money after the deadline of its order", async (t) => {
  const agent = await fundedAgent();
  const prepared = await prepare(agent, { amount: "1" });
  // Sooner than the time that every authorization is valid for.
  const deadline = String(Math.floor(Date.now() / 1000) + 60);
  const sooner = { ...prepared, order: { ...prepared.order, deadline } };
  const signature = await sign(owner.account, sooner);
  const answer = await execute(agent, { order: sooner.order, signature });
  t.equal(answer.statusCode, 200, answer.body);
  const { rows } = await database.pool.query<{ until: string }>(
    "SELECT valid_before::text AS until FROM settlements WHERE id = $1",
    [answer.json<{ paymentId: string }>().paymentId],
  );
  t.same(rows, [{ until: deadline }]);
});

t.test("two parallel calls with one order: one executes", async (t) => {
  const agent = await fundedAgent();
  const prepared = await prepare(agent, { amount: "6" });
  const body = { order: prepared.order, signature: await sign(owner.account, prepared) };
  const answers = await Promise.all([execute(agent, body), execute(agent, body)]);
  t.same(
    answers.map((answer) => answer.statusCode).sort((a, b) => a - b),
    [200, 409],
  );
  t.equal(await usdcOf(ctx, agent.walletAddress), 4n * usdc);
});

t.test("the same Idempotency-Key replays the response", async (t) => {
  const agent = await fundedAgent();
  const prepared = await prepare(agent, { amount: "1" });
  const body = { order: prepared.order, signature: await sign(owner.account, prepared) };
  const headers = { "idempotency-key": "w-1" };
  const first = await execute(agent, body, headers);
  const again = await execute(agent, body, headers);
  t.equal(again.statusCode, 200, again.body);
  t.equal(again.headers["idempotent-replayed"], "true");
  t.same(again.json(), first.json());
});

t.test("in parallel with a spend: never more than the balance", async (t) => {
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await fundedAgent({ dailyLimit: "100", allowlist: [payee] });
  const prepared = await prepare(agent, { amount: "max" });
  const body = { order: prepared.order, signature: await sign(owner.account, prepared) };
  const [withdrawal, spend] = await Promise.all([
    execute(agent, body),
    spendAs(app, agent, { recipient: payee, amount: "3" }),
  ]);
  const statuses = [withdrawal.statusCode, spend.statusCode].sort((a, b) => a - b);
  t.same(statuses, [200, 402], "the second of them is refused for the balance");
});

t.test("what an open payment has promised cannot be withdrawn", async (t) => {
  const agent = await fundedAgent();
  const prepared = await prepare(agent, { amount: "max" });
  await database.pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce)
     VALUES ($1, $2, 'spend', 'reserved', $3, $4, $4, 1, $5)`,
    [agent.id, newId("pay"), chain.chainId, chain.usdc.toLowerCase(), randomNonce()],
  );
  const signature = await sign(owner.account, prepared);
  const answer = await execute(agent, { order: prepared.order, signature });
  t.equal(answer.statusCode, 402, answer.body);
  t.match(
    answer.json(),
    { code: "insufficient_funds", suggestion: /^Withdraw less/ },
    "an owner who withdraws is not told to fund the wallet",
  );
  t.equal(await usdcOf(ctx, agent.walletAddress), 10n * usdc);
});

t.test("works when paused, expired and at the limit, and counts against none", async (t) => {
  const agent = await fundedAgent({ dailyLimit: "1", allowlist: [] });
  await callApi(app, owner, "DELETE", `/api/agents/${agent.id}/keys/${agent.keyId}`);
  await database.pool.query(
    "UPDATE agents SET status = 'paused', expires_at = now() - interval '1 day', daily_limit = 0 WHERE id = $1",
    [agent.id],
  );
  const prepared = await prepare(agent, { amount: "2" });
  const answer = await execute(agent, {
    order: prepared.order,
    signature: await sign(owner.account, prepared),
  });
  t.equal(answer.statusCode, 200, answer.body);
  const { rows } = await database.pool.query(
    "SELECT window_sum::int AS sum FROM agents WHERE id = $1",
    [agent.id],
  );
  t.same(rows, [{ sum: 0 }]);
});

t.test("the agent of another owner is not found", async (t) => {
  const agent = await fundedAgent();
  const thief = await signIn(ctx);
  const path = `/api/agents/${agent.id}/withdrawals`;
  t.equal((await call(thief, `${path}/prepare`, { amount: "1" })).statusCode, 404);
  const prepared = await prepare(agent, { amount: "1" });
  const body = { order: prepared.order, signature: await sign(owner.account, prepared) };
  t.equal((await call(thief, path, body)).statusCode, 404);
});

t.test("a contract owner: only the right magic value is accepted", async (t) => {
  const key = privateKeyToAccount(generatePrivateKey());
  const deployer = chain.walletClient(chain.admin);
  const hash = await deployer.sendTransaction({
    data: encodeDeployData({
      abi: walletArtifact.abi,
      bytecode: walletArtifact.bytecode as Hex,
      args: [key.address, 0],
    }),
  });
  const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
  const contract = getAddress(receipt.contractAddress as Address);
  const message = siweMessage(ctx, { nonce: await freshNonce(app), address: contract });
  const signedIn = await verify(ctx, { message, signature: await key.signMessage({ message }) });
  t.equal(signedIn.statusCode, 200, signedIn.body);
  const cookie = String([signedIn.headers["set-cookie"]].flat()[0]).split(";", 1)[0] ?? "";
  const smart: SignedInOwner = { account: key, cookie, headers: { ...owner.headers, cookie } };

  const agent = await createAgent(ctx, smart, { dailyLimit: "0", allowlist: [] });
  await chain.mint(agent.walletAddress, 10n * usdc);
  const setMode = async (mode: number) =>
    chain.publicClient.waitForTransactionReceipt({
      hash: await deployer.writeContract({
        address: contract,
        abi: walletArtifact.abi,
        functionName: "setMode",
        args: [mode],
      }),
    });
  for (const [mode, name] of [
    [1, "the wrong magic value"],
    [2, "reverts"],
    [3, "burns all gas"],
  ] as const) {
    await setMode(mode);
    const prepared = await prepare(agent, { amount: "1" }, smart);
    const body = { order: prepared.order, signature: await sign(key, prepared) };
    const answer = await execute(agent, body, {}, smart);
    t.ok([401, 503].includes(answer.statusCode), `${name}: ${answer.body}`);
  }
  t.equal(await usdcOf(ctx, agent.walletAddress), 10n * usdc);
  await setMode(0);
  const prepared = await prepare(agent, { amount: "1" }, smart);
  t.equal(prepared.order.to, contract);
  const body = { order: prepared.order, signature: await sign(key, prepared) };
  const answer = await execute(agent, body, {}, smart);
  t.equal(answer.statusCode, 200, answer.body);
  t.equal(await usdcOf(ctx, contract), usdc);
});
