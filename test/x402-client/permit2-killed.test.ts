// Goal: a process killed at any step of a payment through Permit2, its allowance included, loses nothing: the same key ends in one payment.
// Runs alone: its servers boot and die, and it waits for the time after which a request counts as dead.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import t, { type Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testEnvironment } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import { market, PAYEE, type Answered, type Market } from "./market.ts";
import {
  allowanceOf,
  assertLedgerIsWallet,
  settlePermit2,
  type Permit2Proof,
} from "./permit2-sellers.ts";

const CHILD = childScript("test/x402-client/doomed-server.child.ts");
const ENV = {
  MASTER_KEYS: `test:${randomBytes(32).toString("base64")}`,
  SETTLE_WAIT_MS: "3000",
  LOG_LEVEL: "silent",
};
/** The steps, in order. Until `permit-sent` there is no allowance. */
const POINTS = [
  "reserved",
  "permit-signed",
  "permit-sent",
  "signed",
  "submitted",
  "answered",
  "confirmed",
] as const;

const requestOf = ({ seller }: Market, point: string) => ({
  url: `${seller.origin}/${point}`,
  timeoutMs: 3_000,
});

async function fetchAndDie(t: Test, made: Market, point: string): Promise<void> {
  const port = await freePort();
  const child = spawn(process.execPath, ["--enable-source-maps", CHILD], {
    env: {
      ...process.env,
      ...testEnvironment({
        databaseUrl: made.database.url,
        chain: made.chain,
        port,
        env: { ...ENV, FETCH_PRIVATE_ORIGINS: made.seller.origin, DOOM_AT: point },
      }),
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  await Promise.race([once(child.stdout, "data"), ended]);
  const answer = await fetch(`http://127.0.0.1:${port}/api/agents/x402-fetch`, {
    method: "POST",
    headers: { ...made.agent.headers, "idempotency-key": point },
    body: JSON.stringify(requestOf(made, point)),
  }).then(
    (response) => response.text(),
    () => undefined,
  );
  t.equal(answer, undefined, `killed at ${point}: no answer`);
  if (answer !== undefined) child.kill("SIGKILL");
  t.same((await ended)[1], "SIGKILL");
}

async function askAgain(made: Market, point: string): Promise<Answered> {
  const deadlineMs = Date.now() + 40_000;
  for (;;) {
    const answer = await made.fetch(requestOf(made, point), { "idempotency-key": point });
    if (answer.body["code"] !== "idempotency_in_progress" || Date.now() > deadlineMs) return answer;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

t.test("killed at each step", async (t) => {
  const made = await market(t, { env: ENV, agent: { dailyLimit: "1", perPaymentLimit: "0.1" } });
  const { chain, seller } = made;
  const [account] = chain.accounts;
  if (!account) throw new Error("no account");
  const sold = new Map<string, string>();
  let last: Promise<unknown> = Promise.resolve();
  seller.script = {
    terms: () =>
      seller.entry({
        scheme: "upto",
        amount: "50000",
        extra: { name: "USDC", version: "2", facilitatorAddress: account.address },
      }),
    // Charges each proof once, and delivers for it as often as it is shown.
    onProof: async ({ response, proof }) => {
      const shown = proof as unknown as Permit2Proof;
      const { nonce } = shown.payload.permit2Authorization;
      const settled = last.then(
        async () => sold.get(nonce) ?? (await settlePermit2(chain, account, shown, 4_000n)),
      );
      last = settled.catch(() => undefined);
      const transaction = await settled;
      sold.set(nonce, transaction);
      response.writeHead(200, seller.receipt({ transaction })).end("data");
    },
  };
  for (const point of POINTS) {
    await fetchAndDie(t, made, point);
    if (point === "permit-signed") t.equal(await allowanceOf(made), 0n, "nothing left the process");
  }
  for (const answer of await Promise.all(POINTS.map((point) => askAgain(made, point))))
    t.match(
      answer,
      { status: 200, body: { paid: true, data: "data", receipt: { amount: "0.004" } } },
      JSON.stringify(answer.body),
    );
  t.equal(await made.balanceOf(PAYEE), BigInt(POINTS.length) * 4_000n, "each was paid once");
  const { rows } = await made.database.pool.query<{ n: string }>(
    "SELECT count(*)::text AS n FROM settlements WHERE kind = 'allowance' AND status IN ('queued', 'submitted')",
  );
  t.equal(rows[0]?.n, "0", "no permit is left open");
  await assertLedgerIsWallet(t, made);
});
