// Goal: a recovery wallet can only tighten rules and withdraw to the owner; all agents move to it when both wallets
// sign, or none does.
import t from "tap";
import { getAddress, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { orderDigest, REQUESTED_FORM, typedDataOf } from "../../server/core/orders.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import {
  asOwner,
  createAgent,
  nameRecoveryWallet,
  signIn,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { makeTeam, teamCalls } from "../helpers/team.ts";
import { until } from "../helpers/until.ts";
import { startReplica } from "../spending/replica.helper.ts";
import { assertAuditsHold } from "./audit.helper.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const { pool } = database;
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;
const ANOTHER = privateKeyToAccount(generatePrivateKey()).address;
const USDC = ctx.config.networks[0].usdc.address;

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
const call = (who: Pick<SignedInOwner, "headers">, method: Method, url: string, body?: unknown) =>
  callApi(app, who, method, url, body);
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code?: string }).code;

interface ToSign {
  order: Record<string, string>;
  typedData: Parameters<PrivateKeyAccount["signTypedData"]>[0];
}

const SECOND = "/api/recovery/second";
const MOVE = "/api/recovery/move";

const nameSecond = (owner: SignedInOwner, wallet: PrivateKeyAccount | null) =>
  nameRecoveryWallet(app, owner, wallet);

/** An owner with a funded agent, and a recovery wallet with a session. */
async function family() {
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [PAYEE] });
  await chain.mint(agent.walletAddress, 10_000_000n);
  const wallet = privateKeyToAccount(generatePrivateKey());
  await nameSecond(owner, wallet);
  const second = await signIn(ctx, wallet, owner.account.address);
  return { owner, agent, wallet, second };
}

const spend = (agent: NewTestAgent) => spendAs(app, agent, { recipient: PAYEE, amount: "0.5" });

/** A payment that is possible only with an approval. */
const payOnce = (agent: NewTestAgent, key: string, requestApproval: boolean) =>
  spendAs(app, agent, { recipient: ANOTHER, amount: "0.5", requestApproval }, key);

t.test("only the owner's wallet sets the recovery wallet, once per order", async (t) => {
  const owner = await signIn(ctx);
  const thief = privateKeyToAccount(generatePrivateKey());
  const body = { address: thief.address };
  const prepared = await call(owner, "PUT", SECOND, body);
  t.equal(codeOf(prepared), "owner_signature_required", "a stolen session is not enough");
  const { order, typedData } = prepared.json<ToSign>();
  t.match(order, { owner: owner.account.address, second: thief.address });
  const signed = async (account: PrivateKeyAccount, second = thief) => ({
    ...body,
    authorization: {
      order,
      signature: await account.signTypedData(typedData),
      secondSignature: await second.signTypedData(typedData),
    },
  });
  t.equal(codeOf(await call(owner, "PUT", SECOND, await signed(thief))), "invalid_signature");
  const byOwnerTwice = await call(owner, "PUT", SECOND, await signed(owner.account, owner.account));
  t.equal(codeOf(byOwnerTwice), "invalid_signature", "the wallet that is named did not sign");
  const { secondSignature: _missing, ...alone } = (await signed(owner.account)).authorization;
  const byOwnerAlone = await call(owner, "PUT", SECOND, { ...body, authorization: alone });
  t.match(byOwnerAlone.json(), {
    code: "validation_failed",
    errors: [{ path: "body.authorization.secondSignature" }],
  });
  t.match((await call(owner, "GET", "/api/recovery")).json(), { second: null });

  const another = privateKeyToAccount(generatePrivateKey());
  const other = { ...(await signed(owner.account, another)), address: another.address };
  t.equal(codeOf(await call(owner, "PUT", SECOND, other)), "policy_changed", "another wallet");
  const named = await call(owner, "PUT", SECOND, await signed(owner.account));
  t.match(named.json(), { second: { address: thief.address, chainId: 0 } });
  const { rows } = await pool.query<{ signature: string }>(
    `SELECT '0x' || encode(second_signature, 'hex') AS signature FROM owner_orders WHERE nonce = $1`,
    [order["nonce"]],
  );
  t.equal(rows[0]?.signature, await thief.signTypedData(typedData), "its signature is kept");
  await nameSecond(owner, null);
  t.equal(codeOf(await call(owner, "PUT", SECOND, await signed(owner.account))), "order_used");
  t.match((await call(owner, "GET", "/api/recovery")).json(), { second: null });
  const self = await call(owner, "PUT", SECOND, { address: owner.account.address });
  t.equal(codeOf(self), "validation_failed");
});

