// Goal: on a rollup whose contracts see only the parent chain's block number, an agent's past payments do not lock
// its balance.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Hex } from "viem";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { MULTICALL3 } from "../../server/local/chain-contracts.ts";
import { checkLedger } from "./ledger.helper.ts";

const NUMBER = 0x43;
const PUSH0 = 0x5f;

/** Patches the contract so that `block.number` is 0, far behind the chain's own, as on Arbitrum. */
function withParentsNumber(code: Hex): Hex {
  const bytes = Buffer.from(code.slice(2), "hex");
  for (let at = 0; at < bytes.length; at += 1) {
    const opcode = bytes[at] ?? 0;
    if (opcode === NUMBER) bytes[at] = PUSH0;
    if (opcode > PUSH0 && opcode <= 0x7f) at += opcode - PUSH0;
  }
  return `0x${bytes.toString("hex")}`;
}

t.test("money that arrives after a payment can be spent again", async (t) => {
  const ctx = await testApp(t, { chainOptions: { blockTimeSeconds: 0.5 } });
  const { app, chain } = ctx;
  const code = await chain.publicClient.getCode({ address: MULTICALL3 });
  const patched = withParentsNumber(code ?? "0x");
  t.not(patched, code);
  await chain.testClient.setCode({ address: MULTICALL3, bytecode: patched });
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  for (let round = 0; round < 3; round += 1) {
    // Each round spends the whole balance.
    await chain.mint(agent.walletAddress, 1_000_000n);
    const answer = await spendAs(app, agent, { recipient: payee, amount: "1" });
    t.equal(answer.statusCode, 200, answer.body);
    const { paymentId } = answer.json<{ paymentId: string }>();
    const one = await app.inject({
      url: `/api/agents/me/payments/${paymentId}`,
      headers: agent.headers,
    });
    t.match(one.json(), { status: "settled", final: true }, "one block is final on this chain");
  }
  await checkLedger(t, ctx, { agentId: agent.id, payee });
});
