// Goal: a payer's signed ERC-20 approval is broadcast before its payment at the payer's own gas: Purser pays
// nothing for it, and nothing is paid twice, despite races, lies and crashes.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import t, { type Test } from "tap";
import { erc20Abi, parseTransaction, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { freePort } from "../../server/local/free-port.ts";
import { testApp, testEnvironment, type TestApp } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { EXACT_PROXY, PERMIT2 } from "../helpers/permit2.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { PASSING, rpcProxy, SEND, type Rule } from "../helpers/rpc-proxy.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { change } from "./bent-payments.ts";
import {
  approvalBy,
  approveData,
  permit2Payment,
  sponsoring,
  type ApprovalOptions,
} from "./permit2-payments.ts";
import { post, type Body } from "./payments.ts";

t.jobs = 5;
const ON = { PAYER_APPROVALS_5042002: "true" };
const newAccount = () => privateKeyToAccount(generatePrivateKey());
const WEI = 10n ** 18n;

/** A payer with USDC and native coins for gas, without an allowance for Permit2. */
async function newPayer(chain: TestChain, wei = WEI): Promise<PrivateKeyAccount> {
  const payer = newAccount();
  await chain.mint(payer.address, 100_000n);
  if (wei > 0n) await chain.testClient.setBalance({ address: payer.address, value: wei });
  return payer;
}

const tokenOf = (chain: TestChain) => ({
  balanceOf: (account: Address) => chain.usdcOf(account),
  allowanceOf: (account: Address) =>
    chain.publicClient.readContract({
      address: chain.usdc,
      abi: erc20Abi,
      functionName: "allowance",
      args: [account, PERMIT2],
    }),
});

const sentBy = (chain: TestChain, address: Address) =>
  chain.publicClient.getTransactionCount({ address });

async function approvedPayment(
  chain: TestChain,
  payer: PrivateKeyAccount,
  payTo: Address,
  bent: ApprovalOptions = {},
  more: { facilitator?: Address } = {},
): Promise<Body> {
  const extensions = await approvalBy(chain, payer, bent);
  return permit2Payment({ chain, payer, payTo, extensions, ...more });
}

t.test("a payer's own approval", async (t) => {
  // Long, for slow machines; tests of the timeout set a short one.
  const timings = { approvalWaitMs: 60_000 };
  const one = await testApp(t, { env: ON, timings });
  const { chain, database } = one;
  const two = await testApp(t, { database, chain, env: ON, timings });
  const { balanceOf, allowanceOf } = tokenOf(chain);
  const relayer = chain.relayer.address;

  await t.test("is ignored by a facilitator that sends no approvals", async (t) => {
    const off = await testApp(t, { chain });
    const extensionsOf = async ({ app }: TestApp) =>
      (await app.inject("/api/x402/supported")).json<{ extensions: string[] }>().extensions;
    t.notOk((await extensionsOf(off)).includes("erc20ApprovalGasSponsoring"));
    t.ok((await extensionsOf(one)).includes("erc20ApprovalGasSponsoring"));
    const payer = await newPayer(chain);
    const body = await approvedPayment(chain, payer, newAccount().address);
    for (const operation of ["verify", "settle"] as const) {
      const answer = await post(off.app, operation, body);
      t.equal(answer["invalidReason"] ?? answer["errorReason"], "permit2_allowance_required");
    }
    t.equal(await sentBy(chain, payer.address), 0);
  });

  for (const facilitator of [undefined, relayer])
    for (const type of ["eip1559", "legacy"] as const)
      await t.test(`${facilitator ? "upto" : "exact"}, ${type}: verified, settled`, async (t) => {
        const payer = await newPayer(chain);
        const payTo = newAccount().address;
        const body = await approvedPayment(
          chain,
          payer,
          payTo,
          { type },
          facilitator && { facilitator },
        );
        t.match(await post(one.app, "verify", body), { isValid: true });
        t.equal(await sentBy(chain, payer.address), 0, "verify sends nothing");
        const spentBefore = await chain.publicClient.getBalance({ address: relayer });
        t.match(await post(one.app, "settle", body), { success: true });
        t.equal(await balanceOf(payTo), 1_000n);
        t.equal(await sentBy(chain, payer.address), 1);
        t.ok(
          (await chain.publicClient.getBalance({ address: payer.address })) < WEI,
          "the payer paid its gas",
        );
        const spent = spentBefore - (await chain.publicClient.getBalance({ address: relayer }));
        t.ok(
          spent > 0n && spent < 10n ** 15n,
          `the relayer paid only for the settlement (${spent} wei)`,
        );
        const next = await permit2Payment({
          chain,
          payer,
          payTo,
          ...(facilitator && { facilitator }),
        });
        t.match(await post(two.app, "settle", next), { success: true }, "one approval is enough");
      });

  await t.test("20 in parallel at two processes: one approval, one success", async (t) => {
    const payer = await newPayer(chain);
    const payTo = newAccount().address;
    const body = await approvedPayment(chain, payer, payTo);
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        post(index % 2 === 0 ? one.app : two.app, "settle", body),
      ),
    );
    t.equal(answers.filter(({ success }) => success === true).length, 1);
    t.equal(await sentBy(chain, payer.address), 1);
    t.equal(await balanceOf(payTo), 1_000n);
  });

  await t.test("a permit (EIP-2612) comes first; an allowance needs no approval", async (t) => {
    const payer = await newPayer(chain);
    const payTo = newAccount().address;
    const extensions = {
      ...(await approvalBy(chain, payer, { value: 5n })),
      ...(await sponsoring(chain, payer)),
    };
    const both = await permit2Payment({ chain, payer, payTo, extensions });
    t.match(await post(one.app, "settle", both), { success: true });
    t.equal(await sentBy(chain, payer.address), 0);
    const allowed = await newPayer(chain);
    t.match(await post(one.app, "settle", await approvedPayment(chain, allowed, payTo)), {
      success: true,
    });
    t.match(await post(one.app, "settle", await approvedPayment(chain, allowed, payTo)), {
      success: true,
    });
    t.equal(await sentBy(chain, allowed.address), 1, "the second was not sent");
  });

  const other = newAccount();
  const failed = "erc20_approval_tx_failed";
  const unsent = "erc20_approval_broadcast_failed";
  const BAD_APPROVALS: [string, ApprovalOptions, string][] = [
    ["calls another contract", { to: other.address }, "erc20_approval_tx_wrong_target"],
    ["calls Permit2", { to: PERMIT2 }, "erc20_approval_tx_wrong_target"],
    ["allows another", { data: approveData(other.address) }, "erc20_approval_tx_wrong_spender"],
    ["allows the proxy", { data: approveData(EXACT_PROXY) }, "erc20_approval_tx_wrong_spender"],
    ["calls nothing", { data: "0x" }, "erc20_approval_tx_wrong_selector"],
    [
      "half a call",
      { data: approveData().slice(0, 80) as Hex },
      "erc20_approval_tx_invalid_calldata",
    ],
    ["is signed by another account", { signer: other }, "erc20_approval_tx_signer_mismatch"],
    ["sends value", { value: 1n }, failed],
    ["is for another chain", { chainId: 8453 }, failed],
    ["allows nothing", { data: approveData(PERMIT2, 0n) }, failed],
    ["allows less", { data: approveData(PERMIT2, 999n) }, failed],
    ["has a tail", { data: `${approveData()}00` }, failed],
    ["asks for a whole block", { gas: 30_000_000n }, failed],
    ["has too little gas", { gas: 30_000n }, "permit2_allowance_required"],
    ["comes later", { nonce: 1 }, unsent],
    ["offers less than gas costs", { maxFeePerGas: 1n }, unsent],
    ["offers more than its payer has", { maxFeePerGas: 10n ** 15n }, unsent],
  ];
  for (const [name, bent, reason] of BAD_APPROVALS)
    await t.test(`refused with its own code: ${name}`, async (t) => {
      const payer = await newPayer(chain);
      const before = await chain.publicClient.getBalance({ address: relayer });
      const body = await approvedPayment(chain, payer, newAccount().address, bent);
      t.match(await post(one.app, "verify", body), { isValid: false, invalidReason: reason });
      t.match(await post(one.app, "settle", body), { success: false, errorReason: reason });
      t.equal(await sentBy(chain, payer.address), 0, "nothing was sent");
      t.equal(await chain.publicClient.getBalance({ address: relayer }), before);
    });

  await t.test("a payer without gas gets none, and the error names the alternative", async (t) => {
    const payer = await newPayer(chain, 0n);
    const body = await approvedPayment(chain, payer, newAccount().address);
    const answer = await post(one.app, "settle", body);
    t.match(answer, {
      success: false,
      errorReason: unsent,
      errorMessage: /eip2612GasSponsoring/,
    });
    t.equal(await chain.publicClient.getBalance({ address: payer.address }), 0n);
    // Where gas is paid in USDC, payment and gas come from one balance.
    const poor = await newPayer(chain, 10n ** 15n);
    const all = await approvedPayment(chain, poor, newAccount().address);
    t.match(await post(one.app, "verify", all), { isValid: false, invalidReason: unsent });
  });

  await t.test("a payer with code, and a used approval", async (t) => {
    const payer = await newPayer(chain);
    const body = await approvedPayment(chain, payer, newAccount().address);
    await chain.testClient.setCode({ address: payer.address, bytecode: "0x60006000fd" });
    t.match(await post(one.app, "settle", body), { success: false });
    t.equal(await sentBy(chain, payer.address), 0);
    const revoker = await newPayer(chain);
    const payTo = newAccount().address;
    const first = await approvedPayment(chain, revoker, payTo);
    t.match(await post(one.app, "settle", first), { success: true });
    const hash = await chain.walletClient(revoker).writeContract({
      address: chain.usdc,
      abi: erc20Abi,
      functionName: "approve",
      args: [PERMIT2, 0n],
    });
    await chain.publicClient.waitForTransactionReceipt({ hash });
    const { extensions } = first.paymentPayload as { extensions: Record<string, unknown> };
    const replayed = await permit2Payment({ chain, payer: revoker, payTo, extensions });
    t.match(await post(one.app, "settle", replayed), { success: false, errorReason: unsent });
    t.equal(await allowanceOf(revoker.address), 0n);
  });

  await t.test("its nonce is used by another transaction: the relayer loses nothing", async (t) => {
    const payer = await newPayer(chain);
    const payTo = newAccount().address;
    const body = await approvedPayment(chain, payer, payTo);
    const before = await chain.publicClient.getBalance({ address: relayer });
    await chain.testClient.setAutomine(false);
    try {
      const settling = post(one.app, "settle", body);
      await until(async () => (await pendingOf(chain, payer.address)) > 0);
      await chain.walletClient(payer).sendTransaction({
        to: payTo,
        value: 1n,
        nonce: 0,
        maxFeePerGas: 10n ** 11n,
        maxPriorityFeePerGas: 10n ** 10n,
      });
      await chain.testClient.mine({ blocks: 1 });
      t.match(await settling, { success: false, errorReason: unsent, transaction: "" });
    } finally {
      await chain.testClient.setAutomine(true);
    }
    t.equal(await chain.publicClient.getBalance({ address: relayer }), before);
    t.equal(await balanceOf(payTo), 0n);
    t.equal(
      (
        await database.pool.query("SELECT FROM settlements WHERE from_address = $1", [
          payer.address.toLowerCase(),
        ])
      ).rowCount,
      0,
    );
  });

  await t.test("not mined in time: refused, and a repeat settles", async (t) => {
    const hasty = await testApp(t, { database, chain, env: { ...ON, SETTLE_WAIT_MS: "800" } });
    const payer = await newPayer(chain);
    const payTo = newAccount().address;
    const body = await approvedPayment(chain, payer, payTo);
    await chain.testClient.setAutomine(false);
    try {
      t.match(await post(hasty.app, "settle", body), {
        success: false,
        errorReason: unsent,
        errorMessage: /same settle request again/,
      });
    } finally {
      await chain.testClient.setAutomine(true);
      await chain.testClient.mine({ blocks: 1 });
    }
    t.match(await post(one.app, "settle", body), { success: true });
    t.equal(await sentBy(chain, payer.address), 1);
    t.equal(await balanceOf(payTo), 1_000n);
  });

  await t.test("at most 16 approvals wait at a time", async (t) => {
    const payers = await Promise.all(Array.from({ length: 24 }, () => newPayer(chain)));
    const payTo = newAccount().address;
    const bodies = await Promise.all(payers.map((payer) => approvedPayment(chain, payer, payTo)));
    await chain.testClient.setAutomine(false);
    let refused = 0;
    const answering = bodies.map(async (body) => {
      const answer = await post(one.app, "settle", body);
      if (answer["success"] !== true) refused += 1;
      return answer;
    });
    // The other 16 wait for a block.
    await until(() => refused === 8, 30_000);
    await chain.testClient.setAutomine(true);
    await chain.testClient.mine({ blocks: 1 });
    const answers = await Promise.all(answering);
    const paid = answers.filter(({ success }) => success === true).length;
    t.equal(paid, 16);
    for (const answer of answers.filter(({ success }) => success !== true))
      t.match(answer, { errorReason: unsent, errorMessage: /Too many/ });
    t.equal(await balanceOf(payTo), BigInt(paid) * 1_000n);
  });

  await t.test("an approval that is not mined releases its slot soon", async (t) => {
    const hasty = await testApp(t, {
      database,
      chain,
      // Longer than the wait for the approval.
      env: { ...ON, SETTLE_WAIT_MS: "25000" },
      timings: { approvalWaitMs: 500 },
      configure: (config) => {
        const [network] = config.networks;
        config.networks = [{ ...network, blockTimeMs: 50 }];
      },
    });
    const payer = await newPayer(chain);
    const body = await approvedPayment(chain, payer, newAccount().address);
    await chain.testClient.setAutomine(false);
    try {
      t.match(await post(hasty.app, "settle", body), {
        errorReason: unsent,
        errorMessage: /not in a block yet/,
      });
      const { baseFeePerGas } = await chain.publicClient.getBlock();
      const barely = await approvedPayment(chain, await newPayer(chain), newAccount().address, {
        maxFeePerGas: baseFeePerGas ?? 0n,
      });
      t.match(await post(hasty.app, "settle", barely), {
        errorReason: unsent,
        errorMessage: /Offer at least \d+/,
      });
    } finally {
      await chain.testClient.setAutomine(true);
      await chain.testClient.mine({ blocks: 1 });
    }
  });

  await t.test("a raw transaction of garbage", async (t) => {
    const payer = await newPayer(chain);
    const body = await approvedPayment(chain, payer, newAccount().address);
    const path = "paymentPayload.extensions.erc20ApprovalGasSponsoring.info.signedTransaction";
    const { extensions } = body.paymentPayload as {
      extensions: { erc20ApprovalGasSponsoring: { info: { signedTransaction: Hex } } };
    };
    const raw = extensions.erc20ApprovalGasSponsoring.info.signedTransaction;
    t.equal(parseTransaction(raw).to?.toLowerCase(), chain.usdc.toLowerCase());
    const parse = "erc20_approval_tx_parse_failed";
    const cases: [string, string][] = [
      ["0x02", parse],
      ["0xc0", parse],
      [`0x${"00".repeat(100_000)}`, parse],
      [raw.slice(0, -2), parse],
      ["approve", "invalid_erc20_approval_extension_format"],
    ];
    for (const [value, reason] of cases)
      t.match(await post(one.app, "verify", change(body, path, value)), { invalidReason: reason });
  });
});

