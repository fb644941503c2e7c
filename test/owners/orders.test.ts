// Goal: an agent's rules are loosened only as its owner's wallet signed, once, despite crashes and races.
import { REQUESTED_FORM, typedDataOf, type Orders } from "../../server/core/orders.ts";
import t, { type Test } from "tap";
import { encodeDeployData, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import walletArtifact from "../helpers/contracts/TestWallet.json" with { type: "json" };
import { gateAt } from "../helpers/gate.ts";
import {
  asOwner,
  createAgent,
  freshNonce,
  signIn,
  signOrder,
  siweMessage,
  verify,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { startReplica } from "../spending/replica.helper.ts";

const service = await testApp(t);
const { app, chain } = service;
const sql = service.database.pool;
const owner = await signIn(service);
const newAddress = (): Address => privateKeyToAccount(generatePrivateKey()).address;

interface Answer {
  status: number;
  code?: string;
  order?: Record<string, unknown>;
  typedData?: object;
  agent?: { id: string };
  dailyLimit?: string;
}

type Method = "POST" | "PUT" | "PATCH" | "DELETE";

/** Sends one request, without signing automatically. */
async function send(
  method: Method,
  url: string,
  body: object = {},
  by: SignedInOwner = owner,
): Promise<Answer> {
  const answer = await app.inject({
    method,
    url,
    headers: by.headers,
    ...(method !== "DELETE" && { payload: JSON.stringify(body) }),
  });
  return { ...answer.json<object>(), status: answer.statusCode };
}

const signed = async (answer: Answer, by: PrivateKeyAccount = owner.account) => {
  const authorization = await signOrder(by, answer);
  if (!authorization) throw new Error(`nothing to sign: ${JSON.stringify(answer)}`);
  return authorization;
};

const rulesOf = async (id: string) => {
  const answer = await app.inject({ url: `/api/agents/${id}`, headers: owner.headers });
  return answer.json<{ dailyLimit: string; status: string; allowlist: { address: string }[] }>();
};

const usedOrders = async (agentId: string): Promise<number> => {
  const { rows } = await sql.query<{ count: number }>(
    "SELECT count(*)::int FROM owner_orders WHERE agent_id = $1 AND used_at IS NOT NULL",
    [agentId],
  );
  return rows[0]?.count ?? -1;
};

t.test("creating an agent: one request prepares the order, one creates it once", async (t) => {
  const body = { name: "Two steps", dailyLimit: "5", allowlist: [newAddress()], fetch: "sites" };
  const prepared = await send("POST", "/api/agents", body);
  t.match(prepared, { status: 403, code: "owner_signature_required" });
  t.match(prepared.order, {
    version: "1",
    name: "Two steps",
    dailyLimit: "5000000",
    weeklyLimit: String(2n ** 256n - 1n),
    fetch: "sites",
    payees: [{ payee: body.allowlist[0], site: "" }],
  });
  const authorization = await signed(prepared);
  t.match(await send("POST", "/api/agents", { ...body, dailyLimit: "6", authorization }), {
    status: 409,
    code: "policy_changed",
  });
  const both = await Promise.all([
    send("POST", "/api/agents", { ...body, authorization }),
    send("POST", "/api/agents", { ...body, authorization }),
  ]);
  const statuses = both.map(({ status }) => status).toSorted((left, right) => left - right);
  t.same(statuses, [201, 409], "two parallel requests create one agent");
  t.ok(both.some(({ code }) => code === "order_used"));
  const made = both.find(({ status }) => status === 201);
  t.equal(made?.agent?.id, prepared.order?.["agent"], "with the prepared id");
  const thief = await signIn(service);
  const again = await send("POST", "/api/agents", body, thief);
  t.match(
    await send("POST", "/api/agents", { ...body, authorization: await signed(again) }, thief),
    {
      status: 401,
      code: "invalid_signature",
    },
  );
  const { rows } = await sql.query(
    "SELECT 1 FROM owner_orders WHERE sealed IS NOT NULL AND used_at IS NOT NULL",
  );
  t.equal(rows.length, 0, "no second copy of the wallet key remains");
});

t.test("a session can leave at most 20 unsigned orders", async (t) => {
  const eager = await signIn(service);
  for (let count = 0; count < 25; count += 1)
    await send("POST", "/api/agents", { name: `a${count}`, dailyLimit: "1" }, eager);
  const { rows } = await sql.query<{ count: number }>(
    "SELECT count(*)::int FROM owner_orders r JOIN owners o ON o.id = r.owner_id WHERE o.address = $1",
    [eager.account.address.toLowerCase()],
  );
  t.equal(rows[0]?.count, 20);
});

t.test("loosening needs a signature, tightening does not", async (t) => {
  const [first, second] = [newAddress(), newAddress()];
  const site = "https://api.example.com";
  const { id, keyId } = await createAgent(service, owner, {
    dailyLimit: "5",
    weeklyLimit: "9",
    fetch: "sites",
    expiresAt: "2036-01-01T00:00:00Z",
    allowlist: [{ address: first, dailyLimit: "2", site }],
  });
  const url = `/api/agents/${id}`;
  const loosening: [Method, string, object][] = [
    ["PATCH", url, { dailyLimit: "5.000001" }],
    ["PATCH", url, { weeklyLimit: null }],
    ["PATCH", url, { fetch: "any" }],
    ["PATCH", url, { expiresAt: "2036-01-01T00:00:01Z" }],
    ["PATCH", url, { dailyLimit: "1", expiresAt: null }],
    ["POST", `${url}/allowlist`, { address: second }],
    ["POST", `${url}/allowlist`, { address: first, dailyLimit: null }],
    ["POST", `${url}/allowlist`, { address: first, site: "" }],
    ["POST", `${url}/allowlist`, { address: first, site: "http://api.example.com" }],
    ["PUT", `${url}/allowlist`, { allowlist: [first] }],
    ["POST", `${url}/keys`, {}],
    ["POST", `${url}/keys/${keyId}/rotate`, {}],
  ];
  for (const [method, path, body] of loosening)
    t.match(
      await send(method, path, body),
      { status: 403, code: "owner_signature_required", order: { agent: id } },
      `${method} ${JSON.stringify(body)}`,
    );
  const tightening: [Method, string, object][] = [
    [
      "PATCH",
      url,
      { name: "Renamed", monthlyLimit: "20", perPaymentLimit: "1", paymentsPerHour: 5 },
    ],
    ["PATCH", url, { dailyLimit: "4", expiresAt: "2035-01-01T00:00:00Z" }],
    [
      "POST",
      `${url}/allowlist`,
      { address: first, site, label: "Shop", dailyLimit: "1", perPaymentLimit: "1" },
    ],
    ["PATCH", url, { status: "paused" }],
    ["DELETE", `${url}/allowlist/${first}`, {}],
    ["PUT", `${url}/allowlist`, { allowlist: [] }],
    ["DELETE", `${url}/keys/${keyId}`, {}],
  ];
  for (const [method, path, body] of tightening) {
    const { status } = await send(method, path, body);
    t.ok(status < 300, `${method} ${JSON.stringify(body)}: ${status}`);
  }
  t.match(await send("PATCH", url, { status: "active" }), { code: "owner_signature_required" });
  t.match(
    await send("POST", `${url}/allowlist`, { address: second, site: "https://a.example/x" }),
    {
      status: 422,
    },
  );
});

t.test("limits and payees in one request are one order, applied together", async (t) => {
  const agent = await createAgent(service, owner, { dailyLimit: "5", allowlist: [newAddress()] });
  const url = `/api/agents/${agent.id}`;
  const payee = newAddress();
  const body = { dailyLimit: "7", allowlist: [{ address: payee, dailyLimit: "1" }] };
  const prepared = await send("PATCH", url, body);
  t.match(prepared, {
    status: 403,
    order: { dailyLimit: "7000000", payees: [{ payee, dailyLimit: "1000000" }] },
  });
  t.match(await rulesOf(agent.id), { dailyLimit: "5" }, "nothing is changed yet");
  const before = await usedOrders(agent.id);
  const done = await send("PATCH", url, { ...body, authorization: await signed(prepared) });
  t.match(done, { status: 200, dailyLimit: "7" });
  const now = await rulesOf(agent.id);
  t.same(
    now.allowlist.map(({ address }) => address),
    [payee],
  );
  t.equal((await usedOrders(agent.id)) - before, 1);
  t.match(
    await send("PATCH", url, { allowlist: [] }),
    { status: 200 },
    "removing payees needs no signature",
  );
  t.same((await rulesOf(agent.id)).allowlist, []);
});

t.test("an order is valid for its exact content, once, before its deadline", async (t) => {
  const { id } = await createAgent(service, owner, { dailyLimit: "5" });
  const other = await createAgent(service, owner, { dailyLimit: "5" });
  const url = `/api/agents/${id}`;
  const raise = { dailyLimit: "6" };
  const prepared = await send("PATCH", url, raise);
  const authorization = await signed(prepared);
  const wrong = await signed(prepared, privateKeyToAccount(generatePrivateKey()));
  const order = authorization.order as Record<string, string>;
  for (const [name, body, expected] of [
    ["not the owner", { ...raise, authorization: wrong }, { code: "invalid_signature" }],
    [
      "another order than was signed",
      { ...raise, authorization: { ...authorization, order: { ...order, dailyLimit: "7000000" } } },
      { code: "invalid_signature" },
    ],
    ["another request", { dailyLimit: "7", authorization }, { code: "policy_changed" }],
    [
      "a number out of range",
      {
        ...raise,
        authorization: { ...authorization, order: { ...order, dailyLimit: "9".repeat(78) } },
      },
      { code: "validation_failed" },
    ],
  ] as const)
    t.match(await send("PATCH", url, body), expected, name);
  t.match(
    await send("PATCH", `/api/agents/${other.id}`, { ...raise, authorization }),
    { status: 401, code: "invalid_signature" },
    "another agent",
  );
  t.match(await send("PATCH", url, { ...raise, authorization }), { status: 200, dailyLimit: "6" });
  t.match(await send("PATCH", url, { ...raise, authorization }), {
    status: 409,
    code: "order_used",
  });
  t.equal((await send("PATCH", url, { dailyLimit: "1" })).status, 200);
  t.match(
    await send("PATCH", url, { ...raise, authorization }),
    { code: "order_used" },
    "nor later",
  );

  const [one, two] = [
    await send("PATCH", url, raise),
    await send("PATCH", url, { dailyLimit: "8" }),
  ];
  const late = await signed(one);
  t.equal(
    (await send("PATCH", url, { dailyLimit: "8", authorization: await signed(two) })).status,
    200,
  );
  const stale = await send("PATCH", url, { dailyLimit: "9", authorization: late });
  t.match(stale, {
    status: 409,
    code: "policy_changed",
    order: { version: "4", dailyLimit: "9000000" },
  });
  const newer = await signed(stale);
  t.equal(
    (await send("PATCH", url, { dailyLimit: "9", authorization: newer })).status,
    200,
    "the newer one",
  );

  const timed = async (deadline: string) => {
    const answer = await send("PATCH", url, { dailyLimit: "20" });
    const order = { ...(answer.order as Orders["AgentPolicy"]), deadline };
    const typedData = typedDataOf("AgentPolicy", order, chain.chainId, REQUESTED_FORM);
    return send("PATCH", url, {
      dailyLimit: "20",
      authorization: await signed({ ...answer, order, typedData }),
    });
  };
  const now = Math.floor(Date.now() / 1000);
  t.match(await timed(String(now - 1)), { status: 422, code: "signature_expired" });
  t.match(await timed(String(now + 3600)), { status: 422, code: "validation_failed" });
  t.equal((await rulesOf(id)).dailyLimit, "9");
});

t.test("rules tightened after signing: the old order is refused", async (t) => {
  const [payee, more] = [newAddress(), newAddress()];
  const { id } = await createAgent(service, owner, { dailyLimit: "5", allowlist: [payee] });
  const url = `/api/agents/${id}`;
  const add = { address: more };
  const authorization = await signed(await send("POST", `${url}/allowlist`, add));
  t.equal((await send("PATCH", url, { dailyLimit: "1" })).status, 200);
  const answer = await send("POST", `${url}/allowlist`, { ...add, authorization });
  t.match(answer, { status: 409, code: "policy_changed", order: { dailyLimit: "1000000" } });
  t.equal((await rulesOf(id)).allowlist.length, 1);
});

t.test("a contract that owns agents signs for them", async (t) => {
  const key = privateKeyToAccount(generatePrivateKey());
  const hash = await chain.walletClient(chain.accounts[0] as PrivateKeyAccount).sendTransaction({
    data: encodeDeployData({
      abi: walletArtifact.abi,
      bytecode: walletArtifact.bytecode as Hex,
      args: [key.address, 0],
    }),
  });
  const { contractAddress } = await chain.publicClient.waitForTransactionReceipt({ hash });
  const address = contractAddress as Address;
  const message = siweMessage(service, { nonce: await freshNonce(app), address });
  const entered = await verify(service, { message, signature: await key.signMessage({ message }) });
  t.equal(entered.statusCode, 200, entered.body);
  const [cookie = ""] = [entered.headers["set-cookie"]].flat();
  const headers = { ...owner.headers, cookie: cookie.split(";", 1)[0] ?? "" };
  const mine: SignedInOwner = { account: key, cookie: headers.cookie, headers };
  const payee = newAddress();
  const agent = await createAgent(service, mine, { dailyLimit: "5", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 5_000_000n);
  const raise = {
    method: "PATCH" as const,
    url: `/api/agents/${agent.id}`,
    body: { dailyLimit: "6" },
  };
  t.equal((await asOwner(app, mine, raise)).statusCode, 200);
  const paid = await spendAs(app, agent, { recipient: payee, amount: "1" });
  t.equal(paid.statusCode, 200, paid.body);
  const refused = await send("PATCH", raise.url, { dailyLimit: "7" }, mine);
  t.match(
    await send("PATCH", raise.url, { dailyLimit: "7", authorization: await signed(refused) }, mine),
    { status: 401, code: "invalid_signature" },
    "another key does not",
  );
});

t.test("killed between the verification of the order and the commit", async (t) => {
  const { id } = await createAgent(service, owner, { dailyLimit: "5" });
  const url = `/api/agents/${id}`;
  const body = {
    dailyLimit: "6",
    authorization: await signed(await send("PATCH", url, { dailyLimit: "6" })),
  };
  for (const table of ["owner_orders", "agent_wallets", "audit_notes"])
    await t.test(`at ${table}`, (t) => killedAt(t, { table, id, body }));
  t.match(await send("PATCH", url, body), { status: 200, dailyLimit: "6" }, "the same order, once");
  t.match(await send("PATCH", url, body), { code: "order_used" });
  t.equal(await usedOrders(id), 2);
});

/** Kills the process while the database waits in the middle of its transaction. */
async function killedAt(
  t: Test,
  { table, id, body }: { table: string; id: string; body: object },
): Promise<void> {
  const doomed = await startReplica(t, service);
  const gate = await gateAt(t, sql, { on: `AFTER INSERT OR UPDATE ON ${table}` });
  const request = fetch(`${doomed.url}/api/agents/${id}`, {
    method: "PATCH",
    headers: {
      ...owner.headers,
      origin: new URL(doomed.url).origin.replace("127.0.0.1", "localhost"),
    },
    body: JSON.stringify(body),
  }).then(
    (answer) => answer.status,
    () => "cut",
  );
  await gate.reached();
  doomed.child.kill("SIGKILL");
  t.equal(await request, "cut");
  await gate.open();
  t.equal((await rulesOf(id)).dailyLimit, "5", "nothing was changed");
  t.equal(await usedOrders(id), 1);
}