t.test("the recovery wallet reads and tightens, and does not loosen", async (t) => {
  const { owner, agent, wallet, second } = await family();
  const url = `/api/agents/${agent.id}`;
  t.match((await call(second, "GET", "/api/auth/session")).json(), {
    address: owner.account.address,
    second: wallet.address,
  });
  await t.rejects(signIn(ctx, privateKeyToAccount(generatePrivateKey()), owner.account.address));
  await t.rejects(
    signIn(ctx, wallet, PAYEE),
    /401/,
    "it is not the recovery wallet of another owner",
  );

  const refusals: [Method, string, unknown][] = [
    ["PATCH", url, { dailyLimit: "11" }],
    ["PATCH", url, { expiresAt: null, perPaymentLimit: null, dailyLimit: "99" }],
    ["POST", `${url}/allowlist`, { address: wallet.address }],
    ["PUT", `${url}/allowlist`, { allowlist: [PAYEE, wallet.address] }],
    ["POST", `${url}/keys`, {}],
    ["POST", `${url}/keys/${agent.keyId}/rotate`, {}],
    ["POST", `${url}/try`, { url: "http://10.0.0.1/" }],
    ["POST", "/api/agents", { name: "new", dailyLimit: "1" }],
    ["PUT", SECOND, { address: PAYEE }],
    ["POST", `${url}/withdrawals/prepare`, { amount: "1", to: wallet.address }],
  ];
  for (const [method, path, body] of refusals) {
    const answer = await call(second, method, path, body);
    t.equal(codeOf(answer), "second_wallet_only_tightens", `${method} ${path}`);
    t.equal(answer.statusCode, 403);
  }
  // Also with its own signature on an order that was prepared for the owner.
  const prepared = (await call(owner, "PATCH", url, { dailyLimit: "11" })).json<ToSign>();
  const signature = await wallet.signTypedData(prepared.typedData);
  const forged = await call(second, "PATCH", url, {
    dailyLimit: "11",
    authorization: { order: prepared.order, signature },
  });
  t.equal(codeOf(forged), "invalid_signature");

  t.equal((await call(second, "PATCH", url, { dailyLimit: "5" })).statusCode, 200);
  t.equal((await spend(agent)).statusCode, 200, "within the remaining limit");
  t.equal((await call(second, "PATCH", url, { status: "paused" })).statusCode, 200);
  t.equal(codeOf(await spend(agent)), "agent_paused");
  const resumed = await call(second, "PATCH", url, { status: "active" });
  t.equal(codeOf(resumed), "second_wallet_only_tightens");
  t.equal((await call(second, "DELETE", `${url}/keys/${agent.keyId}`)).statusCode, 200);
  const { items } = (await call(owner, "GET", `${url}/audit`)).json<{
    items: { action: string; actor: string }[];
  }>();
  t.match(items[0], { action: "key.revoked", actor: wallet.address });

  await nameSecond(owner, null);
  t.equal(
    (await call(second, "GET", "/api/agents")).statusCode,
    401,
    "its sessions end when it is removed",
  );
  await assertAuditsHold(t, app.prisma);
});

