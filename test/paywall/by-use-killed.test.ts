// Goal: a merchant process killed at any point of a charge by use charges once at most, the amount it set
// first, and serves once at most.
// Tier: full (kills at every step of one more flow).
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { decodePaymentResponseHeader } from "@x402/core/http";
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import { freePort } from "../../server/local/free-port.ts";
import { balanceOf, newAccount, fetchUntilSettled, proofOf, stockPayer } from "./shop.ts";

const { chain, baseUrl, database } = await testApp(t, { listen: true });

/** The amount that the second process would charge; the first recorded amount must win. */
const FIRST = "0.01";
const SECOND = "0.03";
const POINTS = [
  { dieAt: "verified", charged: 30_000n, served: true, why: "nothing was begun" },
  { dieAt: "working", charged: 30_000n, served: true, why: "the work was lost with the process" },
  { dieAt: "settling", charged: 10_000n, served: true, why: "the recorded amount is charged" },
  { dieAt: "sent", charged: 10_000n, served: undefined, why: "reported or not before it died" },
  { dieAt: "settled", charged: 10_000n, served: false, why: "the success was reported once" },
];

for (const { dieAt, charged, served, why } of POINTS) {
  await t.test(`killed: ${dieAt}`, async (t) => {
    const payTo = newAccount().address;
    const payer = newAccount();
    await chain.mint(payer.address, 1_000_000n);
    const port = await freePort();
    const start = async (env: Record<string, string>): Promise<ChildProcess> => {
      const child = spawn(
        process.execPath,
        ["--enable-source-maps", childScript("test/paywall/doomed-shop.child.ts")],
        {
          stdio: ["ignore", "pipe", "inherit"],
          env: {
            ...process.env,
            FACILITATOR: `${baseUrl}/api/x402`,
            DATABASE_URL: database.url,
            NETWORK: `eip155:${chain.chainId}`,
            PAY_TO: payTo,
            PORT: String(port),
            ...env,
          },
        },
      );
      t.teardown(() => child.kill("SIGKILL"));
      if (!child.stdout) throw new Error("no output");
      await once(child.stdout, "data");
      return child;
    };
    const url = `http://127.0.0.1:${port}/words`;
    const doomed = await start({ DIE_AT: dieAt, USED: FIRST });
    const headers = await proofOf(stockPayer(chain, payer), url);
    const died = once(doomed, "exit");
    await t.rejects(fetch(url, { headers }), "the connection is lost");
    t.equal((await died)[1], "SIGKILL");

    const second = await start({ USED: SECOND });
    const answers = [
      await fetchUntilSettled(url, { headers }),
      await fetchUntilSettled(url, { headers }),
    ];
    const good = answers.filter(({ status }) => status === 200);
    if (served === undefined) t.ok(good.length <= 1, why);
    else t.equal(good.length, served ? 1 : 0, why);
    for (const answer of answers.filter(({ status }) => status !== 200)) {
      t.equal(answer.status, 402);
      t.match(decodePaymentResponseHeader(answer.headers.get("payment-response") ?? ""), {
        success: false,
        errorReason: "duplicate_settlement",
      });
    }
    t.equal(await balanceOf(chain, payTo), charged);
    t.equal(await balanceOf(chain, payer.address), 1_000_000n - charged);
    second.kill();
  });
}
