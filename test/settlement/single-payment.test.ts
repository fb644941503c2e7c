// Goal: one authorization is relayed once, its outcome is proven by the chain, and every waiting caller receives it.
import t from "tap";
import { testChain } from "../helpers/chain.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

t.test("a payment settles as a plain call, and a repeat of it changes nothing", async (t) => {
  const chain = await testChain(t);
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain });
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 5_000n);
  const to = randomAddress();
  const authorization = await authorize(chain, payer, { to, value: 1_500n });
  const wanted = request(authorization);
  await node.engine.settlement.assertAvailable(chain.chainId);
  const startedMs = Date.now();
  const outcome = await settle(node, wanted);
  t.comment(`settled in ${Date.now() - startedMs} ms`);
  t.equal(outcome.status, "settled", node.logText());
  if (outcome.status !== "settled") return;
  const receipt = await chain.publicClient.getTransactionReceipt({ hash: outcome.txHash });
  t.equal(receipt.status, "success");
  t.equal(receipt.to?.toLowerCase(), chain.usdc.toLowerCase(), "no multicall for one payment");

  const again = await node.engine.settlement.accept(node.pool, request(authorization));
  t.equal(again.created, false);
  t.equal(again.settlement.id, wanted.id);
  t.equal(again.settlement.status, "settled");
  t.equal(again.settlement.txHash, outcome.txHash);
  t.same(
    await node.engine.settlement.wait(wanted.id, 1_000),
    outcome,
    "a late waiter receives the same",
  );
  t.same(node.batches, [1]);
});