t.test("the recovery wallet withdraws to the owner's address and no other", async (t) => {
  const { owner, agent, wallet, second } = await family();
  const url = `/api/agents/${agent.id}/withdrawals`;
  const prepared = (await call(second, "POST", `${url}/prepare`, { amount: "2" })).json<ToSign>();
  t.equal(prepared.order["to"], owner.account.address);
  const body = {
    order: prepared.order,
    signature: await wallet.signTypedData(prepared.typedData),
  };
  t.equal(
    codeOf(await call(owner, "POST", url, body)),
    "invalid_signature",
    "its signature is not valid as the owner's",
  );
  const elsewhere = { ...prepared.order, to: wallet.address };
  const signature = await wallet.signTypedData(
    typedDataOf("Withdraw", elsewhere as never, chain.chainId, REQUESTED_FORM) as never,
  );
  const stolen = await call(second, "POST", url, { order: elsewhere, signature });
  t.equal(codeOf(stolen), "second_wallet_only_tightens");
  const taken = await call(second, "POST", url, body);
  t.equal(taken.statusCode, 200, taken.body);
  t.equal(codeOf(await call(second, "POST", url, body)), "withdrawal_replayed");

  /**
   * As an intruder with write access to the database: inserts an order of the recovery wallet and calls custody
   * directly.
   */
  const sign = async (to: Address) => {
    const nonce: Hex = `0x${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("hex")}`;
    const deadline = BigInt(Math.floor(Date.now() / 1000) + 600);
    const order = {
      wallet: getAddress(agent.walletAddress),
      to: getAddress(to),
      asset: getAddress(USDC),
      amount: "1",
      nonce,
      deadline: String(deadline),
    };
    const signed = await wallet.sign({
      hash: orderDigest("Withdraw", order, chain.chainId, REQUESTED_FORM),
    });
    await pool.query(
      `INSERT INTO withdrawal_orders (agent_id, nonce, payment_id, to_address, amount, deadline, signature)
       VALUES ($1, $2, $2, $3, 1, $4, decode($5, 'hex'))`,
      [agent.id, nonce, to.toLowerCase(), String(deadline), signed.slice(2)],
    );
    const authorization = {
      chainId: chain.chainId,
      asset: USDC,
      from: agent.walletAddress.toLowerCase() as Address,
      to: to.toLowerCase() as Address,
      value: 1n,
      validAfter: 0n,
      validBefore: deadline,
      nonce,
    };
    return app.custody.signAuthorization(agent.id, authorization, {
      kind: "withdrawal",
      orderNonce: nonce,
    });
  };
  t.match(await sign(owner.account.address), /^0x/);
  await t.rejects(sign(wallet.address), { code: "policy_not_signed" });
  await nameSecond(owner, privateKeyToAccount(generatePrivateKey()));
  await t.rejects(
    sign(owner.account.address),
    { code: "policy_not_signed" },
    "it is no longer the recovery wallet",
  );
});

/** An order to move the owner's agents, signed by both wallets. */
async function moveOrder(who: SignedInOwner, first: PrivateKeyAccount, second: PrivateKeyAccount) {
  const { order, typedData } = (await call(who, "POST", MOVE, {})).json<ToSign>();
  return {
    authorization: {
      order,
      signature: await first.signTypedData(typedData),
      secondSignature: await second.signTypedData(typedData),
    },
  };
}

