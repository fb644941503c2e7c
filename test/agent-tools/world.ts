// A listening service with one funded agent that may pay one recipient and the demo endpoint.
import type { Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";

/** With `signs`, the demo endpoint is paid at the relayer's address, whose key signs its receipts as in `npm start`. */
export async function agentWorld(t: Test, options: { dailyLimit?: string; signs?: boolean } = {}) {
  const friend = privateKeyToAccount(generatePrivateKey()).address;
  const other = privateKeyToAccount(generatePrivateKey()).address;
  const context = await testApp(t, {
    listen: true,
    env: options.signs ? {} : { DEMO_PAY_TO: other },
    configure: (config) => void (config.fetchPrivateOrigins = [config.publicUrl]),
  });
  const seller = options.signs ? context.chain.relayer.address : other;
  const owner = await signIn(context);
  const agent = await createAgent(context, owner, {
    dailyLimit: options.dailyLimit ?? "10",
    allowlist: [friend, seller],
  });
  await context.chain.mint(agent.walletAddress, 100_000_000n);
  return { ...context, owner, agent, friend, seller, demoUrl: `${context.baseUrl}/api/arc-stats` };
}
