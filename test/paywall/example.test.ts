// Goal: the paywall's example works unchanged: a separate program, our service as its facilitator by URL, a
// stock client.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { wrapFetchWithPayment } from "@x402/fetch";
import t from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { firstLine } from "../helpers/first-line.ts";
import { until } from "../helpers/until.ts";
import { channelPayer, get, receiptOf } from "./channel-shop.ts";
import { proofFor, stockClient } from "./stock.ts";

const example = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));

t.test("a joke is sold once per payment", async (t) => {
  const { chain, baseUrl } = await testApp(t, { listen: true });
  const payer = testAccount(2);
  await chain.mint(payer.address, 1_000_000n);
  const port = await freePort();
  const program = spawn(process.execPath, ["--import=tsx", example("paid-joke.ts")], {
    env: { ...process.env, PORT: String(port), FACILITATOR_URL: `${baseUrl}/api/x402` },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(program, "exit");
  t.teardown(async () => {
    program.kill();
    await ended;
  });
  const url = `http://localhost:${port}/joke`;
  t.equal(await firstLine(program.stdout), `Listening at ${url}`);
  const isUp = () =>
    fetch(url).then(
      ({ status }) => status === 402,
      () => false,
    );
  await until(isUp, 20_000);

  const paid = await wrapFetchWithPayment(fetch, stockClient(chain, payer))(url);
  t.equal(paid.status, 200);
  t.match(await paid.json(), { joke: /402/, paidBy: payer.address });
  const receipt = decodePaymentResponseHeader(paid.headers.get("payment-response") ?? "");
  const hash = receipt.transaction as `0x${string}`;
  t.equal((await chain.publicClient.getTransactionReceipt({ hash })).status, "success");

  const unpaid = await fetch(url);
  const required = decodePaymentRequiredHeader(unpaid.headers.get("payment-required") ?? "");
  const { headers } = await proofFor(chain, payer, required);
  const answers = await Promise.all(Array.from({ length: 10 }, () => fetch(url, { headers })));
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  t.equal(answers.filter(({ status }) => status === 402).length, 9);
});

t.test("words are sold through a channel, also after a restart", async (t) => {
  const { chain, baseUrl, database } = await testApp(t, { listen: true });
  const [port, receiver] = [await freePort(), testAccount(6).address];
  const url = `http://localhost:${port}/words`;
  const start = async () => {
    const program = spawn(process.execPath, ["--import=tsx", example("paid-through-channel.ts")], {
      env: {
        ...process.env,
        PORT: String(port),
        PAY_TO: receiver,
        AUTHORIZER_KEY: testAccount(7).privateKey,
        DATABASE_URL: database.url,
        FACILITATOR_URL: `${baseUrl}/api/x402`,
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(program, "exit");
    t.teardown(async () => {
      program.kill("SIGKILL");
      await ended;
    });
    t.equal(await firstLine(program.stdout), `Listening at ${url}`);
    const isUp = () =>
      get(url).then(
        ({ status }) => status === 402,
        () => false,
      );
    await until(isUp, 20_000);
    return { program, ended };
  };
  const payer = await channelPayer(chain, testAccount(8));
  const first = await start();
  t.match(await (await payer.pay(url)).json(), { words: "plain" });
  first.program.kill("SIGTERM");
  t.same(await first.ended, [0, null]);
  await start();
  const paid = await payer.pay(url);
  t.match(receiptOf(paid), { extra: { channelState: { chargedCumulativeAmount: "1400" } } });
});