t.test("everything moves when both sign; agents pay after a new signature", async (t) => {
  const { owner, agent, wallet, second } = await family();
  const thief = privateKeyToAccount(generatePrivateKey());
  const url = `/api/agents/${agent.id}`;
  const paused = await createAgent(ctx, owner, { name: "other" });
  await call(owner, "PATCH", `/api/agents/${paused.id}`, { status: "paused" });
  t.equal((await spend(agent)).statusCode, 200);
  const { approvalId } = (await payOnce(agent, "once", true)).json<{ approvalId: string }>();
  const approve = {
    method: "POST",
    url: `/api/approvals/${approvalId}/approve`,
    body: {},
  } as const;
  t.equal((await asOwner(app, owner, approve)).statusCode, 200);

  t.equal(codeOf(await call(owner, "POST", MOVE, {})), "owner_signature_required");
  for (const [first, other] of [
    [owner.account, owner.account],
    [wallet, wallet],
    [owner.account, thief],
    [thief, wallet],
  ] as const) {
    const answer = await call(owner, "POST", MOVE, await moveOrder(owner, first, other));
    t.equal(codeOf(answer), "invalid_signature");
  }
  await pool.query(
    `INSERT INTO email_addresses (owner_id, address, confirmed_at, digest, urgent, next_digest_at)
       SELECT owner_id, 'old@mail.example', now(), 'daily', '{policy.changed}', now() FROM agents WHERE id = $1`,
    [agent.id],
  );
  const body = await moveOrder(second, owner.account, wallet);
  const moved = await call(second, "POST", MOVE, body);
  t.match(moved.json(), { success: true, owner: wallet.address, agents: 2 });
  t.match(moved.json<{ note: string }>().note, /Resume each agent/);
  t.same(
    (await pool.query("SELECT 1 FROM email_addresses")).rows,
    [],
    "the e-mail address is removed",
  );
  const { rows: mails } = await pool.query("SELECT address, kind, content FROM mails");
  t.match(mails, [
    {
      address: "old@mail.example",
      kind: "address",
      content: { owner: owner.account.address, change: "away" },
    },
  ]);
  t.equal(mails.length, 1, "it gets one mail about the move, and none afterwards");

  t.equal(
    (await call(second, "GET", "/api/agents")).statusCode,
    401,
    "it is no longer the recovery wallet",
  );
  t.same((await call(owner, "GET", "/api/agents")).json<{ items: unknown[] }>().items, []);
  t.equal((await call(owner, "GET", url)).statusCode, 404);
  const now = await signIn(ctx, wallet);
  const agents = (await call(now, "GET", "/api/agents")).json<{ items: { status: string }[] }>();
  t.same(
    agents.items.map(({ status }) => status),
    ["paused", "paused"],
  );
  t.equal(codeOf(await call(owner, "POST", MOVE, body)), "order_used");

  t.equal(codeOf(await spend(agent)), "agent_paused");
  await pool.query("UPDATE agents SET status = 'active' WHERE id = $1", [agent.id]);
  t.equal(codeOf(await spend(agent)), "policy_not_signed", "the new owner has not signed yet");
  await pool.query("UPDATE agents SET status = 'paused' WHERE id = $1", [agent.id]);
  const status = { status: "active" };
  const prepared = (await call(now, "PATCH", url, status)).json<ToSign>();
  const byOld = await owner.account.signTypedData(prepared.typedData);
  const old = { ...status, authorization: { order: prepared.order, signature: byOld } };
  t.equal(codeOf(await call(now, "PATCH", url, old)), "invalid_signature");
  t.equal((await asOwner(app, now, { method: "PATCH", url, body: status })).statusCode, 200);
  const paid = await spend(agent);
  t.equal(paid.statusCode, 200, paid.body);
  t.equal(
    codeOf(await payOnce(agent, "once", false)),
    "recipient_not_allowed",
    "approvals of the former owner are void",
  );
  t.equal((await payOnce(agent, "again", true)).statusCode, 202);
  const open = (await call(now, "GET", "/api/approvals?status=open")).json<{
    items: unknown[];
  }>();
  t.equal(open.items.length, 1, "the new owner gets the request");

  const ids = (
    await pool.query("SELECT id FROM owners WHERE address = $1", [
      owner.account.address.toLowerCase(),
    ])
  ).rows;
  await pool.query("UPDATE agents SET owner_id = $2 WHERE id = $1", [agent.id, ids[0]?.id]);
  t.equal(
    codeOf(await spend(agent)),
    "policy_not_signed",
    "the wallet is sealed for the new owner",
  );

  const history = (await call(owner, "GET", `${url}/audit`)).json<{
    items: { action: string }[];
  }>();
  const actions = history.items.map((entry) => entry.action);
  t.ok(actions.includes("agent.created") && actions.includes("agent.resumed"), "one history");
  const last = (await call(owner, "GET", "/api/audit")).json<{ items: { action: string }[] }>();
  t.ok(last.items.some(({ action }) => action === "owner.moved"));
  await assertAuditsHold(t, app.prisma);
});

