// Goal: with the keys in a separate custody process, payments work as usual; when that process is killed, stopped,
// restarted or returns false data, nothing is paid twice, and a compromised service gets only signatures that an
// owner's signature covers.
import { fork, spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createConnection, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import Fastify from "fastify";
import t, { type Test } from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { orderDigest, typedDataOf, type Orders, REQUESTED_FORM } from "../../server/core/orders.ts";
import { rulesOfPolicy } from "../../server/core/orders.ts";
import { writeTeamSignature } from "../../server/core/teams.ts";
import { TIMINGS } from "../../server/core/timings.ts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import type { Authorization } from "../../server/core/authorization.ts";
import {
  listenPrivately,
  MAX_BODY_BYTES,
  SocketClient,
} from "../../server/infra/private-socket.ts";
import { RemoteVault } from "../../server/plugins/custody/remote-vault.ts";
import { decode, encode } from "../../server/plugins/custody/vault-calls.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import { asOwner, createAgent, sealedWallets, signIn } from "../helpers/owner.ts";
import { testChain } from "../helpers/chain.ts";
import { entry, makeTeam, teamCalls } from "../helpers/team.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { checkLedger, statusesOf } from "../spending/ledger.helper.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** As in the image. */
const OPERATORS_COMMAND = ["server/dist/custody.js"];
const usdc = 1_000_000n;
const folder = mkdtempSync(join(tmpdir(), "purser-custody-"));
const path = join(folder, "keys", "custody.sock");
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const chain = await testChain(t);
const database = await testDatabase(t);
const masterKeys = `own:${randomBytes(32).toString("base64")}`;
const role = `custody_${randomBytes(6).toString("hex")}`;
const readerUrl = await grantAsDocumented();
const custodyEnv = {
  ...testEnvironment({ databaseUrl: readerUrl, chain, port: 3000 }),
  RELAYER_PRIVATE_KEYS: "",
  FACILITATOR_OPEN: "",
  MASTER_KEYS: masterKeys,
  CUSTODY_SOCKET: path,
};

let custody = await startCustody();
const ctx = await testApp(t, { chain, database, env: { MASTER_KEYS: "", CUSTODY_SOCKET: path } });
const { app } = ctx;
const owner = await signIn(ctx);
const thief = await signIn(ctx);
const newAddress = (): Address => privateKeyToAccount(generatePrivateKey()).address;
const payee = newAddress();
const agent = await createAgent(ctx, owner, { dailyLimit: "1000", allowlist: [payee] });
await chain.mint(agent.walletAddress, 1_000n * usdc);

const spend = async (amount = "0.01", key?: string) => {
  const answer = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...agent.headers, ...(key && { "idempotency-key": key }) },
    payload: JSON.stringify({ recipient: payee, amount }),
  });
  return { status: answer.statusCode, ...answer.json<{ code?: string; detail?: string }>() };
};
const authorization = (over: object = {}): Authorization => ({
  chainId: chain.chainId,
  asset: chain.usdc,
  from: agent.walletAddress,
  to: payee,
  value: 1_000n,
  validAfter: 0n,
  validBefore: BigInt(Math.floor(Date.now() / 1_000) + 100),
  nonce: `0x${randomBytes(32).toString("hex")}`,
  ...over,
});
const BY_POLICY = { kind: "policy" } as const;

t.test("pays, changes rules and keeps secrets without a master key in this process", async (t) => {
  t.same(ctx.config.masterKeys, []);
  t.equal((await spend()).status, 200);
  const url = `/api/agents/${agent.id}`;
  for (const body of [
    { dailyLimit: "900" },
    { dailyLimit: "950" },
    { status: "paused" },
    { status: "active" },
  ]) {
    const changed = await asOwner(app, owner, { method: "PATCH", url, body });
    t.equal(changed.statusCode, 200, changed.body);
  }
  t.equal((await spend()).status, 200);
  const sealed = await app.secretBox.seal("webhook|1", Buffer.from("secret"));
  t.equal(Buffer.from(await app.secretBox.open("webhook|1", sealed)).toString(), "secret");
  await t.rejects(app.secretBox.open("webhook|2", sealed), { name: "CustodyError" });
  t.same(await app.masterKeyNames(), { active: "own", kids: ["own"] });
  t.equal(statSync(path).mode & 0o777, 0o600);
  t.equal(statSync(join(folder, "keys")).mode & 0o777, 0o700);
});

