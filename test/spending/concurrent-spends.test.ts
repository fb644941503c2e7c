// Goal: 50 parallel spends of 1 at a limit of 10 settle exactly 10: in one process, in several, and with two keys.
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { checkLedger, statusesOf, usdcOf } from "./ledger.helper.ts";
import { post, postWhenFree, startReplica } from "./replica.helper.ts";

const ctx = await testApp(t, { listen: true });
const { app, chain } = ctx;
const owner = await signIn(ctx);
const usdc = 1_000_000n;
const freshPayee = () => privateKeyToAccount(generatePrivateKey()).address;

function expectTenOfFifty(t: Test, answers: { status: number; body: Record<string, unknown> }[]) {
  const paid = answers.filter((answer) => answer.status === 200);
  const others = answers.filter(({ status }) => status !== 200 && status !== 403);
  t.same(
    others.map(({ body }) => body["detail"]),
    [],
  );
  const denied = answers.filter((answer) => answer.status === 403);
  t.equal(paid.length, 10, "ten are paid");
  t.equal(denied.length, 40, "forty are refused");
  t.ok(denied.every((answer) => answer.body["code"] === "daily_limit_exceeded"));
  t.equal(new Set(paid.map((answer) => answer.body["paymentId"])).size, 10);
}

t.test("in one process, with two keys", async (t) => {
  const payee = freshPayee();
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  const second = await asOwner(app, owner, {
    method: "POST",
    url: `/api/agents/${agent.id}/keys`,
    body: { label: "second" },
  });
  t.equal(second.statusCode, 201, second.body);
  const keys = [agent.apiKey, second.json<{ apiKey: string }>().apiKey];
  await chain.mint(agent.walletAddress, 100n * usdc);
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) =>
      postWhenFree(
        `${ctx.baseUrl}/api/agents/spend`,
        { ...agent.headers, authorization: `Bearer ${keys[index % 2]}` },
        // Without a memo they would be identical calls, and join one payment.
        { recipient: payee, amount: "1", memo: `${index}` },
      ),
    ),
  );
  expectTenOfFifty(t, answers);
  t.equal(await usdcOf(ctx, payee), 10n * usdc);
  t.same(await statusesOf(ctx, agent.id), { settled: 10, blocked: 40 });
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});

/** Replicas in addition to the process of the test. */
const REPLICAS = isFullTier ? 3 : 1;

t.test("in several processes", async (t) => {
  const payee = freshPayee();
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 100n * usdc);
  const urls = [ctx.baseUrl];
  // Start them in sequence: in parallel they would only wait for each other.
  while (urls.length <= REPLICAS) urls.push((await startReplica(t, ctx)).url);
  const urlOf = (index: number) => urls[index % urls.length];
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) =>
      postWhenFree(`${urlOf(index)}/api/agents/spend`, agent.headers, {
        recipient: payee,
        amount: "1",
        memo: `${index}`,
      }),
    ),
  );
  expectTenOfFifty(t, answers);
  t.equal(await usdcOf(ctx, payee), 10n * usdc);
  t.same(await statusesOf(ctx, agent.id), { settled: 10, blocked: 40 });
  await checkLedger(t, ctx, { agentId: agent.id, payee });

  await t.test("identical calls without a key are one payment in each round", async (t) => {
    const one = freshPayee();
    const buyer = await createAgent(ctx, owner, { dailyLimit: "100", allowlist: [one] });
    await chain.mint(buyer.walletAddress, 100n * usdc);
    for (let round = 1; round <= (isFullTier ? 5 : 2); round += 1) {
      const responses = await Promise.all(
        Array.from({ length: 24 }, async (_, index) =>
          post(`${urlOf(index)}/api/agents/spend`, buyer.headers, {
            recipient: one,
            amount: "1",
          }),
        ),
      );
      t.same(
        responses.map(({ status }) => status),
        responses.map(() => 200),
      );
      t.equal(new Set(responses.map(({ body }) => body["paymentId"])).size, 1);
      t.equal(responses.filter(({ body }) => body["replayed"] === undefined).length, 1);
      t.equal(await usdcOf(ctx, one), BigInt(round) * usdc, `round ${round}`);
    }
    await checkLedger(t, ctx, { agentId: buyer.id, payee: one });
  });

  for (const { code, rules, terms } of OTHER_LIMITS)
    await t.test(code, async (t) => {
      const one = freshPayee();
      const allowlist = [{ address: one, ...terms }];
      const limited = await createAgent(ctx, owner, { dailyLimit: "100", allowlist, ...rules });
      await chain.mint(limited.walletAddress, 100n * usdc);
      const responses = await Promise.all(
        Array.from({ length: 16 }, async (_, index) =>
          postWhenFree(`${urlOf(index)}/api/agents/spend`, limited.headers, {
            recipient: one,
            amount: "1",
            memo: `${index}`,
          }),
        ),
      );
      t.equal(responses.filter(({ status }) => status === 200).length, 4, "four are paid");
      t.equal(
        responses.filter(({ body }) => body["code"] === code).length,
        12,
        "twelve are refused",
      );
      await checkLedger(t, ctx, { agentId: limited.id, payee: one });
    });
});

const OTHER_LIMITS = [
  { code: "weekly_limit_exceeded", rules: { weeklyLimit: "4" }, terms: {} },
  { code: "monthly_limit_exceeded", rules: { monthlyLimit: "4" }, terms: {} },
  { code: "payment_rate_exceeded", rules: { paymentsPerHour: 4 }, terms: {} },
  { code: "payee_limit_exceeded", rules: {}, terms: { dailyLimit: "4" } },
];
