// Goal: a process that dies anywhere in a sign-up, a change of the passkeys or of the payout address, or in a team's order leaves
// all of it or nothing: its person signs in or starts again, and can withdraw; a team sends the same order again.
import { AsyncLocalStorage } from "node:async_hooks";
import type { PoolClient } from "pg";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Pool } from "../../server/infra/db/pool.ts";
import { testApp } from "../helpers/app.ts";
import { callApi } from "../helpers/call.ts";
import { gateAt } from "../helpers/gate.ts";
import { isFullTier } from "../helpers/tier.ts";
import { createAgent, signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";
import { entry, makeTeam, teamCalls, type Answer } from "../helpers/team.ts";
import { assertAuditsHold } from "./audit.helper.ts";
import { startReplica } from "../spending/replica.helper.ts";
import {
  passkeyOptions,
  signUpWithPasskey,
  testPasskey,
  tryOffer,
  tryPasskeySignIn,
  preparedOffer,
  preparedSignUp,
  trySignUp,
  type TestPasskey,
} from "../helpers/passkey.ts";

const service = await testApp(t);
const { app, chain, config, database } = service;

/** A request whose process dies: before one of its writes, and from then on nothing of it reaches the database. */
interface Life {
  writesLeft: number;
  /** What it wanted to write next. */
  diedAt: string | undefined;
  writes: string[];
}
const lives = new AsyncLocalStorage<Life>();
const CONNECTION = Symbol("watched");

/** A nonce is used up before anything is verified, so that an answer works at most once; requests are counted. */
const IS_BEFORE = /\bauth_nonces\b|\brate_/;

type Watched = PoolClient & { [CONNECTION]?: true; connection: { stream: { destroy(): void } } };
type Args = [string | { text: string }, ...unknown[]];

function watch(pool: Pool): void {
  pool.on("acquire", (acquired) => {
    const client = acquired as Watched;
    if (client[CONNECTION]) return;
    client[CONNECTION] = true;
    const send = client.query.bind(client) as (...args: Args) => unknown;
    client.query = ((...args: Args) => {
      const life = lives.getStore();
      if (!life) return send(...args);
      const text = (typeof args[0] === "string" ? args[0] : args[0].text).trim();
      const isRead = /^SELECT\b(?!.*\bpurser_)/is.test(text) || IS_BEFORE.test(text);
      if (life.diedAt === undefined && (isRead || life.writes.length < life.writesLeft)) {
        if (!isRead) life.writes.push(text);
        return send(...args);
      }
      life.diedAt ??= text;
      client.connection.stream.destroy();
      const error = new Error("Connection terminated unexpectedly");
      const done = args.at(-1);
      if (typeof done !== "function") return Promise.reject(error);
      queueMicrotask(() => (done as (error: Error) => void)(error));
      return undefined;
    }) as never;
  });
}
for (const pool of [app.pool, app.prismaPool]) watch(pool);

/** Runs the request with a death before its first write, its second, and so on, until it does not die any more. */
async function withEachDeath(
  t: Test,
  request: () => Promise<{ statusCode: number; body: string }>,
  {
    before,
    after,
  }: { before: () => Promise<unknown>; after: (diedAt: string) => Promise<unknown> },
): Promise<void> {
  for (let writes = 0; ; writes += 1) {
    await before();
    const life: Life = { writesLeft: writes, diedAt: undefined, writes: [] };
    // An injected request is sent when it is awaited.
    const answer = await lives.run(life, async () => await request());
    if (life.diedAt === undefined) {
      t.equal(answer.statusCode, 200, answer.body);
      assertOneTransaction(t, life.writes);
      return;
    }
    t.not(answer.statusCode, 200);
    await after(`${writes}: ${life.diedAt.slice(0, 60)}`);
  }
}

function assertOneTransaction(t: Test, writes: readonly string[]): void {
  t.ok(writes.length > 3, "its writes were seen");
  t.equal(writes[0], "BEGIN", "nothing is written before it");
  t.equal(writes.indexOf("COMMIT"), writes.length - 1, "and nothing after it");
}

/** The request with the owner's signature, which is made now. */
async function signed(
  owner: Pick<SignedInOwner, "account" | "headers">,
  url: string,
  body: object,
): Promise<() => ReturnType<typeof callApi>> {
  const asked = await callApi(app, owner, "PUT", url, body);
  const authorization = await signOrder(owner.account, asked.json());
  if (!authorization) throw new Error(asked.body);
  return () => callApi(app, owner, "PUT", url, { ...body, authorization });
}

const passkeyHere = () => testPasskey(config.publicUrl);
const wallet = () => privateKeyToAccount(generatePrivateKey()).address;

/** How many rows of an owner each table has. */
async function rowsOf(passkey: TestPasskey): Promise<string> {
  const { rows } = await database.pool.query<{ counts: string }>(
    `SELECT concat_ws(' ', (SELECT count(*) FROM owners WHERE address = $1), (SELECT count(*) FROM passkeys WHERE id = $2),
              (SELECT count(*) FROM sessions s JOIN owners o ON o.id = s.owner_id WHERE o.address = $1),
              (SELECT count(*) FROM audit_log l JOIN owners o ON o.id = l.owner_id WHERE o.address = $1)
                + (SELECT count(*) FROM audit_notes n JOIN owners o ON o.id = n.owner_id WHERE o.address = $1)) AS counts`,
    [passkey.address, passkey.credentialId],
  );
  return rows[0]?.counts ?? "";
}

t.test("a sign-up", async (t) => {
  let passkey = passkeyHere();
  let signUp = await preparedSignUp(service, passkey);
  const seen = new Set<string>();
  await withEachDeath(t, () => signUp(), {
    before: async () => {
      passkey = passkeyHere();
      signUp = await preparedSignUp(service, passkey);
    },
    after: async (diedAt) => {
      const rows = await rowsOf(passkey);
      seen.add(rows);
      const again = await trySignUp(service, passkey);
      t.equal(again.statusCode, 200, `${diedAt}: ${again.body}`);
      const signIn = await tryPasskeySignIn(service, passkey);
      t.equal(signIn.statusCode, 200, `${diedAt}: ${signIn.body}`);
    },
  });
  t.same([...seen], ["0 0 0 0"], "nothing of it is there before its commit");
  t.match(await rowsOf(passkey), /^1 1 1 [1-9]/, "all of it is there after it");
});

t.test("another passkey, and the list with it", async (t) => {
  const owner = await signUpWithPasskey(service);
  let next = passkeyHere();
  const url = "/api/passkeys";
  const list = async () => {
    const answer = await callApi(app, owner, "GET", url);
    return answer.json<{ version: number; passkeys: { id: string; status: string }[] }>();
  };
  const statusOf = async ({ credentialId }: TestPasskey) =>
    (await list()).passkeys.find(({ id }) => id === credentialId)?.status;
  const idsOf = (...passkeys: TestPasskey[]) => ({
    ids: passkeys.map(({ credentialId }) => credentialId),
  });
  const alone = async () => {
    const answer = await (await signed(owner, url, idsOf(owner.passkey)))();
    if (answer.statusCode !== 200) throw new Error(answer.body);
  };
  let offer = await preparedOffer(service, owner, next);
  await withEachDeath(t, () => offer(), {
    before: async () => {
      next = passkeyHere();
      offer = await preparedOffer(service, owner, next);
    },
    after: async (diedAt) => {
      t.equal(await statusOf(next), undefined, diedAt);
      t.equal((await tryOffer(service, owner, next)).statusCode, 200, diedAt);
    },
  });
  let request = offer;
  let version = 0;
  await withEachDeath(t, () => request(), {
    before: async () => {
      await alone();
      next = passkeyHere();
      await tryOffer(service, owner, next);
      version = (await list()).version;
      request = await signed(owner, url, idsOf(owner.passkey, next));
    },
    after: async (diedAt) => {
      t.equal((await list()).version, version, diedAt);
      t.equal(await statusOf(next), "offered", diedAt);
      t.equal((await tryPasskeySignIn(service, owner.passkey)).statusCode, 200, diedAt);
      const again = await request();
      t.equal(again.statusCode, 200, `${diedAt}: the same order may be sent again: ${again.body}`);
    },
  });
  t.equal((await tryPasskeySignIn(service, next)).statusCode, 200);
});

t.test("a payout address, while there is money", async (t) => {
  const owner = await signUpWithPasskey(service);
  const agent = await createAgent(service, owner);
  await chain.mint(agent.walletAddress, 1_000_000n);
  const url = "/api/payout";
  const payout = async () => (await callApi(app, owner, "GET", url)).json<unknown>();
  const [first, second] = [wallet(), wallet()];
  let request = await signed(owner, url, { address: first });
  await withEachDeath(t, () => request(), {
    before: async () => undefined,
    after: async (diedAt) => {
      t.same(await payout(), { address: null, since: null, next: null }, diedAt);
    },
  });
  await withEachDeath(t, () => request(), {
    before: async () => (request = await signed(owner, url, { address: second })),
    after: async (diedAt) => {
      t.match(await payout(), { address: first, since: String, next: null }, diedAt);
      const path = `/api/agents/${agent.id}/withdrawals/prepare`;
      const prepared = await callApi(app, owner, "POST", path, { amount: "1" });
      t.match(prepared.json(), { order: { to: first } }, `${diedAt}: the money can be withdrawn`);
    },
  });
  t.match(await payout(), { address: first, next: { address: second } });
});

/** Sends the request to a process of its own, which is killed while the database waits in the middle of its transaction. */
async function killedAt(
  t: Test,
  table: string,
  [method, path, body]: [string, string, object],
  headers: Record<string, string> = { "content-type": "application/json" },
): Promise<void> {
  const doomed = await startReplica(t, service, { PUBLIC_URL: config.publicUrl });
  const gate = await gateAt(t, database.pool, { on: `AFTER INSERT OR UPDATE ON ${table}` });
  const { origin } = new URL(config.publicUrl);
  const request = fetch(`${doomed.url}${path}`, {
    method,
    headers: { ...headers, origin },
    body: JSON.stringify(body),
  }).then(
    ({ status }) => status,
    () => "cut",
  );
  await gate.reached();
  doomed.child.kill("SIGKILL");
  t.equal(await request, "cut");
  await gate.open();
}

t.test("a process that is killed", async (t) => {
  await t.test("in a sign-up", async (t) => {
    const passkey = passkeyHere();
    const { nonce, challenge } = await passkeyOptions(
      service,
      "/api/auth/passkey/register-options",
    );
    const credential = passkey.create(challenge);
    const body = { nonce, name: "Laptop", credential };
    await killedAt(t, "sessions", ["POST", "/api/auth/passkey/register", body]);
    t.equal(await rowsOf(passkey), "0 0 0 0");
    t.equal((await trySignUp(service, passkey)).statusCode, 200);
  });
  await t.test("in a change of the payout address", async (t) => {
    const owner = await signUpWithPasskey(service);
    const url = "/api/payout";
    const asked = await callApi(app, owner, "PUT", url, { address: wallet() });
    const { order } = asked.json<{ order: { payout: string } }>();
    const authorization = await signOrder(owner.account, asked.json());
    const body = { address: order.payout, authorization };
    await killedAt(t, "owner_orders", ["PUT", url, body], owner.headers);
    t.match((await callApi(app, owner, "GET", url)).json(), { address: null });
    t.equal((await callApi(app, owner, "PUT", url, body)).statusCode, 200, "the same order");
    t.match((await callApi(app, owner, "GET", url)).json(), { address: order.payout });
  });
});

t.test("a process that is killed in an order of a team", async (t) => {
  const { send, order, sign, signatureOf, carryOut, together } = teamCalls(app);
  const [ada, bob, cleo] = [await signIn(service), await signIn(service), await signIn(service)];
  const people = [
    [ada, "admin"],
    [bob, "admin"],
  ] as const;
  const team = await makeTeam(service, people as never, { threshold: 2 });
  const made = await together([ada, bob], "POST", "/api/agents", {
    name: "Buyer",
    dailyLimit: "5",
  });
  const { id } = made.body.agent;
  const url = `/api/agents/${id}`;
  const stateNow = async (): Promise<string> => {
    const { rows } = await database.pool.query<{ state: string }>(
      `SELECT concat_ws(' ', (SELECT daily_limit / 1000000 FROM agents WHERE id = $1),
                (SELECT count(*) FROM owner_orders p WHERE p.owner_id = o.id AND p.used_at IS NOT NULL),
                (SELECT count(*) FROM team_members m WHERE m.team_id = o.id),
                (SELECT count(*) FROM waiting_orders w WHERE w.team_id = o.id AND w.end_reason IS NULL),
                (SELECT count(*) FROM audit_log l WHERE l.owner_id = o.id)) AS state
         FROM owners o WHERE o.address = $2`,
      [id, team.toLowerCase()],
    );
    return rows[0]?.state ?? "";
  };
  const killedIn = async (table: string, { body: { request } }: Answer): Promise<void> => {
    const before = await stateNow();
    const { method, path, body } = request;
    await killedAt(t, table, [method, path, body], ada.headers);
    t.equal(await stateNow(), before, `${table}: nothing of it happened`);
  };

  const waiting = await order(ada, "PATCH", url, { dailyLimit: "6" });
  const orderUrl = `/api/waiting-orders/${waiting.body.id}`;
  if (isFullTier) {
    const signature = await signatureOf(bob, waiting.body.id);
    await killedAt(t, "waiting_orders", ["POST", `${orderUrl}/sign`, { signature }], bob.headers);
    const { body } = await send(bob, "GET", orderUrl);
    t.equal(body.collected.length, 1, "killed at the last signature: only Ada has signed");
  }
  const complete = await sign(bob, waiting.body.id);
  t.equal(complete.body.isComplete, true, "the same signature again");
  if (isFullTier) await killedIn("agent_wallets", complete);
  t.equal((await carryOut(ada, complete)).status, 200);
  t.equal((await carryOut(bob, complete)).body.code, "order_used", "once");

  const list = {
    name: "Acme",
    threshold: 2,
    approvalAbove: "1",
    members: [
      entry(ada, "Ada", "admin"),
      entry(bob, "Bob", "admin"),
      entry(cleo, "Cleo", "viewer"),
    ],
  };
  const change = await sign(bob, (await order(ada, "PUT", "/api/team/members", list)).body.id);
  // What else waits would end with it, and does not.
  const other = await order(bob, "PATCH", url, { dailyLimit: "7" });
  await killedIn("team_members", change);
  t.equal((await send(bob, "GET", `/api/waiting-orders/${other.body.id}`)).status, 200);
  t.equal((await carryOut(ada, change)).status, 200, "the same order");
  t.equal((await carryOut(bob, change)).body.code, "order_used", "once");
  t.match(await stateNow(), /^6\.?0* 5 3 0 /, "two lists, two rules and the agent's key");
  await assertAuditsHold(t, app.prisma);
});