t.test("every refusal keeps its code", async (t) => {
  const sign = (over: object) =>
    app.custody.signAuthorization(agent.id, authorization(over), BY_POLICY);
  await t.rejects(sign({ to: newAddress() }), { code: "service_unavailable" }, "not covered");
  await t.rejects(sign({ asset: newAddress() }), { name: "CustodyError" }, "another token");
  await database.pool.query(
    `UPDATE agents SET daily_limit = daily_limit + 1 WHERE id = '${agent.id}'`,
  );
  await t.rejects(sign({}), { code: "policy_not_signed" }, "edited columns");
  const alarms = await app.metrics.getSingleMetric("purser_policy_not_signed_total")?.get();
  t.equal(alarms?.values[0]?.value, 1, "the alarm is raised in this process");
  await database.pool.query(
    `UPDATE agents SET daily_limit = daily_limit - 1 WHERE id = '${agent.id}'`,
  );
  t.ok(await sign({}));
});

t.test("a compromised service", async (t) => {
  const client = new SocketClient(path, TIMINGS);
  const vault = remoteVault(t, client);
  const refused = { name: "CustodyError" };
  const wallet = (await sealedWallets(database)).find(({ agentId }) => agentId === agent.id);
  const { rows } = await database.pool.query<{
    document: Orders["AgentPolicy"];
    signature: Buffer;
  }>(
    "SELECT document, signature FROM owner_orders WHERE agent_id = $1 AND kind = 'AgentPolicy' AND used_at IS NOT NULL ORDER BY version DESC",
    [agent.id],
  );
  const [newest, older] = rows;
  if (!wallet || !newest || !older) throw new Error("no wallet");
  const signedOrderOf = (order: Orders["AgentPolicy"], signature: Hex) => ({
    chainId: chain.chainId,
    order,
    digest: orderDigest("AgentPolicy", order, chain.chainId, REQUESTED_FORM),
    signature,
  });
  const current = { ...rulesOfPolicy(newest.document), status: "active" as const };
  const reseal = (signedOrder: ReturnType<typeof signedOrderOf> | undefined, wanted = current) =>
    vault.reseal(wallet, { current, wanted, signed: signedOrder });
  const next = async (over: Partial<Orders["AgentPolicy"]>, by = owner.account) => {
    const order: Orders["AgentPolicy"] = {
      ...newest.document,
      version: String(BigInt(newest.document.version) + 1n),
      deadline: String(Math.floor(Date.now() / 1_000) + 600),
      ...over,
    };
    const typed = typedDataOf("AgentPolicy", order, chain.chainId, REQUESTED_FORM) as never;
    return signedOrderOf(order, await by.signTypedData(typed));
  };
  const wider = { ...current, dailyLimitAtomic: current.dailyLimitAtomic * 2n };
  await t.rejects(reseal(undefined, wider), refused, "wider rules without a signature");
  await t.rejects(reseal(await next({}, thief.account)), refused, "signed by another wallet");
  await t.rejects(
    reseal(signedOrderOf(older.document, `0x${older.signature.toString("hex")}`)),
    refused,
    "an older policy of the owner",
  );
  await t.rejects(
    reseal(signedOrderOf(newest.document, `0x${newest.signature.toString("hex")}`)),
    refused,
    "the current policy again",
  );
  await t.rejects(reseal(await next({ agent: "agt_other" })), refused, "for another agent");
  await t.rejects(reseal(await next({}), wider), refused, "wider rules than signed");
  await t.rejects(reseal({ ...(await next({})), digest: `0x${"1".repeat(64)}` }), refused);
  await t.rejects(reseal(await next({ deadline: String(Math.floor(Date.now() / 1_000) - 100) })), {
    code: "signature_expired",
  });
  await t.rejects(
    vault.reseal(
      { ...wallet, rulesDigest: `0x${"2".repeat(64)}` },
      { current, wanted: current, signed: undefined },
    ),
    refused,
    "a seal of another wallet",
  );
  t.equal((await reseal(await next({}))).seal.revision, wallet.revision + 1, "signed by the owner");

  const to = { address: thief.account.address.toLowerCase(), chainId: 0 };
  const move: Orders["MoveOwner"] = {
    from: owner.account.address,
    to: thief.account.address,
    nonce: `0x${randomBytes(32).toString("hex")}`,
    deadline: String(Math.floor(Date.now() / 1_000) + 600),
  };
  const byThief = await thief.account.signTypedData(
    typedDataOf("MoveOwner", move, chain.chainId, REQUESTED_FORM) as never,
  );
  const digest = orderDigest("MoveOwner", move, chain.chainId, REQUESTED_FORM);
  const signedMove = {
    chainId: chain.chainId,
    order: move,
    digest,
    signature: byThief,
    secondSignature: byThief,
  };
  await t.rejects(
    vault.reown(wallet, to, { current, wanted: current, signed: signedMove }),
    refused,
    "moved without the owner's signature",
  );

  // Objects in place of names would be filters for the database.
  for (const [method, args] of [
    [
      "signCancel",
      [{ not: "" }, { chainId: chain.chainId, asset: chain.usdc, nonce: `0x${"1".repeat(64)}` }],
    ],
    [
      "signAuthorization",
      [agent.id, authorization(), { kind: "approval", approvalId: { not: "" } }],
    ],
    ["signAuthorization", [agent.id, { ...authorization(), value: "1" }, BY_POLICY]],
    ["constructor", []],
    ["a/call/of/another/release", []],
    ["keyNames", ["more"]],
    ["keyNames", {}],
  ] as const) {
    const answer = decode(await client.call(method, encode(args), 5_000));
    t.match(answer, { ok: false, kind: "custody" }, method);
  }
  for (const body of ["{{", "null", ""])
    t.match(decode(await client.call("keyNames", body, 5_000)), { ok: false }, body);
  // The connection is closed while the rest is being sent, so the response may be lost.
  const tooLong = client.call("keyNames", `[${" ".repeat(MAX_BODY_BYTES)}]`, 5_000);
  const refusal: unknown = await tooLong.then(decode, ({ cause }: Error) => cause);
  t.match(
    refusal,
    refusal instanceof Error ? { code: /^(EPIPE|ECONNRESET|UND_ERR_SOCKET)$/ } : { ok: false },
  );
  for (const bytes of [
    Buffer.from("GET / HTTP/1.1\r\n\r\n"),
    Buffer.from([255, 255, 255, 255]),
    // The release before sent JSON after its length.
    lengthPrefixed({ id: 1, method: "keyNames", args: [], timeoutMs: 5_000 }),
  ]) {
    const socket = createConnection(path);
    socket.on("error", () => undefined);
    socket.resume();
    socket.write(bytes);
    await once(socket, "close");
  }
  t.ok(await vault.keyNames(), "it still serves");
});

