// Goal: a process killed at any step of a payment through Permit2, its allowance included, loses nothing: the same key ends in one payment.
// Runs alone: its servers boot and die, and it waits for the time after which a request counts as dead.
// Tier: full (kills at every step of one more flow).
import { randomBytes } from "node:crypto";
import t from "tap";
import { askAgain, fetchAndDie } from "./doomed.ts";
import { market, PAYEE, type Market } from "./market.ts";
import {
  allowanceOf,
  assertLedgerIsWallet,
  settlePermit2,
  type Permit2Proof,
} from "./permit2-sellers.ts";

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
  body: { url: `${seller.origin}/${point}`, timeoutMs: 3_000 },
  headers: { "idempotency-key": point },
});

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
    await fetchAndDie(t, made, { point, env: ENV, ...requestOf(made, point) });
    if (point === "permit-signed") t.equal(await allowanceOf(made), 0n, "nothing left the process");
  }
  const asked = POINTS.map((point) => askAgain(made, requestOf(made, point), 40_000));
  for (const answer of await Promise.all(asked))
    t.match(
      answer,
      { status: 200, body: { paid: true, text: "data", receipt: { amount: "0.004" } } },
      JSON.stringify(answer.body),
    );
  t.equal(await made.balanceOf(PAYEE), BigInt(POINTS.length) * 4_000n, "each was paid once");
  const { rows } = await made.database.pool.query<{ n: string }>(
    "SELECT count(*)::text AS n FROM settlements WHERE kind = 'allowance' AND status IN ('queued', 'submitted')",
  );
  t.equal(rows[0]?.n, "0", "no permit is left open");
  await assertLedgerIsWallet(t, made);
});
