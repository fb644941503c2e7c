// Goal: an owner whose wallet signs the readable texts of orders can do everything, and mixed with numbers; the audit shows and
// proves what was signed; a signature of other texts is worth nothing.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { type OrderKind, orderInTypedData, typedDataOf } from "../../server/core/orders.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { testApp } from "../helpers/app.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { asOwner, createAgent, nameRecoveryWallet, signIn } from "../helpers/owner.ts";

const ctx = await testApp(t);
const { app, chain } = ctx;
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;
const OTHER = privateKeyToAccount(generatePrivateKey()).address;

type Typed = Parameters<PrivateKeyAccount["signTypedData"]>[0];
interface ToSign {
  order: Record<string, string>;
  typedData: Typed;
}

/** The same order as a wallet shows it in texts. */
function readable(typed: unknown): Typed {
  const { primaryType, domain, message } = typed as {
    primaryType: OrderKind;
    domain: { chainId: number };
    message: object;
  };
  const order = orderInTypedData(primaryType, { domain, message });
  if (!order) throw new Error("not an order");
  return typedDataOf(primaryType, order as never, domain.chainId, "readable") as unknown as Typed;
}

/** A wallet that signs the order's texts, whatever the response asks for; `shown` are the messages. */
function readingWallet() {
  const plain = privateKeyToAccount(generatePrivateKey());
  const shown: Record<string, unknown>[] = [];
  const signTypedData = (typed: unknown) => {
    const texts = readable(typed);
    shown.push((texts as unknown as { message: Record<string, unknown> }).message);
    return plain.signTypedData(texts);
  };
  return { plain, account: { ...plain, signTypedData } as PrivateKeyAccount, shown };
}

t.test("an owner who signs texts", async (t) => {
  const { account, plain, shown } = readingWallet();
  const owner = await signIn(ctx, account);
  const agent = await createAgent(ctx, owner, { dailyLimit: "1.5", allowlist: [PAYEE] });
  await chain.mint(agent.walletAddress, 10_000_000n);
  t.match(shown.at(-1), {
    dailyLimit: "1.50 USDC",
    weeklyLimit: "no limit",
    expiresAt: "never",
    payees: [{ payee: PAYEE, dailyLimit: "no limit" }],
    deadline: / UTC$/,
  });
  const spend = (amount: string) => spendAs(app, agent, { recipient: PAYEE, amount });
  t.equal((await spend("1.5")).statusCode, 200, "custody reads what was signed");
  t.match((await spend("0.01")).json(), { code: "daily_limit_exceeded" });

  const url = `/api/agents/${agent.id}`;
  const change = (who: typeof owner, method: "PATCH" | "POST", path: string, body: object) =>
    asOwner(app, who, { method, url: `${url}${path}`, body });
  // A wallet that shows numbers, in between.
  const byNumbers = { ...owner, account: plain };
  t.equal((await change(byNumbers, "PATCH", "", { dailyLimit: "2" })).statusCode, 200);
  t.equal((await spend("0.5")).statusCode, 200);
  const expiresAt = "2030-05-01T10:30:00.000Z";
  t.equal((await change(owner, "PATCH", "", { dailyLimit: "3", expiresAt })).statusCode, 200);
  t.match(shown.at(-1), { dailyLimit: "3.00 USDC", expiresAt: "2030-05-01 10:30 UTC" });
  t.equal((await spend("0.5")).statusCode, 200);

  const key = await change(owner, "POST", "/keys", { label: "second", expiresAt });
  t.equal(key.statusCode, 201, key.body);
  t.match(shown.at(-1), { label: "second", expiresAt: "2030-05-01 10:30 UTC" });

  const ask = () =>
    spendAs(app, agent, { recipient: OTHER, amount: "0.25", requestApproval: true }, "once");
  const asked = (await ask()).json<{ approvalId: string }>();
  const granted = await asOwner(app, owner, {
    method: "POST",
    url: `/api/approvals/${asked.approvalId}/approve`,
    body: {},
  });
  t.equal(granted.statusCode, 200, granted.body);
  t.match(shown.at(-1), { payee: OTHER, maxAmount: "0.25 USDC" });
  t.equal((await ask()).statusCode, 200);

  const call = (path: string, body: object) => callApi(app, owner, "POST", `${url}${path}`, body);
  const prepared = (await call("/withdrawals/prepare", { amount: "1.25" })).json<ToSign>();
  const signature = await account.signTypedData(prepared.typedData);
  t.match(shown.at(-1), { amount: "1.25 USDC" });
  const more = { ...prepared.order, amount: "1250001" };
  t.match((await call("/withdrawals", { order: more, signature })).json(), {
    code: "invalid_signature",
  });
  const taken = await call("/withdrawals", { order: prepared.order, signature });
  t.equal(taken.statusCode, 200, taken.body);
  t.equal(await chain.usdcOf(account.address), 1_250_000n);

  const { account: second } = readingWallet();
  await nameRecoveryWallet(app, owner, second);
  const moved = await asOwner(
    app,
    owner,
    { method: "POST", url: "/api/recovery/move", body: {} },
    second,
  );
  t.equal(moved.statusCode, 200, moved.body);
  const output: string[] = [];
  const isProved = await verifyDatabase(app.prisma, { owner: undefined, noted: [] }, (line) =>
    output.push(line),
  );
  t.ok(isProved, output.filter((line) => line.startsWith("FAILED")).join("; "));
});

t.test("other texts than those of the order", async (t) => {
  const { account, plain } = readingWallet();
  const owner = await signIn(ctx, account);
  const wanted = { name: "a", dailyLimit: "25", allowlist: [PAYEE] };
  const asked = await callApi(app, owner, "POST", "/api/agents", wanted);
  const { order, typedData } = asked.json<ToSign>();
  const texts = readable(typedData) as unknown as {
    message: Record<string, unknown>;
    domain: object;
  };
  const thief = privateKeyToAccount(generatePrivateKey());
  const bent: [string, object][] = [
    ["an amount in another spelling", { message: { ...texts.message, dailyLimit: "25 USDC" } }],
    ["a larger amount", { message: { ...texts.message, dailyLimit: "25000000.00 USDC" } }],
    ["no limit", { message: { ...texts.message, dailyLimit: "no limit" } }],
    ["a later end", { message: { ...texts.message, deadline: "2030-01-01 00:00 UTC" } }],
    ["the version of the numbers", { domain: { ...texts.domain, version: "2" } }],
    ["another chain", { domain: { ...texts.domain, chainId: 1 } }],
  ];
  for (const [what, changed] of bent) {
    const authorization = {
      order,
      signature: await plain.signTypedData({ ...texts, ...changed } as never),
    };
    const answer = await callApi(app, owner, "POST", "/api/agents", { ...wanted, authorization });
    t.match(answer.json(), { code: "invalid_signature" }, what);
  }
  const authorization = { order, signature: await thief.signTypedData(texts as never) };
  const answer = await callApi(app, owner, "POST", "/api/agents", { ...wanted, authorization });
  t.match(answer.json(), { code: "invalid_signature" }, "another wallet");
});