t.test("a team: as many members as it says, and nobody who was removed", async (t) => {
  const { carryOut, order, sign, together } = teamCalls(app);
  const [ada, bob, cleo] = [await signIn(ctx), await signIn(ctx), await signIn(ctx)];
  const people = [
    [ada, "admin"],
    [bob, "admin"],
    [cleo, "admin"],
  ] as const;
  await makeTeam(ctx, people as never, { threshold: 2 });
  const [home, shop] = [newAddress(), newAddress()];
  const body = { name: "Buyer", dailyLimit: "10", allowlist: [shop] };
  const { agent: buyer, apiKey } = (await together([ada, bob], "POST", "/api/agents", body)).body;
  await chain.mint(buyer.walletAddress, 10n * usdc);
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const paid = await app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers,
    payload: JSON.stringify({ recipient: shop, amount: "1" }),
  });
  t.equal(paid.statusCode, 200, paid.body);
  const named = await together([bob, cleo], "PUT", "/api/payout", { address: home });
  t.equal(named.status, 200, JSON.stringify(named.body));

  const vault = remoteVault(t, new SocketClient(path, TIMINGS));
  /** As a compromised service, which stores an order that these members signed. */
  const withdraw = async (...by: (typeof ada)[]): Promise<Hex> => {
    const { validBefore } = authorization();
    const nonce: Hex = `0x${randomBytes(32).toString("hex")}`;
    const wanted = { wallet: buyer.walletAddress, to: home, asset: chain.usdc, amount: "1000" };
    const document: Orders["Withdraw"] = { ...wanted, nonce, deadline: String(validBefore) };
    const typed = typedDataOf("Withdraw", document, chain.chainId, REQUESTED_FORM) as never;
    const parts = by.map(async ({ account }) => ({
      address: account.address,
      signature: await account.signTypedData(typed),
    }));
    const signature = writeTeamSignature(await Promise.all(parts));
    await database.pool.query(
      `INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
       VALUES ($1, $2, 'pay_x', $3, 1000, $4, $5)`,
      [
        buyer.id,
        nonce,
        home.toLowerCase(),
        document.deadline,
        Buffer.from(signature.slice(2), "hex"),
      ],
    );
    const transfer = authorization({ from: buyer.walletAddress, to: home, nonce, validBefore });
    return vault.signAuthorization(buyer.id, transfer, { kind: "withdrawal", orderNonce: nonce });
  };
  const refused = { name: "CustodyError" };
  await t.rejects(withdraw(ada), refused, "one of two");
  await t.rejects(withdraw(ada, thief), refused, "with a stranger");
  t.match(await withdraw(ada, bob), /^0x/, "two of three");
  const members = [entry(ada, "Ada", "admin"), entry(cleo, "Cleo", "admin")];
  const list = { name: "Acme", threshold: 2, approvalAbove: "1", members };
  const change = await order(ada, "PUT", "/api/team/members", list);
  t.equal((await carryOut(ada, await sign(cleo, change.body.id))).status, 200);
  await t.rejects(withdraw(ada, bob), refused, "the same process has seen Bob as an admin");
  t.match(await withdraw(ada, cleo), /^0x/);
  t.match(
    await vault.signAuthorization(
      buyer.id,
      authorization({ from: buyer.walletAddress, to: shop }),
      BY_POLICY,
    ),
    /^0x/,
    "the policy that Bob signed stays in force",
  );
});

