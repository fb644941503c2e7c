// Goal: a payment of fees is credited exactly once when its process is killed before the credit, and after a restore.
// Tier: full (kills one more flow).
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { expectFeesAgree } from "../helpers/engine-invariants.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { stockClient } from "../paywall/stock.ts";
import { killedMidway } from "../spending/replica.helper.ts";
import { FEE_ADDRESS, newAccount, owedBy, payFeesUrl, WITH_FEES as env } from "./world.ts";

t.test(
  "killed between the broadcast and the credit; and a database from before the payment",
  async (t) => {
    const chain = await testChain(t);
    const database = await testDatabase(t);
    const wallet = newAccount();
    await chain.mint(wallet.address, 1_000_000n);
    const account = newAccount().address;
    const url = payFeesUrl(account, "0.5");
    const offered = await testApp(t, { chain, database, env });
    const unpaid = await offered.app.inject({ method: "POST", url });
    const required = decodePaymentRequiredHeader(String(unpaid.headers["payment-required"]));
    const payload = await stockClient(chain, wallet as never).createPaymentPayload(required);
    const proof = encodePaymentSignatureHeader(payload);
    await offered.app.close();
    await killedMidway(
      t,
      { database, chain },
      [{ point: "broadcast", path: url, headers: { "payment-signature": proof }, body: undefined }],
      { ...env, PURSER_TEST_HOLD_ENGINE_AT: "broadcast" },
    );
    t.equal(await owedBy({ database }, account), 0n);
    const next = await testApp(t, { chain, database, env });
    await until(async () => (await owedBy({ database }, account)) === -500_000n);
    t.equal(await chain.usdcOf(FEE_ADDRESS), 500_000n);
    const again = await next.app.inject({
      method: "POST",
      url,
      headers: { "payment-signature": proof },
    });
    t.match(again.json(), { paid: "0.5", prepaid: "0.5" }, "the answer that was lost");
    t.equal(await owedBy({ database }, account), -500_000n);

    const { rows } = await database.pool.query<{
      from_address: string;
      asset: string;
      nonce: string;
    }>("DELETE FROM settlements RETURNING from_address, asset, nonce");
    await database.pool.query("DELETE FROM fee_entries");
    await database.pool.query("DELETE FROM fee_accounts");
    const gone = await next.app.inject({
      method: "POST",
      url,
      headers: { "payment-signature": proof },
    });
    t.equal(gone.statusCode, 402, "the chain knows the payment, and this ledger does not");
    const credit = async () => {
      const { rows: done } = await database.pool.query<{ credited: boolean }>(
        "SELECT purser_fee_paid($1, $2, $3, $4, $5, $6) AS credited",
        [chain.chainId, account, rows[0]?.from_address, rows[0]?.asset, rows[0]?.nonce, "500000"],
      );
      return done[0]?.credited;
    };
    t.same([await credit(), await credit()], [true, false]);
    t.equal(await owedBy({ database }, account), -500_000n, "credited by hand, once");
    await expectFeesAgree(t, database.pool, { isRestored: true });
  },
);
