// Goal: an owner's events (server-sent events) arrive from any replica, once each, in order, and resume without a
// gap.
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { createPool } from "../../server/infra/db/pool.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type SignedInOwner } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const usdc = 1_000_000n;
/** Longer than two polls: streams poll for events four times a second. */
const TWO_POLLS_MS = 700;

interface Event {
  id: string;
  event: string;
  data: Record<string, unknown>;
}

interface Stream {
  events: Event[];
  isEnded: () => boolean;
  close(): void;
}

async function listen(
  t: Test,
  baseUrl: string,
  owner: Pick<SignedInOwner, "cookie">,
  lastEventId?: string,
): Promise<Stream> {
  const request = httpRequest(`${baseUrl}/api/events`, {
    headers: {
      cookie: owner.cookie,
      accept: "text/event-stream",
      ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
    },
  });
  request.on("error", () => undefined);
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  t.equal(response.statusCode, 200);
  t.match(response.headers["content-type"], /^text\/event-stream/);
  const events: Event[] = [];
  let text = "";
  let isConnected = false;
  let ended = false;
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    text += chunk;
    // The stream sends its first bytes when its start position is fixed.
    isConnected = true;
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const field = (name: string): string =>
        block
          .split("\n")
          .find((line) => line.startsWith(`${name}: `))
          ?.slice(name.length + 2) ?? "";
      if (field("event") !== "")
        events.push({
          id: field("id"),
          event: field("event"),
          data: JSON.parse(field("data")) as Record<string, unknown>,
        });
    }
  });
  response.on("close", () => (ended = true));
  response.on("error", () => (ended = true));
  t.teardown(() => request.destroy());
  await until(() => isConnected);
  return { events, isEnded: () => ended, close: () => request.destroy() };
}

t.test("with two replicas", async (t) => {
  const first = await testApp(t, { listen: true });
  const { chain, database } = first;
  const second = await testApp(t, { listen: true, chain, database });
  const owner = await signIn(first);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(first, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 9n * usdc);
  const spend = async () => {
    const answer = await spendAs(first.app, agent, { recipient: payee, amount: "1" });
    if (answer.statusCode !== 200) throw new Error(answer.body);
    return answer.json<{ paymentId: string }>().paymentId;
  };
  const settled = (stream: Stream) =>
    stream.events.filter((e) => e.event === "payment" && e.data["status"] === "settled");

  await t.test("one replica pays, the other one streams the event", async (t) => {
    const stream = await listen(t, second.baseUrl, owner);
    const paymentId = await spend();
    await until(() => settled(stream).length === 1);
    t.match(settled(stream)[0]?.data, { id: paymentId, amount: "1", agentId: agent.id });
    stream.close();
  });

  await t.test("resumes on another replica: nothing is missed or repeated", async (t) => {
    const stream = await listen(t, first.baseUrl, owner);
    const before = await spend();
    await until(() => settled(stream).length === 1);
    const last = stream.events.at(-1);
    stream.close();
    const missed = [await spend(), await spend()];
    const resumed = await listen(t, second.baseUrl, owner, last?.id);
    await until(() => settled(resumed).length === 2);
    t.same(
      settled(resumed).map((event) => event.data["id"]),
      missed,
    );
    t.notOk(resumed.events.some((event) => event.data["id"] === before));
    resumed.close();
  });

  await t.test("an event of a running transaction keeps its place in the order", async (t) => {
    const stream = await listen(t, second.baseUrl, owner);
    /** Begins a transaction: events that begin after it are delivered only after its end. */
    const running = async (): Promise<() => Promise<unknown>> => {
      const client = await database.pool.connect();
      await client.query("BEGIN");
      await client.query("SELECT pg_current_xact_id()");
      return () => client.query("COMMIT").finally(() => client.release());
    };
    const isPaid = (status: string) => async (): Promise<boolean> => {
      const { rows } = await database.pool.query<{ status: string }>(
        "SELECT status FROM payments WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
        [agent.id],
      );
      return rows[0]?.status === status;
    };
    await chain.testClient.setAutomine(false);
    const endFirst = await running();
    const paying = spend();
    await until(isPaid("submitted"));
    const endSecond = await running();
    await chain.testClient.setAutomine(true);
    await chain.testClient.mine({ blocks: 1 });
    await until(isPaid("settled"));
    const paymentId = await paying;
    await endFirst();
    await sleep(TWO_POLLS_MS);
    t.same(settled(stream), [], "the settlement is not delivered yet");
    await endSecond();
    await until(() => settled(stream).length > 0);
    await sleep(TWO_POLLS_MS);
    t.same(
      settled(stream).map((event) => event.data["id"]),
      [paymentId],
    );
    stream.close();
  });

  await t.test("changes of rules are delivered, and only to their owner", async (t) => {
    const otherOwner = await signIn(first);
    const [ownStream, otherStream] = [
      await listen(t, second.baseUrl, owner),
      await listen(t, second.baseUrl, otherOwner),
    ];
    await asOwner(first.app, owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { status: "paused" },
    });
    await until(() => ownStream.events.some((event) => event.event === "agent"));
    t.match(ownStream.events.find((event) => event.event === "agent")?.data, { agentId: agent.id });
    t.same(otherStream.events, []);
    ownStream.close();
    otherStream.close();
  });

  await t.test("the event of a transaction that commits late is not skipped", async (t) => {
    const stream = await listen(t, first.baseUrl, owner);
    const pool = createPool(database.url, { maxConnections: 2 });
    t.teardown(() => pool.end());
    const slow = await pool.connect();
    await slow.query("BEGIN");
    await slow.query("SELECT purser_emit($1, 'agent', 'slow', 'slow')", [await ownerIdOf()]);
    await pool.query("SELECT purser_emit($1, 'agent', 'quick', 'quick')", [await ownerIdOf()]);
    await slow.query("COMMIT");
    slow.release();
    await until(() => stream.events.length >= 2);
    t.same(
      stream.events.map((event) => event.data["agentId"]),
      ["slow", "quick"],
      "both, in the order in which their transactions began",
    );
    stream.close();
  });

  await t.test("ends when the session is revoked on another replica", async (t) => {
    const leaving = await signIn(first, owner.account);
    const stream = await listen(t, second.baseUrl, leaving);
    await callApi(first.app, leaving, "POST", "/api/auth/logout");
    await until(() => stream.isEnded());
    t.equal(stream.events.at(-1)?.event, "session");
  });

  await t.test("closing the service ends its streams at once", async (t) => {
    const stream = await listen(t, second.baseUrl, owner);
    // Would hang if an open stream delayed the shutdown.
    await second.app.close();
    await until(() => stream.isEnded());
  });

  async function ownerIdOf(): Promise<string> {
    const { rows } = await database.pool.query<{ owner_id: string }>(
      "SELECT owner_id FROM agents WHERE id = $1",
      [agent.id],
    );
    return rows[0]?.owner_id ?? "";
  }
});