t.test(
  "killed under load: refused or paid, nothing twice, and it recovers by itself",
  async (t) => {
    const answers: { key: string; status: number; code?: string | undefined }[] = [];
    const over = new AbortController();
    const load = (async () => {
      while (!over.signal.aborted) {
        const key = `load-${answers.length}`;
        answers.push({ key, ...(await spend("0.01", key)) });
      }
    })();
    const more = (isWanted = (_status: number): boolean => true) => {
      const from = answers.length;
      return until(() => answers.slice(from).some(({ status }) => isWanted(status)), 60_000);
    };
    await more();
    await end(custody, "SIGKILL");
    custody = await startCustody();
    await more((status) => status === 200);
    // The second time it is away longer than the service waits for it.
    ctx.config.timings.custodyReachMs = 50;
    await end(custody, "SIGKILL");
    await more((status) => status !== 200);
    custody = await startCustody();
    ctx.config.timings.custodyReachMs = TIMINGS.custodyReachMs;
    await more((status) => status === 200);
    over.abort();
    await load;
    const codes = new Set(answers.filter(({ status }) => status !== 200).map(({ code }) => code));
    t.same([...codes], ["keys_unavailable"]);
    const before = await statusesOf(ctx, agent.id);
    t.notOk(before["reserved"], "nothing stays reserved");
    // Repeats every call with its key: refused ones are paid, paid ones replay.
    for (const { key } of answers) t.equal((await spend("0.01", key)).status, 200, key);
    const { rows } = await database.pool.query<{ paid: number; nonces: number }>(
      `SELECT count(*)::int AS paid, count(DISTINCT nonce)::int AS nonces FROM settlements WHERE status = 'settled'`,
    );
    const after = await statusesOf(ctx, agent.id);
    t.equal(after["settled"], answers.length + 2, "each once");
    t.equal(rows[0]?.paid, rows[0]?.nonces);
    await checkLedger(t, ctx, { agentId: agent.id, payee });
  },
);

t.test("stopped: refused in time, and continues afterwards", async (t) => {
  ctx.config.timings.custodyAnswerMs = 300;
  custody.kill("SIGSTOP");
  const startMs = performance.now();
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, index) => spend("0.01", `stopped-${index}`)),
  );
  t.ok(performance.now() - startMs < 30_000, "they do not wait forever");
  for (const { code } of answers) t.equal(code, "keys_unavailable");
  t.equal((await app.inject({ url: "/api/ready" })).statusCode, 503);
  custody.kill("SIGCONT");
  ctx.config.timings.custodyAnswerMs = TIMINGS.custodyAnswerMs;
  await until(async () => (await spend()).status === 200, 60_000);
  t.notOk((await statusesOf(ctx, agent.id))["reserved"]);
});