const pendingOf = async (chain: TestChain, address: Address): Promise<number> =>
  chain.publicClient.getTransactionCount({ address, blockTag: "pending" });

/** The point at which the first process is killed, by its calls to the node. */
const DEATHS: Record<string, (sends: number, method: string) => ReturnType<Rule> | undefined> = {
  "the approval is not sent yet": (sends, method) =>
    method === SEND && sends === 1 ? { do: "hang", pass: false } : undefined,
  "the approval is sent, the answer unheard": (sends, method) =>
    method === SEND && sends === 1 ? { do: "hang", pass: true } : undefined,
  "the approval is in a block, nothing accepted": (sends, method) =>
    method === "eth_getTransactionCount" && sends === 1 ? { do: "hang" } : undefined,
  "the payment is sent, the answer unheard": (sends, method) =>
    method === SEND && sends === 2 ? { do: "hang", pass: true } : undefined,
};

const POINTS = Object.entries(DEATHS).filter(([point]) => isFullTier || / sent, /.test(point));
for (const [point, dies] of POINTS)
  t.test(`killed when ${point}: a repeat pays once`, { timeout: 60_000 }, async (t) => {
    const chain = await testChain(t);
    const database = await testDatabase(t);
    const payer = await newPayer(chain);
    const payTo = newAccount().address;
    const body = await approvedPayment(chain, payer, payTo);
    await settleAndDie(t, { chain, databaseUrl: database.url, body, dies });
    // Its leases expire, as they would with time.
    await database.pool.query("UPDATE relayer_lanes SET lease_until = now()");
    await database.pool.query("UPDATE ledger_cursors SET lease_until = now()");
    const next = await testApp(t, { database, chain, env: ON });
    let answer: Record<string, unknown> = {};
    await until(async () => {
      answer = await post(next.app, "settle", body, { "idempotency-key": "order 1" });
      return answer["success"] === true;
    }, 30_000);
    t.match(answer, { success: true }, JSON.stringify(answer));
    t.equal(await tokenOf(chain).balanceOf(payTo), 1_000n, "paid once");
    t.equal(await sentBy(chain, payer.address), 1, "approved once");
    const again = await post(next.app, "settle", body);
    t.match(again, { success: false, errorReason: "duplicate_settlement" });
  });

