// Goal: one payment has one success over all cells, wherever, however often and in whatever form it is posted; a cell
// that is down is not replaced, and nobody but a cell speaks as one.
import type { FastifyInstance } from "fastify";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { hashBody, signForward, type Cell } from "../../server/core/cells.ts";
import { newId } from "../../server/core/ids.ts";
import type { TestApp } from "../helpers/app.ts";
import { createAgent, freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import { marketplaceCases } from "./cells-marketplace.ts";
import { merchantCases } from "./cells-of-merchants.ts";
import { newsCases } from "./cells-news.ts";
import { post, signedPayment, type Body } from "./payments.ts";
import { permit2Payment } from "./permit2-payments.ts";
import { SECRET, cellsWorld } from "./cells-world.ts";

const successes = (answers: { success?: unknown }[]) =>
  answers.filter(({ success }) => success === true).length;

t.test("three cells", async (t) => {
  const all = await cellsWorld(t);
  const { worlds, cells, payerOf, whileDown } = all;
  const [{ app: one, chain }, { app: two }, { app: three }] = worlds;
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const paid = async (): Promise<bigint> => chain.usdcOf(payTo);
  const make = (payer: PrivateKeyAccount): Promise<Body> => signedPayment({ chain, payer, payTo });
  const countOf = async ({ app }: TestApp): Promise<number> =>
    Number((await app.pool.query("SELECT count(*) AS n FROM settlements")).rows[0].n);

  await t.test("the same payment posted to all at once succeeds once", async (t) => {
    for (const id of ["c1", "c2", "c3"]) {
      const body = await make(await payerOf(id));
      const before = await paid();
      const answers = await Promise.all(
        [one, two, three, one, two, three].map((app) => post(app, "settle", body)),
      );
      t.equal(successes(answers), 1, `a payer of ${id}`);
      t.equal(await paid(), before + 1_000n);
    }
    t.same(await Promise.all(worlds.map(countOf)), [1, 1, 1], "each payer is its own cell's");
  });

  await t.test("members that name another payer do not send it to another cell", async (t) => {
    const [ours, theirs] = [await payerOf("c1"), await payerOf("c2")];
    const body = await make(ours);
    const payload = body.paymentPayload["payload"] as Record<string, unknown>;
    const authorization = payload["authorization"] as Record<string, string>;
    const forms: Body[] = [
      body,
      withPayload(body, {
        ...payload,
        permit2Authorization: { from: theirs.address, deadline: "1" },
      }),
      withPayload(body, { ...payload, channelConfig: { payer: theirs.address } }),
      withPayload(body, {
        ...payload,
        authorization: { ...authorization, from: ours.address.toLowerCase() },
      }),
      withPayload(body, {
        ...payload,
        authorization: { ...authorization, validBefore: `0${authorization["validBefore"]}` },
      }),
    ];
    const before = await paid();
    const answers = await Promise.all(
      forms.flatMap((form) => [post(one, "settle", form), post(two, "settle", form)]),
    );
    t.equal(successes(answers), 1);
    t.equal(await paid(), before + 1_000n);
  });

  await t.test("a repeat with its key gets the answer at either cell", async (t) => {
    const body = await make(await payerOf("c2"));
    const headers = { "idempotency-key": "one purchase" };
    const first = await post(one, "settle", body, headers);
    t.match(first, { success: true });
    t.same(await post(two, "settle", body, headers), first);
    t.match(await post(two, "settle", body, { "idempotency-key": "another" }), {
      errorReason: "duplicate_settlement",
    });
    t.match(await post(one, "verify", body), { isValid: false });
  });

  await t.test("one transfer signed twice for two cells succeeds once", async (t) => {
    // From some second on the second cell is the only one.
    const [first, second] = cells as [Cell, Cell];
    const change = BigInt(Math.floor(Date.now() / 1000) + 300);
    cells.splice(0, 2, { ...first, untilSeconds: change }, second);
    const before = await paid();
    const payers = await Promise.all(Array.from({ length: 5 }, () => payerOf("c1")));
    const counts = await Promise.all(
      payers.map(async (payer) => {
        const nonce = generatePrivateKey();
        const [old, newer] = await Promise.all(
          [change - 1n, change].map((end) =>
            signedPayment({ chain, payer, payTo, nonce, validBefore: String(end) }),
          ),
        );
        const answers = await Promise.all([post(one, "settle", old), post(two, "settle", newer)]);
        return successes(answers);
      }),
    );
    cells.splice(0, 2, first, second);
    t.same(counts, [1, 1, 1, 1, 1]);
    t.equal(await paid(), before + 5_000n);
  });

  await t.test("a verify is answered by the payer's cell", async (t) => {
    const payer = await payerOf("c2");
    const body = await make(payer);
    t.match(await post(one, "verify", body), { isValid: true, payer: payer.address });
    // The longest request that a cell takes.
    const rest = 256 * 1024 - JSON.stringify({ ...body, padding: "" }).length;
    const longest = { ...body, padding: "x".repeat(rest) };
    t.match(await post(one, "verify", longest), { isValid: true, payer: payer.address });
    t.match(await post(one, "settle", longest), { success: true });
  });

  await t.test("nobody else speaks as a cell", async (t) => {
    const sent = { body: await make(await payerOf("c1")) };
    const path = "/api/cells/settle";
    const now = Math.floor(Date.now() / 1000);
    const signed = (changes: object) => {
      const forward = { from: "c2", to: "c1", sentAtSeconds: now, path, bodyHash: hashBody(sent) };
      return signForward(SECRET, { ...forward, ...changes });
    };
    const wrong = {
      none: undefined,
      "for another cell": signed({ to: "c2" }),
      "for another path": signed({ path: "/api/cells/verify" }),
      "for another body": signed({ bodyHash: hashBody({}) }),
      old: signed({ sentAtSeconds: now - 120 }),
      "of another secret": signForward("x".repeat(32), {
        from: "c2",
        to: "c1",
        sentAtSeconds: now,
        path,
        bodyHash: hashBody(sent),
      }),
    };
    const before = await paid();
    for (const [name, header] of Object.entries(wrong)) {
      const headers = header === undefined ? {} : { "purser-forward": header };
      const { statusCode } = await one.inject({
        method: "POST",
        url: path,
        headers,
        payload: sent,
      });
      t.equal(statusCode, 404, name);
    }
    t.equal(await paid(), before);
    const headers = { "purser-forward": signed({}) };
    const real = await one.inject({ method: "POST", url: path, headers, payload: sent });
    t.match(real.json(), { success: true });
    const again = await one.inject({ method: "POST", url: path, headers, payload: sent });
    t.match(again.json(), { errorReason: "duplicate_settlement" }, "sent once more");
    t.equal(await paid(), before + 1_000n);
  });

  await t.test("a payment for one facilitator's account is settled by it", async (t) => {
    // Its payer's address names the first cell, and it signed for the second's account.
    const payer = await payerOf("c1");
    await approvePermit2(chain, [payer]);
    const [, { app, chain: theirs }] = worlds;
    const body = await permit2Payment({
      chain: theirs,
      payer,
      payTo,
      facilitator: theirs.relayer.address,
    });
    const answers = await Promise.all(
      [one, app, one, app].map((cell) => post(cell, "settle", body)),
    );
    t.equal(successes(answers), 1, JSON.stringify(answers));
  });

  await t.test("an owner has one account, in one cell", async (t) => {
    for (const [id, home, other] of [
      ["c1", worlds[0], worlds[1]],
      ["c2", worlds[1], worlds[0]],
    ] as const) {
      const account = await payerOf(id);
      const elsewhere = await trySignIn(other, account);
      t.match(elsewhere, { status: 421, code: "other_cell", cell: id, url: home.baseUrl });
      await signIn(home, account);
      t.match(await trySignIn(other, account), { status: 421, cell: id });
    }
    // An account stays where it is, whatever its address says.
    const moved = await payerOf("c2");
    await worlds[0].app.prisma.owner.create({
      data: { id: newId("own"), address: moved.address.toLowerCase() },
    });
    await signIn(worlds[0], moved);
    t.match(await trySignIn(worlds[1], moved), { status: 421, cell: "c1" });
  });

  await t.test("a key names its cell, and another cell says whose it is", async (t) => {
    const owner = await signIn(worlds[1], await payerOf("c2"));
    const agent = await createAgent(worlds[1], owner);
    t.match(agent.apiKey, /^purser_c2_[0-9A-Za-z]{39}$/);
    const ask = (app: FastifyInstance) =>
      app.inject({ url: "/api/agents/me", headers: { authorization: `Bearer ${agent.apiKey}` } });
    t.equal((await ask(two)).statusCode, 200);
    const wrong = await ask(one);
    t.equal(wrong.statusCode, 421);
    t.match(wrong.json(), { code: "wrong_cell", cell: "c2" });
    const changed = agent.apiKey.replace("purser_c2_", "purser_c3_");
    const forged = await one.inject({
      url: "/api/agents/me",
      headers: { authorization: `Bearer ${changed}` },
    });
    t.match(forged.json(), { code: "invalid_api_key" }, "the checksum covers the cell");
  });

  await t.test("while a cell is down, nobody settles for it, and then it does", async (t) => {
    const body = await make(await payerOf("c2"));
    const before = await paid();
    await whileDown(async () => {
      t.match(await post(one, "settle", body), {
        success: false,
        errorReason: "unexpected_settle_error",
      });
      t.match(await post(one, "verify", body), { invalidReason: "unexpected_verify_error" });
      t.equal(await paid(), before);
    });
    t.match(await post(one, "settle", body), { success: true });
    t.equal(await paid(), before + 1_000n);
  });

  await t.test("a marketplace of both cells", (t) => marketplaceCases(t, all));

  await t.test("a merchant and its payments in all cells", (t) => merchantCases(t, all));

  await t.test("what cells tell each other", (t) => newsCases(t, all));
});

async function trySignIn(world: TestApp, account: PrivateKeyAccount): Promise<object> {
  const nonce = await freshNonce(world.app);
  const message = siweMessage(world, { nonce, address: account.address });
  const signature = await account.signMessage({ message });
  return (await verify(world, { message, signature })).json<object>();
}

const withPayload = (body: Body, payload: unknown): Body => ({
  ...body,
  paymentPayload: { ...body.paymentPayload, payload },
});