const http = (body: string): Buffer =>
  Buffer.from(`HTTP/1.1 200 OK\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
const json = (answer: object): Buffer => http(encode(answer));

/** Undefined: the connection is closed. */
const FALSE_RESPONSES: Record<string, Buffer | undefined> = {
  "not HTTP": lengthPrefixed({ id: 1, answer: { ok: true, result: "" } }),
  "not JSON": http("{{"),
  "too long": http(" ".repeat(MAX_BODY_BYTES + 1)),
  "another shape": json({ ok: true, result: { $x: 1 } }),
  "another signature": json({ ok: true, result: `0x${"11".repeat(64)}1b` }),
  "an unknown code": json({
    ok: false,
    kind: "refused",
    code: "paid",
    detail: "",
    extra: {},
    headers: {},
  }),
  closed: undefined,
  silence: Buffer.alloc(0),
};

/** A process that gives this response to whatever it receives. */
async function respondFalsely(response: Buffer | undefined): Promise<() => Promise<void>> {
  const sockets = new Set<Socket>();
  const liar = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("data", () => (response ? void socket.write(response) : socket.destroy()));
  });
  rmSync(path, { force: true });
  await new Promise<void>((resolve) => liar.listen(path, resolve));
  chmodSync(path, 0o600);
  return async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => liar.close(resolve));
  };
}

t.test("false data from the custody process", async (t) => {
  await end(custody, "SIGTERM");
  for (const [name, response] of Object.entries(FALSE_RESPONSES)) {
    const close = await respondFalsely(response);
    if (name === "silence") ctx.config.timings.custodyAnswerMs = 300;
    t.equal((await spend()).code, "keys_unavailable", name);
    await close();
  }
  ctx.config.timings.custodyAnswerMs = TIMINGS.custodyAnswerMs;
  rmSync(path, { force: true });
  custody = await startCustody();
  await until(async () => (await spend()).status === 200, 60_000);
  t.pass("it accepts the right process again");
});

t.test("a custody process of the release before HTTP is reported as another release", async (t) => {
  await end(custody, "SIGTERM");
  // It closed a connection whose first bytes were no length of a message.
  const close = await respondFalsely(undefined);
  const reported: string[] = [];
  const vault = remoteVault(t, new SocketClient(path, TIMINGS), (reason) => reported.push(reason));
  await t.rejects(vault.keyNames(), { code: "keys_unavailable" });
  t.match(reported, [/keyNames: .* of another release and must be upgraded together/]);
  await close();
  rmSync(path, { force: true });
  custody = await startCustody();
});

t.test("a process that stops answers the calls that it has begun", async (t) => {
  const slow = Fastify();
  const signals = new EventEmitter();
  slow.post("/slow", async () => {
    signals.emit("begun");
    await once(signals, "finish");
    return "signed";
  });
  const elsewhere = join(folder, "slow", "custody.sock");
  await listenPrivately(slow, elsewhere);
  const client = new SocketClient(elsewhere, { custodyReachMs: 0 });
  t.teardown(() => client.close());
  const begun = once(signals, "begun");
  const answer = client.call("slow", "[]", 30_000);
  await begun;
  const closed = slow.close();
  signals.emit("finish");
  t.equal(await answer, "signed");
  await closed;
});

t.test("a call whose time is over counts as open until the pool is done with it", async (t) => {
  const nowhere = join(folder, "keys", "nowhere.sock");
  const client = new SocketClient(nowhere, { custodyReachMs: 600 });
  t.teardown(() => client.close());
  const calls = Array.from({ length: 1_024 }, () => client.call("keyNames", "[]", 50));
  for (const { status } of await Promise.allSettled(calls)) if (status !== "rejected") t.fail();
  await t.rejects(client.call("keyNames", "[]", 50), /1024 calls are open/);
  await until(async () => {
    const error: unknown = await client
      .call("keyNames", "[]", 50)
      .catch((reason: unknown) => reason);
    return !/are open/.test(String(error));
  }, 20_000);
});

t.test("connections without a complete request do not keep it from stopping", async (t) => {
  const sockets = [
    "",
    "POST /keyNames HTTP/1.1\r\nhost: socket\r\ncontent-length: 9\r\n\r\n[",
    "POST",
  ].map((bytes) => {
    const socket = createConnection(path);
    socket.on("error", () => undefined);
    socket.resume();
    socket.write(bytes);
    return socket;
  });
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  await sleep(200);
  const startMs = performance.now();
  await end(custody, "SIGTERM");
  t.ok(performance.now() - startMs < 15_000, "it stopped by itself");
  t.equal(custody.exitCode, 0);
  for (const socket of sockets) socket.destroy();
  custody = await startCustody();
  t.equal((await spend()).status, 200);
});

t.test("a call whose caller has gone is not carried out", async (t) => {
  const elsewhere = join(folder, "gone", "custody.sock");
  const child = fork(childScript("test/keys/custody.child.ts"), {
    env: {
      PATH: process.env["PATH"] ?? "",
      ...custodyEnv,
      CUSTODY_SOCKET: elsewhere,
      LOG_LEVEL: "error",
    },
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  t.teardown(() => void child.kill("SIGKILL"));
  await once(child, "message");
  const logged = once(child.stdout as NodeJS.ReadableStream, "data") as Promise<[Buffer]>;
  child.kill("SIGSTOP");
  const socket = createConnection(elsewhere);
  await once(socket, "connect");
  const head = "POST /keyNames HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n";
  await new Promise((sent) => socket.write(`${head}content-length: 2\r\n\r\n[]`, sent));
  socket.destroy();
  await once(socket, "close");
  child.kill("SIGCONT");
  t.match(String(await logged), "the caller has gone");
  await end(child, "SIGTERM");
});

t.test("the socket must belong to this user", async (t) => {
  const open = join(folder, "open");
  mkdirSync(open);
  chmodSync(open, 0o755);
  const elsewhere = join(open, "custody.sock");
  const started = await run({ ...custodyEnv, CUSTODY_SOCKET: elsewhere });
  t.equal(started.code, 1);
  t.match(started.output, "must be accessible only to this user");
  const second = await run(custodyEnv);
  t.match(second.output, "another process listens");
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const bare = await run(
    { PURSER_MODE: "production", MASTER_KEYS: "", CUSTODY_SOCKET: "" },
    OPERATORS_COMMAND,
  );
  for (const missing of ["CUSTODY_SOCKET", "MASTER_KEYS", "DATABASE_URL"])
    t.match(bare.output, `${missing} is missing`);
  t.notMatch(bare.output, /RELAYER|FACILITATOR|PUBLIC_URL/, "only what it needs");
  const client = new SocketClient(elsewhere, { custodyReachMs: 0 });
  await t.rejects(
    client.call("keyNames", "[]", 1_000),
    /no process responds .* must belong only to this user/,
    "a socket in a shared directory is not trusted",
  );
  await client.close();
});

function remoteVault(
  t: Test,
  client: SocketClient,
  onTrouble: (reason: string) => void = () => undefined,
): RemoteVault {
  const vault = new RemoteVault({
    client,
    networks: ctx.config.networks,
    timings: TIMINGS,
    onTrouble,
  });
  t.teardown(() => vault.close());
  return vault;
}

/** A message of the release before HTTP. */
function lengthPrefixed(message: object): Buffer {
  const body = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}

async function startCustody(): Promise<ChildProcess> {
  const child = fork(childScript("test/keys/custody.child.ts"), {
    env: { PATH: process.env["PATH"] ?? "", ...custodyEnv, LOG_LEVEL: "error" },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  t.teardown(() => void child.kill("SIGKILL"));
  const [message] = (await Promise.race([once(child, "message"), once(child, "exit")])) as [
    unknown,
  ];
  if (message !== "ready") throw new Error(`custody ended before it was ready: ${String(message)}`);
  return child;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  const ended = once(child, "exit");
  child.kill(signal);
  await ended;
}

/** Runs the process to its end; with the operator's own command where the test is about it. */
async function run(
  env: Record<string, string>,
  command = [childScript("test/keys/custody.child.ts")],
): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, command, {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], ...env },
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  return { code, output };
}

/** Creates exactly the role of docs/operations/custody-process.md: custody must not need more grants. */
async function grantAsDocumented(): Promise<string> {
  const text = readFileSync(join(ROOT, "docs/operations/custody-process.md"), "utf8");
  const [, sql] = /```sql\n(CREATE ROLE purser_custody[^`]*)```/.exec(text) ?? [];
  if (sql === undefined) throw new Error("docs/operations/custody-process.md grants nothing");
  const password = randomBytes(12).toString("hex");
  await database.pool.query(
    sql.replaceAll("purser_custody", role).replaceAll("<password>", password),
  );
  t.teardown(() =>
    database.pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`).catch(() => undefined),
  );
  const url = new URL(database.url);
  url.username = role;
  url.password = password;
  return url.href;
}
