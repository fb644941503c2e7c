// Goal: a process that dies anywhere in a sign-up, a change of the passkeys or of the payout address leaves all of it or
// nothing: its person signs in or starts again, and can withdraw.
import { AsyncLocalStorage } from "node:async_hooks";
import type { PoolClient } from "pg";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Pool } from "../../server/infra/db/pool.ts";
import { testApp } from "../helpers/app.ts";
import { callApi } from "../helpers/call.ts";
import { asOwner, createAgent } from "../helpers/owner.ts";
import {
  signUpWithPasskey,
  testPasskey,
  tryOffer,
  tryPasskeySignIn,
  trySignUp,
  type TestPasskey,
} from "../helpers/passkey.ts";

const service = await testApp(t);
const { app, chain, config, database } = service;

/** A request whose process dies: from one statement on nothing of it reaches the database. */
interface Life {
  statementsLeft: number;
  /** The last statement that it wanted to send. */
  diedAt: string | undefined;
  writes: string[];
}
const lives = new AsyncLocalStorage<Life>();
const CONNECTION = Symbol("watched");

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
      life.statementsLeft -= 1;
      if (life.statementsLeft >= 0) {
        if (!/^(SELECT|WITH)\b/i.test(text)) life.writes.push(text);
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

/** Runs the request with a death at its first statement, its second, and so on, until it does not die any more. */
async function withEachDeath(
  t: Test,
  request: () => Promise<{ statusCode: number; body: string }>,
  {
    before,
    after,
  }: { before: () => Promise<unknown>; after: (diedAt: string) => Promise<unknown> },
): Promise<string[]> {
  for (let statements = 0; ; statements += 1) {
    await before();
    const life: Life = { statementsLeft: statements, diedAt: undefined, writes: [] };
    const answer = await lives.run(life, request);
    if (life.diedAt === undefined) {
      t.equal(answer.statusCode, 200, answer.body);
      t.ok(statements > 5, `${statements} deaths`);
      return life.writes;
    }
    t.not(answer.statusCode, 200);
    await after(`${statements}: ${life.diedAt.slice(0, 60)}`);
  }
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
  const seen = new Set<string>();
  const writes = await withEachDeath(t, () => trySignUp(service, passkey), {
    before: async () => (passkey = passkeyHere()),
    after: async (diedAt) => {
      const rows = await rowsOf(passkey);
      seen.add(rows);
      const [again, signIn] = [
        await trySignUp(service, passkey),
        await tryPasskeySignIn(service, passkey),
      ];
      t.equal(again.statusCode, rows.startsWith("0") ? 200 : 409, `${diedAt}: ${again.body}`);
      t.equal(signIn.statusCode, 200, `${diedAt}: ${signIn.body}`);
    },
  });
  t.same([...seen], ["0 0 0 0"], "nothing of it is there before its commit");
  assertOneTransaction(t, writes);
});

/** A nonce is used up first, by itself: an answer works at most once. All other writes are in one transaction. */
function assertOneTransaction(t: Test, writes: readonly string[]): void {
  const begun = writes.indexOf("BEGIN");
  t.equal(writes.lastIndexOf("BEGIN"), begun, "one transaction");
  t.equal(writes.at(-1), "COMMIT", "it is the last that is written");
  const outside = writes.slice(0, begun).filter((text) => !/"?auth_nonces"?/.test(text));
  t.same(outside, [], "nothing is written outside of it");
}

t.test("another passkey, and the list with it", async (t) => {
  const owner = await signUpWithPasskey(service);
  let next = passkeyHere();
  const list = async () => {
    const answer = await callApi(app, owner, "GET", "/api/passkeys");
    return answer.json<{ version: number; passkeys: { id: string; status: string }[] }>();
  };
  const statusOf = async ({ credentialId }: TestPasskey) =>
    (await list()).passkeys.find(({ id }) => id === credentialId)?.status;
  const sign = (passkeys: TestPasskey[]) =>
    asOwner(app, owner, {
      method: "PUT",
      url: "/api/passkeys",
      body: { ids: passkeys.map(({ credentialId }) => credentialId) },
    });
  await withEachDeath(t, () => tryOffer(service, owner, next), {
    before: async () => {
      await database.pool.query("DELETE FROM passkeys WHERE status = 'offered'");
      next = passkeyHere();
    },
    after: async (diedAt) => {
      const was = await statusOf(next);
      const again = await tryOffer(service, owner, next);
      t.equal(again.statusCode, was === undefined ? 200 : 409, diedAt);
      t.equal(await statusOf(next), "offered", diedAt);
    },
  });
  let version = 0;
  await withEachDeath(t, () => sign([owner.passkey, next]), {
    before: async () => {
      const alone = await sign([owner.passkey]);
      if (alone.statusCode !== 200) throw new Error(alone.body);
      version = (await list()).version;
      next = passkeyHere();
      await tryOffer(service, owner, next);
    },
    after: async (diedAt) => {
      const isSigned = (await list()).version > version;
      t.equal(await statusOf(next), isSigned ? "active" : "offered", diedAt);
      t.equal(await statusOf(owner.passkey), "active", diedAt);
      const again = await sign([owner.passkey, next]);
      t.equal(again.statusCode, 200, `${diedAt}: ${again.body}`);
      t.equal((await tryPasskeySignIn(service, next)).statusCode, 200, diedAt);
    },
  });
});

t.test("the payout address", async (t) => {
  let owner = await signUpWithPasskey(service);
  const name = (address: string) =>
    asOwner(app, owner, { method: "PUT", url: "/api/payout", body: { address } });
  const payout = async () => (await callApi(app, owner, "GET", "/api/payout")).json<unknown>();
  const [first, second] = [wallet(), wallet()];
  const named = { address: first, next: null };
  await withEachDeath(t, () => name(first), {
    before: async () => (owner = await signUpWithPasskey(service)),
    after: async (diedAt) => {
      const found = await payout();
      if (JSON.stringify(found) !== JSON.stringify(named))
        t.same(found, { address: null, next: null }, diedAt);
      t.same((await name(first)).json(), named, diedAt);
    },
  });
  const agent = await createAgent(service, owner);
  await chain.mint(agent.walletAddress, 1_000_000n);
  await withEachDeath(t, () => name(second), {
    before: () => name(first),
    after: async (diedAt) => {
      t.match(await payout(), { address: first }, diedAt);
      const url = `/api/agents/${agent.id}/withdrawals/prepare`;
      const prepared = await callApi(app, owner, "POST", url, { amount: "1" });
      t.match(prepared.json(), { order: { to: first } }, `${diedAt}: the money can be withdrawn`);
      t.match((await name(second)).json(), { address: first, next: { address: second } }, diedAt);
    },
  });
});
