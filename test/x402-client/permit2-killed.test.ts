// Goal: a process killed at any step of a Permit2 payment, including its allowance, loses nothing: the same key ends in one payment.
// Tier: full (kills at every step of one more flow).
import t from "tap";
import { fetchAndDie, TIMEOUT_MS, untilDead } from "./doomed.ts";
import { market, PAYEE, type Market } from "./market.ts";
import {
  allowanceOf,
  assertLedgerIsWallet,
  settlePermit2,
  type Permit2Proof,
} from "./permit2-sellers.ts";

const ENV = { SETTLE_WAIT_MS: "5000", LOG_LEVEL: "silent" };
/** The steps in order; one process is killed at the steps of each list. Until `permit-sent` there is no allowance. */
const BEFORE = ["reserved", "permit-signed"];
const AFTER = ["permit-sent", "signed", "submitted", "answered", "confirmed"];
const POINTS = [...BEFORE, ...AFTER];

const requestOf = ({ seller }: Market, point: string) => ({
  point,
  body: { url: `${seller.origin}/${point}`, timeoutMs: TIMEOUT_MS },
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
    // Charges each proof once, and delivers for it as often as it is sent.
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
  const requests = (points: string[]) => points.map((point) => requestOf(made, point));
  await fetchAndDie(t, made, requests(BEFORE), ENV);
  t.equal(await allowanceOf(made), 0n, "nothing left the process");
  await fetchAndDie(t, made, requests(AFTER), ENV);
  await untilDead(made);
  const pending = requests(POINTS).map(({ body, headers }) => made.fetch(body, headers));
  for (const answer of await Promise.all(pending))
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
