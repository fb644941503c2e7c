// Goal: one limit holds across spend, x402-fetch and MCP: of 50 parallel payments exactly 10 are made.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { assertLedgerIsChain, market, PAYEE } from "../x402-client/market.ts";
import { statusesOf } from "./ledger.helper.ts";
import { spendAs } from "../helpers/call.ts";

t.test("50 parallel payments by three interfaces at a limit of 10", async (t) => {
  const made = await market(t, {
    listen: true,
    agent: { dailyLimit: "0.01" },
    env: { SETTLE_WAIT_MS: "20000" },
  });
  const { app, agent, seller, baseUrl } = made;
  const client = new Client({ name: "test", version: "1" });
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${baseUrl}/mcp`), {
      requestInit: { headers: { authorization: `Bearer ${agent.apiKey}` } },
    }),
  );
  t.teardown(() => client.close());

  const interfaces = [
    async (index: number): Promise<boolean> => {
      const answer = await spendAs(app, agent, {
        recipient: PAYEE,
        amount: "0.001",
        memo: `${index}`,
      });
      if (answer.statusCode !== 200)
        t.equal(answer.json<{ code: string }>().code, "daily_limit_exceeded");
      return answer.statusCode === 200;
    },
    async (index: number): Promise<boolean> => {
      const answer = await made.fetch({ url: `${seller.url}&n=${index}` });
      if (answer.status !== 200) t.equal(answer.body["code"], "daily_limit_exceeded");
      return answer.status === 200;
    },
    async (index: number): Promise<boolean> => {
      const answer = await client.callTool({
        name: "send_usdc",
        arguments: { recipient: PAYEE, amount: "0.001", memo: `${index}` },
      });
      return answer.isError !== true;
    },
  ];
  const before = await made.balanceOf(PAYEE);
  const paid = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => interfaces[index % 3]?.(index)),
  );
  t.equal(paid.filter((was) => was === true).length, 10);
  t.equal((await made.balanceOf(PAYEE)) - before, 10_000n);
  t.same(await statusesOf(made, agent.id), { settled: 10, blocked: 40 });
  await assertLedgerIsChain(t, made);
});