t.test("killed during a move: nothing has moved, and a repeat moves everything", async (t) => {
  const { owner, agent, wallet } = await family();
  const more = await Promise.all([createAgent(ctx, owner), createAgent(ctx, owner)]);
  const last = [agent, ...more]
    .map(({ id }) => id)
    .toSorted()
    .at(-1);
  const body = await moveOrder(owner, owner.account, wallet);
  const replica = await startReplica(t, ctx);
  const holder = await pool.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT 1 FROM agent_wallets WHERE agent_id = $1 FOR UPDATE", [last]);
  const request = fetch(`${replica.url}${MOVE}`, {
    method: "POST",
    headers: { ...owner.headers, origin: replica.url.replace("127.0.0.1", "localhost") },
    body: JSON.stringify(body),
  }).catch(() => undefined);
  await until(async () => {
    const { rows } = await pool.query<{ waiting: boolean }>(
      `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
         WHERE wait_event_type = 'Lock' AND query LIKE '%agent_wallets%' AND pid <> pg_backend_pid()) AS waiting`,
    );
    return rows[0]?.waiting === true;
  });
  replica.child.kill("SIGKILL");
  await Promise.all([request, replica.ended]);
  await holder.query("ROLLBACK");
  holder.release();

  const statuses = async (who: SignedInOwner) =>
    (await call(who, "GET", "/api/agents"))
      .json<{ items: { status: string }[] }>()
      .items.map(({ status }) => status);
  t.same(await statuses(owner), ["active", "active", "active"]);
  t.equal((await spend(agent)).statusCode, 200, "the agent still pays");
  const moved = await call(owner, "POST", MOVE, body);
  t.match(moved.json(), { success: true, agents: 3 }, "the same order is still unused");
  t.same(await statuses(owner), []);
  t.same(await statuses(await signIn(ctx, wallet)), ["paused", "paused", "paused"]);
  await assertAuditsHold(t, app.prisma);
});

t.test(
  "a team's agents move to its recovery wallet as its admins and that wallet sign",
  async (t) => {
    const { order, sign, carryOut, together } = teamCalls(app);
    const [ada, bob, cleo] = [await signIn(ctx), await signIn(ctx), await signIn(ctx)];
    const members = [
      [ada, "admin"],
      [bob, "admin"],
      [cleo, "approver"],
    ] as const;
    const team = await makeTeam(ctx, members as never, { threshold: 2 });
    const made = await together([ada, bob], "POST", "/api/agents", {
      name: "Buyer",
      dailyLimit: "5",
    });
    t.equal(made.status, 201, JSON.stringify(made.body));
    const wallet = privateKeyToAccount(generatePrivateKey());
    t.equal((await order(ada, "POST", MOVE, {})).body.code, "conflict", "none is named");
    const named = await order(ada, "PUT", SECOND, { address: wallet.address }, wallet);
    t.equal((await carryOut(ada, await sign(bob, named.body.id))).status, 200);

    t.equal((await order(cleo, "POST", MOVE, {}, wallet)).body.code, "invalid_signature");
    t.equal((await order(ada, "POST", MOVE, {}, bob.account)).body.code, "invalid_signature");
    const waiting = await order(ada, "POST", MOVE, {}, wallet);
    t.equal(waiting.status, 202, JSON.stringify(waiting.body));
    t.equal(
      (await call(ada, "GET", "/api/agents")).json<{ items: [] }>().items.length,
      1,
      "not yet",
    );
    const last = await sign(bob, waiting.body.id);
    const moved = await carryOut(bob, last);
    t.match(moved.body, { success: true, owner: wallet.address, agents: 1 });
    t.equal((await carryOut(ada, last)).body.code, "order_used");
    t.same((await call(ada, "GET", "/api/agents")).json<{ items: [] }>().items, []);
    const now = await signIn(ctx, wallet);
    const url = `/api/agents/${made.body.agent.id}`;
    const resumed = await asOwner(app, now, { method: "PATCH", url, body: { status: "active" } });
    t.equal(resumed.statusCode, 200, resumed.body);
    t.match(await verdictOf(team), /^true /);
    t.match(
      await verdictOf(wallet.address),
      /^true .*not recomputed/,
      "its members are not in there",
    );
  },
);

/** Whether this owner's audit holds, and what the check says first. */
async function verdictOf(owner: string): Promise<string> {
  const said: string[] = [];
  const holds = await verifyDatabase(app.prisma, { owner, noted: [] }, (line) => said.push(line));
  return `${holds} ${said[0]}`;
}