async function settleAndDie(
  t: Test,
  options: {
    chain: TestChain;
    databaseUrl: string;
    body: Body;
    dies: (sends: number, method: string) => ReturnType<Rule> | undefined;
  },
): Promise<void> {
  const { chain, databaseUrl, body, dies } = options;
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const port = await freePort();
  const child = spawn(
    process.execPath,
    ["--enable-source-maps", childScript("test/facilitator/doomed-server.child.ts")],
    {
      env: {
        ...process.env,
        ...testEnvironment({
          databaseUrl,
          chain: { ...chain, rpcUrl: proxy.url },
          port,
          env: {
            ...ON,
            LOG_LEVEL: "silent",
            MASTER_KEYS: `test:${randomBytes(32).toString("base64")}`,
          },
        }),
      },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  await Promise.race([once(child.stdout, "data"), ended]);
  let sends = 0;
  const reached = new Promise<void>((resolve) => {
    proxy.behave = (call, request) => {
      if (call.method === SEND) sends += 1;
      const behaviour = dies(sends, call.method);
      if (behaviour) resolve();
      return behaviour ?? PASSING(call, request);
    };
  });
  const settling = fetch(`http://127.0.0.1:${port}/api/x402/settle`, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": "order 1" },
    body: JSON.stringify(body),
  });
  const failed = t.rejects(settling, "no response");
  await Promise.race([reached, ended, settling.catch(() => undefined)]);
  child.kill("SIGKILL");
  t.same((await ended)[1], "SIGKILL");
  await failed;
}
